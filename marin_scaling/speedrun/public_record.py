"""Public records of other speedrun boards: figures from a CSV file, shown on boards of their own."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from marin_scaling.errors import DocumentError
from marin_scaling.files import read_bytes
from marin_scaling.speedrun.checks import Validated
from marin_scaling.speedrun.leaderboard import SAME_COST, Board, boards, front, points
from marin_scaling.speedrun.scaling import Projection, projections
from marin_scaling.speedrun.submission import (
    Author,
    Compute,
    Data,
    Evaluation,
    Model,
    SeedResult,
    Submission,
    explained,
    missing_keys,
)
from marin_scaling.speedrun.track import AXES
from marin_scaling.untrusted_text import Link
from marin_scaling.yaml_config import Part

FOLDER = "public"
"""Of these records, below `speedruns/`."""
PROJECTED_TO_FLOPS = 1e22
"""Budget at which the scaling groups of a record are compared: that of Marin's board."""
_MOST_ENTRIES = 2000
_NUMBERS = ("params", "tokens", "model_flops", "hardware_flops", "bits_per_byte", "training_seconds")
COLUMNS = ("run", "authors", *_NUMBERS, "finished_at", "log", "source")


class _Source(Part):
    source: Link


@dataclass(frozen=True, kw_only=True)
class PublicBoard:
    """A record's entries as a board. Nothing of them was checked here. `source` is the address of the figures."""

    name: str
    board: Board
    source: str
    groups: tuple[Projection, ...]

    @property
    def logs(self) -> dict[str, str]:
        """The address of each entry's log, by the entry's name."""
        return {row.submission.name: row.submission.seeds[0].log or self.source for row in self.board.rows}

    @property
    def repeated(self) -> int:
        """Number of entries whose run is that of another entry, by its log."""
        return len(self.logs) - len(set(self.logs.values()))


def read_public_board(path: Path) -> PublicBoard:
    """Return the board of one CSV file; `DocumentError` names line and key of what cannot stand there."""
    rows = list(_rows(path))
    found = [_submission(row, track=path.stem, where=f"{path}, line {line}") for line, row in rows]
    names = [each.name for each in found]
    if len(set(names)) < len(names):
        raise _refused(f"{path}: the run {max(names, key=names.count)!r} has {names.count(max(names, key=names.count))} rows")
    board = _board(found, track=path.stem)
    groups = projections([row.submission for row in board.rows], flops=PROJECTED_TO_FLOPS)
    return PublicBoard(name=path.stem, board=board, source=rows[0][1]["source"], groups=tuple(groups))


def _board(found: Sequence[Submission], *, track: str) -> Board:
    """Return the board by the figures as they are stated: a record has no shapes to recompute them from."""
    (checked,) = boards([Validated(submission=each, findings=()) for each in found])
    standing = {axis: front(points(found, axis=axis), same_cost=SAME_COST) for axis in AXES}
    names = {axis: {point.name for point in each} for axis, each in standing.items()}
    rows = [replace(row, on_front=tuple(axis for axis in AXES if row.submission.name in names[axis])) for row in checked.rows]
    return replace(checked, track=track, rows=tuple(rows))


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    try:
        reader = csv.DictReader(io.StringIO(read_bytes(path).decode("utf-8"), newline=""), strict=True)
        rows = [(reader.line_num, row) for row in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise _refused(f"{path} is not CSV in UTF-8: {error}") from error
    if tuple(reader.fieldnames or ()) != COLUMNS or any(None in row or None in row.values() for _, row in rows):
        raise _refused(f"{path} has other columns than {','.join(COLUMNS)}")
    if not 0 < len(rows) <= _MOST_ENTRIES:
        raise _refused(f"{path} has {len(rows)} entries, not 1 to {_MOST_ENTRIES}")
    yield from rows


def _submission(row: Mapping[str, str], *, track: str, where: str) -> Submission:
    """Return an entry as a submission, in which all that the record does not have is absent."""
    try:
        numbers: dict[str, Any] = {name: float(row[name]) if row[name] else None for name in _NUMBERS}
        source = _Source(source=row["source"])
        seed = SeedResult(
            bits_per_byte=numbers["bits_per_byte"],
            training_seconds=numbers["training_seconds"],
            hardware_flops=numbers["hardware_flops"],
            finished_at=datetime.fromisoformat(row["finished_at"]) if row["finished_at"] else None,
            log=row["log"] or source.source,
        )
        parts: dict[str, Any] = {
            "name": row["run"],
            "track": track,
            "authors": tuple(Author(name=name) for name in row["authors"].split("; ")),
            "data": Data(name=track, trained_tokens=None if numbers["tokens"] is None else int(numbers["tokens"])),
            "model": Model(params_total=int(numbers["params"])),
            "compute": Compute(model_flops=numbers["model_flops"]),
            "evaluation": Evaluation(name=track),
            "seeds": (seed,),
        }
        missing = missing_keys(Submission.model_construct(**parts))
        return Submission(**parts, absent=dict.fromkeys(missing, "not in the public record"))
    except ValidationError as error:
        raise _refused(f"{where}: {explained(error)}") from error
    except (ValueError, TypeError, OverflowError) as error:
        raise _refused(f"{where}: {error}") from error


def _refused(what: str) -> DocumentError:
    return DocumentError(
        f"{what}.",
        why="A public record has one entry a line, with the figures of its source.",
        fix=f"Correct the file. Its first line is {','.join(COLUMNS)}; a cell may be empty.",
    )
