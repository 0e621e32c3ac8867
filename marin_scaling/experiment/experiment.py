"""Experiment document, and reading and writing its file."""

from __future__ import annotations

import datetime
import itertools
import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, JsonValue, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from marin_scaling.canonical_json import load_strict
from marin_scaling.errors import DocumentError, MarinScalingError
from marin_scaling.files import read_plain, replace_file
from marin_scaling.printable import MALFORMED_LINES, YAML_BYTES, joined, printable
from marin_scaling.speedrun.submission import Author, Code
from marin_scaling.strict_model import SHA256, Part, fault_text
from marin_scaling.untrusted_files import is_present
from marin_scaling.untrusted_text import Line, Link, Name, Words, is_secret, keys_in_text
from marin_scaling.yaml_config import AwareMoment, read_part


class Outcome(StrEnum):
    """Outcome of an experiment, in the words of Marin's digests."""

    WORKED = "worked"
    PROMISING = "promising"
    MIXED = "mixed"
    DID_NOT_WORK = "did-not-work"
    NOT_EVALUATED = "not-evaluated"
    IN_PROGRESS = "in-progress"

    @property
    def meaning(self) -> str:
        """Meaning in one sentence."""
        return _MEANINGS[self]


_MEANINGS = {
    Outcome.WORKED: "the hypothesis held wherever it was tested",
    Outcome.PROMISING: "the hypothesis held, but in too few tests to rely on",
    Outcome.MIXED: "the hypothesis held in some tests and failed in others",
    Outcome.DID_NOT_WORK: "the hypothesis failed, or the change costs more than it gains",
    Outcome.NOT_EVALUATED: "no measurement tests the hypothesis",
    Outcome.IN_PROGRESS: "the experiment is not finished",
}


class Metric(Part):
    """One reported value."""

    name: Line
    """Name of the metric."""
    value: float | None = None
    """Value, if it is one number."""
    low: float | None = None
    """Lower bound of a range or interval."""
    high: float | None = None
    """Upper bound of a range or interval."""
    unit: Line | None = None
    """Unit."""
    said: Line | None = None
    """Value in the words of the source, if the source has no plain number."""

    @model_validator(mode="after")
    def _says_something(self) -> Metric:
        if (self.low is None) != (self.high is None):
            raise ValueError("a range needs both low and high")
        if self.value is None and self.low is None and self.said is None:
            raise ValueError("value, range and words are all missing")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"low {self.low:g} is above high {self.high:g}")
        return self

    @model_validator(mode="after")
    def _lies_in_its_range(self) -> Metric:
        if self.value is None or self.low is None or self.high is None:
            return self
        if not self.low <= self.value <= self.high:
            raise ValueError(f"value {self.value:g} is not between low {self.low:g} and high {self.high:g}")
        return self


class Step(Part):
    """One step of the experiment, with its inputs."""

    name: Name
    """Name for use in `inputs`."""
    what: Line | None = None
    """Description."""
    inputs: tuple[Name, ...] = ()
    """Steps whose output this step uses."""
    data: tuple[Line, ...] = ()
    """Other inputs, which no step here made."""
    status: Literal["succeeded", "failed", "running", "waiting", "reused"] | None = None
    """Status; `reused` if the output existed already."""
    started_at: AwareMoment | None = None
    """Start."""
    finished_at: AwareMoment | None = None
    """End."""
    output: Line | None = None
    """Place of the output."""
    output_sha256: SHA256 | None = None
    """SHA-256 of the output."""

    @property
    def seconds(self) -> float | None:
        """Duration; None if start or end is unknown."""
        if self.started_at is None or self.finished_at is None:
            return None
        return (self.finished_at - self.started_at).total_seconds()

    @model_validator(mode="after")
    def _ends_after_it_began(self) -> Step:
        if (self.seconds or 0.0) < 0:
            raise ValueError(f"the end, {self.finished_at}, is before the start, {self.started_at}")
        return self


class Links(Part):
    """Web addresses of an experiment."""

    issue: Link | None = None
    """Issue with the proposal and discussion."""
    pull_request: Link | None = None
    """Pull request with the code."""
    execution: Link | None = None
    """Record of the execution."""
    tracker: tuple[Link, ...] = ()
    """Runs or reports at Weights & Biases or elsewhere."""
    models: tuple[Link, ...] = ()
    """Resulting weights."""
    data: tuple[Link, ...] = ()
    """Data sets used or made."""
    other: tuple[Link, ...] = ()
    """Other pages about the experiment."""


