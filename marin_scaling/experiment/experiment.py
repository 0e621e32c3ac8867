"""An experiment: its document, and reading and writing its file."""

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
from marin_scaling.limits import MALFORMED_LINES, YAML_BYTES
from marin_scaling.printable import joined, printable
from marin_scaling.speedrun.submission import Author, Code, explained
from marin_scaling.strict_model import Part
from marin_scaling.untrusted_files import is_present
from marin_scaling.untrusted_text import SHA256, Line, Link, Name, Words, is_secret, keys_in_text
from marin_scaling.yaml_config import AwareMoment, read_part


class Outcome(StrEnum):
    """How an experiment came out; the words of Marin's digests, so that theirs and ours can be counted together."""

    WORKED = "worked"
    PROMISING = "promising"
    MIXED = "mixed"
    DID_NOT_WORK = "did-not-work"
    NOT_EVALUATED = "not-evaluated"
    IN_PROGRESS = "in-progress"

    @property
    def meaning(self) -> str:
        """In a sentence."""
        return _MEANINGS[self]


_MEANINGS = {
    Outcome.WORKED: "what was expected came true wherever it was tried",
    Outcome.PROMISING: "it came true where it was tried, and that is too little to rely on",
    Outcome.MIXED: "it came true in some places and not in others",
    Outcome.DID_NOT_WORK: "it did not come true, or cost more than it gave",
    Outcome.NOT_EVALUATED: "nothing was measured that would say",
    Outcome.IN_PROGRESS: "it is not finished",
}


class Metric(Part):
    """One figure that came of it."""

    name: Line
    """What it is."""
    value: float | None = None
    """Its value, where it is one number."""
    low: float | None = None
    """The lowest, where it is a range or an interval."""
    high: float | None = None
    """The highest."""
    unit: Line | None = None
    """In what it is counted."""
    said: Line | None = None
    """In the words of its source, where that gave no plain number."""

    @model_validator(mode="after")
    def _says_something(self) -> Metric:
        if (self.low is None) != (self.high is None):
            raise ValueError("a range has both low and high")
        if self.value is None and self.low is None and self.said is None:
            raise ValueError("it has no value, no range and no words")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"low {self.low:g} is above high {self.high:g}")
        return self

    @model_validator(mode="after")
    def _lies_in_its_range(self) -> Metric:
        if self.value is None or self.low is None or self.high is None:
            return self
        if not self.low <= self.value <= self.high:
            raise ValueError(f"its value {self.value:g} is not between low {self.low:g} and high {self.high:g}")
        return self


class Step(Part):
    """One step of how it was made, with what it was made from."""

    name: Name
    """By which other steps name it."""
    what: Line | None = None
    """What was done."""
    inputs: tuple[Name, ...] = ()
    """The steps whose output it took."""
    data: tuple[Line, ...] = ()
    """What else it took, that no step here made."""
    status: Literal["succeeded", "failed", "running", "waiting", "reused"] | None = None
    """How it ended; `reused` where its output was there already."""
    started_at: AwareMoment | None = None
    """When it began."""
    finished_at: AwareMoment | None = None
    """When it ended."""
    output: Line | None = None
    """Where its output lies."""
    output_sha256: SHA256 | None = None
    """Digest of its output."""

    @property
    def seconds(self) -> float | None:
        """How long it took, where both ends are known."""
        if self.started_at is None or self.finished_at is None:
            return None
        return (self.finished_at - self.started_at).total_seconds()

    @model_validator(mode="after")
    def _ends_after_it_began(self) -> Step:
        if (self.seconds or 0.0) < 0:
            raise ValueError("it ended before it began")
        return self


class Links(Part):
    """Where it can be seen."""

    issue: Link | None = None
    """Where it was proposed and discussed."""
    pull_request: Link | None = None
    """That brought its code."""
    execution: Link | None = None
    """Its record where it was executed."""
    tracker: tuple[Link, ...] = ()
    """Runs or reports at Weights & Biases or elsewhere."""
    models: tuple[Link, ...] = ()
    """Weights that came of it."""
    data: tuple[Link, ...] = ()
    """Data sets that it used or made."""
    other: tuple[Link, ...] = ()
    """Whatever else tells of it."""


