"""The schema of `ladders/*.yaml`: what a person writes. Errors name file, line and key.

Reading only: what the rungs become is in `ladder`, how they are trained in `run`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from marin_scaling.durable_files import read_bytes
from marin_scaling.errors import LadderFileError


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class RungsAtBudget(_Part):
    """One budget and the widths that are trained at it."""

    budget_flops: float = Field(gt=0)
    hidden_dims: tuple[int, ...] = Field(min_length=1)


class Target(_Part):
    """The large run that the ladder is to forecast."""

    budget_flops: float = Field(gt=0)


class Data(_Part):
    """What is trained on."""

    source: Literal["python-standard-library"] = "python-standard-library"


class Evaluation(_Part):
    """What is measured, on how many held-out windows."""

    metric: Literal["bits_per_byte"] = "bits_per_byte"
    windows: int = Field(default=1024, gt=0, multiple_of=64)


class Hardware(_Part):
    """What trains: how many runs at a time, and what one of them sustains (for the estimate of time only)."""

    runs_at_a_time: int | Literal["cores"] = "cores"
    sustained_flops_per_second: float | None = Field(default=None, gt=0)


class LadderFile(_Part):
    """A ladder as written down."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")
    recipe: str
    rungs: tuple[RungsAtBudget, ...] = Field(min_length=1)
    seeds: tuple[int, ...] = Field(default=(0,), min_length=1)
    target: Target
    data: Data = Data()
    evaluation: Evaluation = Evaluation()
    hardware: Hardware = Hardware()

    @model_validator(mode="after")
    def _target_is_larger(self) -> LadderFile:
        largest = max(rungs.budget_flops for rungs in self.rungs)
        if self.target.budget_flops <= largest:
            raise ValueError(
                f"target.budget_flops {self.target.budget_flops:g} is not larger than the largest rung's {largest:g}"
            )
        return self


def read_ladder_file(path: Path) -> LadderFile:
    """The ladder in a YAML file; `LadderFileError` says file, line and key of what is wrong."""
    raw = read_bytes(path)
    try:
        text = raw.decode("utf-8")
        document, node = yaml.safe_load(text), yaml.compose(text, Loader=yaml.SafeLoader)
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise _refused(f"{path} is not YAML: {_first_line(error)}.") from error
    if not isinstance(document, dict):
        raise _refused(f"{path} does not hold a ladder: it is {type(document).__name__}, not a table of keys.")
    try:
        return LadderFile.model_validate(document)
    except ValidationError as error:
        raise _refused("\n       ".join(_sentences(path, error, node))) from error


def _sentences(path: Path, error: ValidationError, node: yaml.Node | None) -> list[str]:
    return [
        f"{path}, line {_line_of(node, fault['loc'])}: {'.'.join(map(str, fault['loc'])) or 'ladder'}: {_reason(fault)}."
        for fault in error.errors()
    ]


def _reason(fault: Any) -> str:
    if fault["type"] == "extra_forbidden":
        return "there is no such key"
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


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _refused(what: str) -> LadderFileError:
    return LadderFileError(
        what,
        why="Every choice of a ladder is written down and checked before anything is trained.",
        fix="Correct the file; ladders/quickstart.yaml is a complete example.",
    )