class Experiment(Part):
    """Experiment as written by its author."""

    format_version: Literal[1] = 1
    """Version of this format."""
    name: Name
    """Name of its folder (then without /), or unique in its file."""
    title: Line
    """Subject."""
    outcome: Outcome | None = None
    """Outcome: worked, promising, mixed, did-not-work, not-evaluated or in-progress; optional for imports."""
    date: datetime.date | None = None
    """Date of the outcome."""
    authors: tuple[Author, ...] = ()
    """Authors."""
    topics: tuple[Line, ...] = ()
    """Topics for the index."""
    hypothesis: Words | None = None
    """Expectation before the experiment."""
    preregistration: Name | None = None
    """Folder in `preregistrations/` with the signed forecast."""
    conclusion: Words | None = None
    """Conclusion."""
    metrics: tuple[Metric, ...] = ()
    """Values measured elsewhere; those of `ladders` are read from their runs."""
    ladders: tuple[Name, ...] = ()
    """Folders in `runs/` with the experiment's runs; steps, durations and settings are read from the records."""
    configuration: dict[str, JsonValue] = Field(default_factory=dict)
    """Settings, nested; those of `ladders` are read from their runs."""
    baseline: Name | None = None
    """Experiment whose settings the page compares with."""
    supersedes: tuple[Name, ...] = ()
    """Experiments whose conclusion this one replaces."""
    steps: tuple[Step, ...] = Field(default=(), max_length=1000)
    """Steps that ran elsewhere."""
    code: Code | None = None
    """Code that was run."""
    links: Links = Links()
    """Web addresses."""
    source: Line | None = None
    """Source of an import; absent for own experiments."""

    @model_validator(mode="after")
    def _says_its_outcome(self) -> Experiment:
        if self.outcome is None and self.source is None:
            raise _wrong(("outcome",), f"required: one of {', '.join(Outcome)}")
        return self

    @model_validator(mode="after")
    def _names_nothing_twice(self) -> Experiment:
        for key, names in (("ladders", self.ladders), ("supersedes", self.supersedes)):
            if len(set(names)) < len(names):
                raise _wrong((key,), f"duplicate name in {joined(names)}")
        return self

    @model_validator(mode="after")
    def _carries_no_key(self) -> Experiment:
        document = self.model_dump(mode="json", exclude_defaults=True)
        for where, text in _texts(document):
            if found := keys_in_text(text):
                raise _wrong(where, f"a web address contains {found[0]}. {_ACT}")
        for where, text in _texts(document.get("configuration", {})):
            if any(is_secret(str(name), text) for name in where):
                raise _wrong(
                    ("configuration", *where), f"the name suggests a secret, and the value has {len(text)} characters. {_ACT}"
                )
        return self

    @model_validator(mode="after")
    def _steps_follow(self) -> Experiment:
        names: set[str] = set()
        for number, step in enumerate(self.steps):
            if step.name in names:
                raise _wrong(("steps", number, "name"), f"duplicate name {step.name}")
            names.add(step.name)
        for number, step in enumerate(self.steps):
            for name in step.inputs:
                if name not in names:
                    raise _wrong(("steps", number, "inputs"), f"{step.name} needs {name}, which is not a step")
        try:
            TopologicalSorter({step.name: step.inputs for step in self.steps}).prepare()
        except CycleError as error:
            raise _wrong(("steps",), f"cycle: {min(error.args[1])} depends on its own output") from error
        return self


def free_name(name: str, taken: Collection[str]) -> str:
    """Return the name, with a number if it is taken.

    >>> free_name("eval", []), free_name("eval", ["eval", "eval-2"])
    ('eval', 'eval-3')
    """
    numbered = (f"{name}-{number}" for number in itertools.count(2))
    return next(each for each in itertools.chain([name], numbered) if each not in taken)


_ACT = "Readers could use the secret: remove it, and revoke it if it was ever published"
Where = tuple[str | int, ...]
"""Keys and indices from the document down to a value."""


def _wrong(where: Where, what: str) -> ValidationError:
    """Return a validation error at the key that the author should change."""
    said = PydanticCustomError("value_error", "{what}", {"what": what})
    return ValidationError.from_exception_data("Experiment", [InitErrorDetails(type=said, loc=where, input=None)])


