"""A recipe of one's own as a YAML file: another recipe with some of its constants overridden.

    name: hotter
    base: delphi
    constants: {tuned_learning_rate: 0.008}

What needs other formulas is a class with the interface of `recipe.Recipe`.
"""

from __future__ import annotations

from dataclasses import Field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import Field as Key
from pydantic import field_validator

from marin_scaling.errors import RecipeError
from marin_scaling.yaml_documents import Part, read_yaml

_FARTHEST_WHOLE = 1000.0  # times the recipe's own: what lies farther off is a slip of the hand
_FARTHEST = 1e9


class RecipeFile(Part):
    """A recipe as written down."""

    name: str = Key(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")
    """What runs of it are called by; the file is NAME.yaml."""
    base: str
    """The recipe whose formulas and other constants are taken: a name, MODULE:CLASS, or another file beside this one."""
    constants: dict[str, float] = Key(min_length=1)
    """Constants of the base and their new values; `marin-scale recipe show BASE` lists them."""

    @field_validator("constants", mode="before")
    @classmethod
    def _no_truth_values(cls, constants: Any) -> Any:
        for name, value in constants.items() if isinstance(constants, dict) else ():
            if isinstance(value, bool):
                raise ValueError(f"{name} is {str(value).lower()}, not a number")
        return constants


def read_recipe_file(path: Path) -> RecipeFile:
    """The recipe in a YAML file; `RecipeError` says file, line and key of what is wrong."""
    return read_yaml(path, RecipeFile, noun="a recipe", refused=_refused)


def overridden(base: Any, file: RecipeFile, *, path: Path) -> Any:
    """`base` with the constants of `file`; `RecipeError` names a constant that it does not have or that cannot be that."""
    if not is_dataclass(base) or isinstance(base, type):
        raise _refused(f"{path}: base: {file.base} has no constants to override; it is no dataclass.")
    known = {each.name: each for each in fields(base) if "source" in each.metadata}
    values: dict[str, float] = {}
    for name, value in file.constants.items():
        if name not in known:
            raise _refused(f"{path}: constants.{name}: the recipe {file.base!r} has no such constant ({', '.join(known)}).")
        values[name] = _possible(path, known[name], value)
    return replace(base, name=file.name, **values)


def _possible(path: Path, constant: Field[Any], value: float) -> float:
    """The value, as a whole number where the constant is one; `RecipeError` where the constant cannot be that."""
    own: Any = constant.default
    zero, most, below = (constant.metadata[name] for name in ("zero", "most", "below"))
    farthest = _FARTHEST_WHOLE if isinstance(own, int) else _FARTHEST
    faults = {
        "not 0 or more" if zero else "not more than 0": value < 0 or (value == 0 and not zero),
        f"more than {most}": most is not None and value > most,
        f"not below {below}": below is not None and value >= below,
        f"no whole number, as {own} is": isinstance(own, int) and value != int(value),
        f"more than {farthest:g} times off the recipe's own, {own:g}": bool(own and value)
        and not 1 / farthest <= value / own <= farthest,
    }
    for fault, holds in faults.items():
        if holds:
            raise _refused(f"{path}: constants.{constant.name}: {value:g} is {fault}.")
    return int(value) if isinstance(own, int) else value


def _refused(what: str | tuple[str, ...]) -> RecipeError:
    return RecipeError(
        what,
        why="A recipe is written down and checked before anything is planned with it.",
        fix="Correct the file: name, base, and constants of the base with their new values.",
    )