class Experiment(Part):
    """An experiment as written down."""

    format_version: Literal[1] = 1
    """Of this format."""
    name: Name
    """Of its folder (and then without /), or unique in its file."""
    title: Line
    """What it is about."""
    outcome: Outcome | None = None
    """How it came out: worked, promising, mixed, did-not-work, not-evaluated, in-progress; an import may leave it out."""
    date: datetime.date | None = None
    """When it came out."""
    authors: tuple[Author, ...] = ()
    """Who did it."""
    topics: tuple[Line, ...] = ()
    """By which it is found."""
    hypothesis: Words | None = None
    """What was expected before."""
    preregistration: Name | None = None
    """The folder in `preregistrations/` where that was signed before."""
    conclusion: Words | None = None
    """What was learnt."""
    metrics: tuple[Metric, ...] = ()
    """Figures that were measured elsewhere; those of `ladders` are read from their runs."""
    ladders: tuple[Name, ...] = ()
    """Folders in `runs/` that it rests on: their steps, durations and settings are shown from the records."""
    configuration: dict[str, JsonValue] = Field(default_factory=dict)
    """Settings, nested as they are; those of `ladders` are read from their runs."""
    baseline: Name | None = None
    """The experiment from which its page shows how its settings differ."""
    supersedes: tuple[Name, ...] = ()
    """Experiments whose conclusion it replaces."""
    steps: tuple[Step, ...] = Field(default=(), max_length=1000)
    """How it was made, where that was elsewhere."""
    code: Code | None = None
    """What was run."""
    links: Links = Links()
    """Where it can be seen."""
    source: Line | None = None
    """Where it was imported from; absent of one's own."""

    @model_validator(mode="after")
    def _says_its_outcome(self) -> Experiment:
        if self.outcome is None and self.source is None:
            raise _wrong(("outcome",), f"it is one of {', '.join(Outcome)}")
        return self

    @model_validator(mode="after")
    def _names_nothing_twice(self) -> Experiment:
        for key, names in (("ladders", self.ladders), ("supersedes", self.supersedes)):
            if len(set(names)) < len(names):
                raise _wrong((key,), f"a name stands twice in {joined(names)}")
        return self

    @model_validator(mode="after")
    def _carries_no_key(self) -> Experiment:
        document = self.model_dump(mode="json", exclude_defaults=True)
        for where, text in _texts(document):
            if found := keys_in_text(text):
                raise _wrong(where, f"an address in it carries {found[0]}. {_ACT}")
        for where, text in _texts(document.get("configuration", {})):
            if any(is_secret(str(name), text) for name in where):
                raise _wrong(("configuration", *where), f"it is named as keys are, and holds {len(text)} signs. {_ACT}")
        return self

    @model_validator(mode="after")
    def _steps_follow(self) -> Experiment:
        names: set[str] = set()
        for number, step in enumerate(self.steps):
            if step.name in names:
                raise _wrong(("steps", number, "name"), f"two are called {step.name}")
            names.add(step.name)
        for number, step in enumerate(self.steps):
            for name in step.inputs:
                if name not in names:
                    raise _wrong(("steps", number, "inputs"), f"{step.name} takes {name}, which is no step")
        try:
            TopologicalSorter({step.name: step.inputs for step in self.steps}).prepare()
        except CycleError as error:
            raise _wrong(("steps",), f"{min(error.args[1])} takes what is made from it") from error
        return self


def free_name(name: str, taken: Collection[str]) -> str:
    """The name, with a number where it is taken.

    >>> free_name("eval", []), free_name("eval", ["eval", "eval-2"])
    ('eval', 'eval-3')
    """
    numbered = (f"{name}-{number}" for number in itertools.count(2))
    return next(each for each in itertools.chain([name], numbered) if each not in taken)


_ACT = "Who reads the page could act for its owner: take it out, and have it revoked if it was ever published"
Where = tuple[str | int, ...]
"""Keys and numbers from the document down to a value."""


def _wrong(where: Where, what: str) -> ValidationError:
    """What is wrong with the values of several keys, said at the one that is to be changed."""
    said = PydanticCustomError("value_error", "{what}", {"what": what})
    return ValidationError.from_exception_data("Experiment", [InitErrorDetails(type=said, loc=where, input=None)])