def _texts(value: Any, where: Where = ()) -> Iterator[tuple[Where, str]]:
    """Yield every text with its place. Names of settings have the place of their table, so that no place contains a secret."""
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield where, str(key)
            yield from _texts(inner, (*where, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _texts(inner, (*where, number))


EXPERIMENTS_DIR = "experiments"
EXPERIMENT_NAME = "experiment.yaml"
CHAINS_DIR = "chains"
COMPARISONS_DIR = "comparisons"
"""Folders of speedup chains and of compared texts among the experiments; `publish.chain_page` reads them."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """Experiment at one place, or the reason why it cannot be read."""

    place: str
    experiment: Experiment | None
    refusal: str = ""


def read_experiments(folder: Path) -> list[Found]:
    """Read all experiments below a folder, or in one file, by path; a second one with the same name is malformed."""
    found = [*(each for path in _files(folder) for each in _read(path)), *_overlooked(folder)]
    names: dict[str, str] = {}
    return [_unless_named_before(each, names) for each in found]


def read_experiment(path: Path) -> Experiment:
    """Read the experiment in a YAML file, named after its folder; `DocumentError` names file, line and key."""
    found = read_part(path, Experiment, noun="an experiment", refused=_refused)
    if found.name != path.parent.name:
        raise _refused(f"{path}: name: {found.name!r} differs from its folder's name, {path.parent.name!r}.")
    try:
        to_line(found)
    except ValueError as error:  # a number with thousands of digits
        raise _refused(f"{path} cannot be written as JSON: {error}.") from error
    return found


def write_experiments(path: Path, experiments: Sequence[Experiment]) -> None:
    """Replace a file with these experiments, one per line."""
    replace_file(path, b"".join(map(to_line, experiments)))


def to_line(experiment: Experiment) -> bytes:
    """Return the canonical line of an experiment, without default values."""
    document = experiment.model_dump(mode="json", exclude_defaults=True)
    return json.dumps(document, sort_keys=True, allow_nan=False).encode() + b"\n"


def root_of(place: Path) -> Path:
    """Return the root of the repository of a folder or file of experiments; default: the current folder."""
    above = [each for each in (place.absolute(), *place.absolute().parents) if each.name == EXPERIMENTS_DIR]
    return above[-1].parent if above else Path()


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return [folder]
    if is_present(folder / EXPERIMENT_NAME):
        return [folder / EXPERIMENT_NAME]
    return sorted([*folder.glob(f"*/{EXPERIMENT_NAME}"), *folder.glob("*.jsonl")])


_COMPARED = (CHAINS_DIR, COMPARISONS_DIR)


def _overlooked(folder: Path) -> Iterator[Found]:
    """Yield files that look like experiments but have another name."""
    if not folder.is_dir() or is_present(folder / EXPERIMENT_NAME):
        return
    for path in sorted(each for each in folder.glob("*") if not each.name.startswith(".") and each.name not in _COMPARED):
        if path.is_dir() and path.suffix != ".jsonl" and not is_present(path / EXPERIMENT_NAME):
            yield Found(place=str(path), experiment=None, refusal=f"{printable(str(path))} has no {EXPERIMENT_NAME}.")
        elif path.is_file() and path.suffix in (".json", ".yaml", ".yml"):
            yield Found(
                place=str(path),
                experiment=None,
                refusal=f"{printable(str(path))} is neither a folder with {EXPERIMENT_NAME} nor a .jsonl file.",
            )


def _read(path: Path) -> Iterator[Found]:
    try:
        if path.suffix != ".jsonl":
            read_plain(path, most_bytes=YAML_BYTES)
            yield Found(place=str(path), experiment=read_experiment(path))
            return
        raw = read_plain(path)
    except MarinScalingError as error:
        yield Found(place=str(path), experiment=None, refusal=error.what)
        return
    malformed = 0
    for number, line in enumerate(raw.split(b"\n"), start=1):
        if not line.strip():
            continue
        found = _of_line(line, place=f"{path}, line {number}")
        malformed += found.experiment is None
        yield found
        if malformed == MALFORMED_LINES:
            refusal = f"{printable(str(path))}: {MALFORMED_LINES} lines are malformed; lines after {number} are skipped."
            yield Found(place=f"{path}, after line {number}", experiment=None, refusal=refusal)
            return


def _of_line(line: bytes, *, place: str) -> Found:
    try:
        document = load_strict(line, name=place)
        return Found(place=place, experiment=Experiment.model_validate_json(line, strict=True))
    except ValidationError as error:
        return Found(
            place=place, experiment=None, refusal=f"{printable(place)}: {fault_text(error, document, with_values=False)}."
        )
    except MarinScalingError as error:
        return Found(place=place, experiment=None, refusal=error.what)


def _unless_named_before(found: Found, names: dict[str, str]) -> Found:
    if found.experiment is None:
        return found
    name = found.experiment.name
    first = names.setdefault(name, found.place)
    if first == found.place:
        return found
    return Found(
        place=found.place,
        experiment=None,
        refusal=f"{printable(found.place)}: duplicate name {name}, also in {printable(first)}.",
    )


def _refused(what: str | tuple[str, ...]) -> DocumentError:
    return DocumentError(
        what,
        why="Experiments are checked before they are indexed and compared.",
        fix="Fix the named keys; site/reference/experiment-files.md lists all keys.",
    )
