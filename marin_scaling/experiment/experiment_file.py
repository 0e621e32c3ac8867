"""Read experiments from `experiments/`: a folder with `experiment.yaml` for one's own, a `.jsonl` for many that were imported.

What is malformed is kept with its reason, and hinders no other. Writes only files of many.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from marin_scaling.canonical_json import load_strict
from marin_scaling.check.plain_file import read_plain
from marin_scaling.durable_files import replace_file
from marin_scaling.errors import DocumentError, MarinScalingError
from marin_scaling.experiment.experiment import Experiment
from marin_scaling.limits import MALFORMED_LINES, YAML_BYTES
from marin_scaling.printable import printable
from marin_scaling.regular_files import is_present
from marin_scaling.speedrun.submission_file import explained
from marin_scaling.yaml_documents import read_part

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
