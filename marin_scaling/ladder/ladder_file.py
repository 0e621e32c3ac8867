"""The schema of `ladders/*.yaml`: what a person writes. Errors name file, line and key.

Reading only: what the rungs become is in `ladder`, how they are trained in `run`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from marin_scaling.durable_files import read_bytes
from marin_scaling.errors import LadderFileError


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


class RungsAtBudget(_Part):
    """One budget and the widths that are trained at it."""

    budget_flops: float = Field(gt=0)
    """Training FLOPs of each of these runs."""
    hidden_dims: tuple[int, ...] = Field(min_length=1)
    """Widths; the recipe makes the rest of the shape."""


class Target(_Part):
    """The large run that the ladder is to forecast."""

    budget_flops: float = Field(gt=0)
    """Its training FLOPs, more than those of the largest rung; its width follows from the fit."""


class Data(_Part):
    """What is trained on."""

    source: Literal["python-standard-library"] = "python-standard-library"
    """The sources of the Python that trains."""


class Evaluation(_Part):
    """What is measured, on how many held-out windows."""

    metric: Literal["bits_per_byte"] = "bits_per_byte"
    """Cross entropy in bits, by byte of text."""
    windows: int = Field(default=1024, gt=0, multiple_of=64)
    """Held-out windows that are evaluated."""


class Hardware(_Part):
    """What trains."""

    runs_at_a_time: Annotated[int, Field(gt=0)] | Literal["cores"] = "cores"
    """Training processes; `cores` is one for each core."""
    sustained_flops_per_second: float | None = Field(default=None, gt=0)
    """What the machine sustains with all of them; only for the estimate of time."""


class LadderFile(_Part):
    """A ladder as written down."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")
    """The ladder's folder in `runs/`; the file is `ladders/NAME.yaml`."""
    recipe: str
    """What turns a budget and a width into a run."""
    rungs: tuple[RungsAtBudget, ...] = Field(min_length=1)
    """The small runs, by budget."""
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field(default=(0,), min_length=1)
    """Every rung is trained once with each."""
    target: Target
    """The large run that is forecast; it must cost more than the largest rung."""
    data: Data = Data()
    """What is trained on."""
    evaluation: Evaluation = Evaluation()
    """What is measured."""
    hardware: Hardware = Hardware()
    """What trains."""

    @field_validator("rungs")
    @classmethod
    def _no_run_twice(cls, rungs: tuple[RungsAtBudget, ...]) -> tuple[RungsAtBudget, ...]:
        runs = [(at.budget_flops, width) for at in rungs for width in at.hidden_dims]
        for budget_flops, width in runs:
            if runs.count((budget_flops, width)) > 1:
                raise ValueError(f"width {width} stands twice at {budget_flops:g} FLOPs")
        return rungs

    @field_validator("seeds")
    @classmethod
    def _no_seed_twice(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(seeds)) < len(seeds):
            raise ValueError(f"a seed stands twice in {', '.join(map(str, seeds))}")
        return seeds

    @field_validator("target")
    @classmethod
    def _target_is_larger(cls, target: Target, so_far: ValidationInfo) -> Target:
        largest = max((at.budget_flops for at in so_far.data.get("rungs", ())), default=0.0)
        if target.budget_flops <= largest:
            raise ValueError(f"its budget_flops {target.budget_flops:g} is not larger than the largest rung's {largest:g}")
        return target


def read_ladder_file(path: Path) -> LadderFile:
    """The ladder in a YAML file; `LadderFileError` says file, line and key of what is wrong."""
    raw = read_bytes(path)
    try:
        text = raw.decode("utf-8")
        document, node = yaml.safe_load(text), yaml.compose(text, Loader=yaml.SafeLoader)
    except (ValueError, RecursionError, yaml.YAMLError) as error:  # ValueError: not UTF-8, or a date that is none
        raise _refused(f"{path} is not YAML: {_yaml_reason(error)}.") from error
    if not isinstance(document, dict):
        found = "it is empty" if document is None else f"it is {type(document).__name__}, not a table of keys"
        raise _refused(f"{path} does not hold a ladder: {found}.")
    _refuse_key_twice(path, node)
    try:
        file = LadderFile.model_validate(document)
    except ValidationError as error:
        raise _refused("\n       ".join(_sentences(path, error, node))) from error
    if file.name != path.stem:
        line = _line_of(node, ("name",))
        raise _refused(f"{path}, line {line}: name: {file.name!r} is not the name of the file, {path.stem!r}.")
    return file


def _sentences(path: Path, error: ValidationError, node: yaml.Node | None) -> list[str]:
    """One sentence a key: a value that fits none of several alternatives is one fault, an empty list with a wrong item too."""
    faults: dict[str, list[Any]] = {}
    for fault in error.errors():
        faults.setdefault(_key(fault), []).append(fault)
    inner = {key.rpartition(".")[0] for key in faults}
    return [
        f"{path}, line {_line_of(node, alike[0]['loc'])}: {key or 'ladder'}: {' or '.join(map(_reason, alike))}."
        for key, alike in faults.items()
        if not (key in inner and alike[0]["type"] == "too_short")
    ]


def _key(fault: Any) -> str:
    """The key as a person counts it, as in rungs.1.budget_flops, without pydantic's names of alternatives (literal[...])."""
    steps = [str(step) for step in fault["loc"]]
    return ".".join(step for step in steps if fault["type"] == "extra_forbidden" or step.isdigit() or step.isidentifier())


def _reason(fault: Any) -> str:
    if fault["type"] == "extra_forbidden":
        return "there is no such key"
    if fault["type"] == "too_short":
        return "it is empty"
    return str(fault["msg"]).removeprefix("Value error, ")[:1].lower() + str(fault["msg"]).removeprefix("Value error, ")[1:]


def _line_of(node: yaml.Node | None, location: Sequence[int | str]) -> int:
    """The line of the deepest key on the way that stands in the file (a missing key has the line of its table)."""
    line = node.start_mark.line + 1 if node else 1
    for step in location:
        if isinstance(node, yaml.MappingNode):
            found = next(((key, value) for key, value in node.value if key.value == step), None)
            if found is None:
                break
            line, node = found[0].start_mark.line + 1, found[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            line = node.start_mark.line + 1
    return line


def _refuse_key_twice(path: Path, node: yaml.Node | None) -> None:
    """YAML readers take the last of two equal keys without a word; `LadderFileError` names file, line and key instead."""
    waiting, seen = [node], set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:  # an alias can make a file contain itself
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.MappingNode):
            keys = [key.value for key, _ in node.value]
            for key, value in node.value:
                if keys.count(key.value) > 1:
                    raise _refused(f"{path}, line {key.start_mark.line + 1}: {key.value}: this key stands twice.")
                waiting.append(value)


def _yaml_reason(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem and error.problem_mark:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    return " ".join(str(error).split())


def _refused(what: str) -> LadderFileError:
    return LadderFileError(
        what,
        why="Every choice of a ladder is written down and checked before anything is trained.",
        fix="Correct the file; ladders/quickstart.yaml is a complete example.",
    )