def _texts(value: Any, where: Where = ()) -> Iterator[tuple[Where, str]]:
    """Every text in it, with its place; names of settings too, with that of their table, so that a place tells none."""
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


@dataclass(frozen=True, kw_only=True)
class Found:
    """What lies in one place: an experiment, or the reason why there is none."""

    place: str
    experiment: Experiment | None
    refusal: str = ""


def read_experiments(folder: Path) -> list[Found]:
    """All experiments below a folder, or in one file, by path; of two with one name the second is malformed."""
    found = [*(each for path in _files(folder) for each in _read(path)), *_overlooked(folder)]
    names: dict[str, str] = {}
    return [_unless_named_before(each, names) for each in found]


def read_experiment(path: Path) -> Experiment:
    """The experiment in a YAML file, which has the name of its folder; `DocumentError` says file, line and key."""
    found = read_part(path, Experiment, noun="an experiment", refused=_refused)
    if found.name != path.parent.name:
        raise _refused(f"{path}: name: {found.name!r} is not the name of its folder, {path.parent.name!r}.")
    try:
        to_line(found)
    except ValueError as error:  # a number of thousands of digits
        raise _refused(f"{path} cannot be written as JSON: {error}.") from error
    return found


def write_experiments(path: Path, experiments: Sequence[Experiment]) -> None:
    """Write many into one file, a line for each, in place of what was there."""
    replace_file(path, b"".join(map(to_line, experiments)))


def to_line(experiment: Experiment) -> bytes:
    """Its canonical line; keys without a value are left out."""
    document = experiment.model_dump(mode="json", exclude_defaults=True)
    return json.dumps(document, sort_keys=True, allow_nan=False).encode() + b"\n"


def experiment_schema() -> dict[str, Any]:
    """The JSON Schema of the format."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | Experiment.model_json_schema()


def root_of(place: Path) -> Path:
    """The root of the repository in which a folder or file of experiments lies; the current folder where none is seen."""
    above = [each for each in (place.absolute(), *place.absolute().parents) if each.name == EXPERIMENTS_DIR]
    return above[-1].parent if above else Path()


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return [folder]
    if is_present(folder / EXPERIMENT_NAME):
        return [folder / EXPERIMENT_NAME]
    return sorted([*folder.glob(f"*/{EXPERIMENT_NAME}"), *folder.glob("*.jsonl")])


def _overlooked(folder: Path) -> Iterator[Found]:
    """What somebody may have meant as an experiment, under a name by which none is found."""
    if not folder.is_dir() or is_present(folder / EXPERIMENT_NAME):
        return
    for path in sorted(each for each in folder.glob("*") if not each.name.startswith(".")):
        if path.is_dir() and path.suffix != ".jsonl" and not is_present(path / EXPERIMENT_NAME):
            yield Found(place=str(path), experiment=None, refusal=f"{printable(str(path))} holds no {EXPERIMENT_NAME}.")
        elif path.is_file() and path.suffix in (".json", ".yaml", ".yml"):
            yield Found(
                place=str(path),
                experiment=None,
                refusal=f"{printable(str(path))} is no folder with {EXPERIMENT_NAME}, and no .jsonl.",
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
            refusal = f"{printable(str(path))}: {MALFORMED_LINES} lines are malformed; lines below {number} are not read."
            yield Found(place=f"{path}, below line {number}", experiment=None, refusal=refusal)
            return


def _of_line(line: bytes, *, place: str) -> Found:
    try:
        load_strict(line, name=place)  # no key twice, no NaN
        return Found(place=place, experiment=Experiment.model_validate_json(line, strict=True))
    except ValidationError as error:
        return Found(place=place, experiment=None, refusal=f"{printable(place)}: {explained(error, with_values=False)}.")
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
        place=found.place, experiment=None, refusal=f"{printable(found.place)}: {printable(first)} is called {name}, too."
    )


def _refused(what: str | tuple[str, ...]) -> DocumentError:
    return DocumentError(
        what,
        why="An experiment that is not understood cannot be found, counted or compared.",
        fix="Write its keys as in the reference of experiment files.",
    )
