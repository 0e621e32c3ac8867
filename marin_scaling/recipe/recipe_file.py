"""A recipe of one's own as a YAML file: another recipe with some of its constants overridden.

    name: hotter
    base: delphi
    constants: {tuned_learning_rate: 0.008}

What needs other formulas is a class with the interface of `recipe.Recipe`.
"""

from __future__ import annotations

from dataclasses import Field, fields, replace
from pathlib import Path
from typing import Any

from pydantic import Field as Key
from pydantic import StrictFloat, StrictInt

from marin_scaling.errors import RecipeError
from marin_scaling.yaml_documents import Part, read_yaml


class RecipeFile(Part):
    """A recipe as written down."""

    name: str = Key(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")
    """What runs of it are called by; the file is NAME.yaml."""
    base: str
    """The recipe whose formulas and other constants are taken: a name, another file, or MODULE:CLASS."""
    constants: dict[str, StrictInt | StrictFloat] = Key(min_length=1)
    """Constants of the base and their new values; `marin-scale recipe show BASE` lists them."""


def read_recipe_file(path: Path) -> RecipeFile:
    """The recipe in a YAML file; `RecipeError` says file, line and key of what is wrong."""
    return read_yaml(path, RecipeFile, noun="a recipe", refused=_refused)


def overridden(base: Any, file: RecipeFile, *, path: Path) -> Any:
    """`base` with the constants of `file`; `RecipeError` names a constant that it does not have or that cannot be that."""
    known = {each.name: each for each in fields(base) if "source" in each.metadata}
    for name, value in file.constants.items():
        if name not in known:
            raise _refused(f"{path}: constants.{name}: the recipe {base.name!r} has no such constant ({', '.join(known)}).")
        _require_possible(path, known[name], value)
    return replace(base, name=file.name, **file.constants)


def _require_possible(path: Path, constant: Field[Any], value: float) -> None:
    least, whole = ("0 or more" if constant.metadata["zero"] else "more than 0"), isinstance(constant.default, int)
    if value < 0 or (value == 0 and not constant.metadata["zero"]):
        raise _refused(f"{path}: constants.{constant.name}: {value} is not {least}.")
    if whole and not isinstance(value, int):
        raise _refused(f"{path}: constants.{constant.name}: {value} is no whole number, as {constant.default} is.")


def _refused(what: str) -> RecipeError:
    return RecipeError(
        what,
        why="A recipe is written down and checked before anything is planned with it.",
        fix="Correct the file: name, base, and constants of the base with their new values.",
    )
