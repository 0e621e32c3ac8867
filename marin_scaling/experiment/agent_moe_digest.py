"""The digest of Marin's Agent-MoE experiments, as a table (CSV) or as lines of JSON: what was tried, its outcome, its speedups.

Ranges such as `1.07–1.20x` are read as numbers and kept as words. What does not follow from the row is not filled in.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping
from typing import Any

from marin_scaling.canonical_json import load_strict
from marin_scaling.errors import DocumentError
from marin_scaling.experiment.experiment import Outcome

_MARIN = "marin-community/marin"
_OUTCOMES = {outcome.replace("-", " "): outcome for outcome in Outcome}
_SPEEDUPS = {"model_flops_speedup": "speedup in model FLOPs", "wall_clock_speedup": "speedup in time"}
_RANGE = re.compile(r"≈?(\d+(?:\.\d+)?)(?:[–-](\d+(?:\.\d+)?))?x")
_NOTHING = ("", "—")
_SPEEDUP_COLUMNS = {"model_flops_speedup": "model_flops_speedup", "wall_clock_speedup": "wallclock_speedup"}
_COLUMNS = {
    *("issue", "experiment", "outcome", "source", "model_flops_value_is_reconstructed"),
    *(f"{column}_{end}" for column in _SPEEDUP_COLUMNS.values() for end in ("text", "low_x", "high_x")),
}


def digest_table(text: str, name: str) -> Iterator[dict[str, Any]]:
    """A document for each row of the table; `notes` of one are what a person is to be told."""
    for number, (line, row) in enumerate(_rows(text, name)):
        speedups = {key: row.get(f"{column}_text") for key, column in _SPEEDUP_COLUMNS.items()}
        document = _of_digest(
            {"issue": row["issue"], "title": row["experiment"], "outcome": row["outcome"], **speedups},
            where=f"{name}, line {line}",
            repository=_MARIN,
            source=row.get("source") or name.rpartition("/")[2],
            reconstructed=row.get("model_flops_value_is_reconstructed") == "yes",
        )
        if None in row:
            raise _refused(f"{name}, line {line}: it has more cells than there are columns")
        unread = [] if number else [f"the column {each} is not read" for each in sorted(row.keys() - _COLUMNS)]
        yield document | {"notes": [*unread, *_contradictions(document, row)]}


def _contradictions(document: Mapping[str, Any], row: Mapping[str, str]) -> Iterator[str]:
    """Where a row's words give another range than its columns of numbers."""
    for column in _SPEEDUP_COLUMNS.values():
        match = _RANGE.fullmatch(row.get(f"{column}_text") or "")
        said = (match[1], match[2] or match[1]) if match else (None, None)
        for end, bound in zip(("low_x", "high_x"), said, strict=True):
            cell = row.get(f"{column}_{end}")
            if cell and bound is None and row.get(f"{column}_text", "") in _NOTHING:
                yield f"{document['name']}: {column}_{end}, {cell}, is left out: {column}_text is empty"
            elif cell and bound is not None and not _is_number(cell, float(bound)):
                yield f"{document['name']}: {column}_{end} is {cell}, its words say {bound}, and they are taken"


def _is_number(cell: str, number: float) -> bool:
    try:
        return float(cell) == number
    except ValueError:
        return False


def _rows(text: str, name: str) -> list[tuple[int, dict[str, str]]]:
    try:
        reader = csv.DictReader(io.StringIO(text))
        rows = [(reader.line_num, row) for row in reader]
        columns = set(reader.fieldnames or ())
    except csv.Error as error:
        raise _refused(f"{name} is not a CSV table: {error}") from error
    if not {"issue", "experiment", "outcome"} <= columns:
        raise _refused(f"{name} has no columns issue, experiment and outcome")
    return rows


def digest_lines(text: str, name: str) -> Iterator[dict[str, Any]]:
    """A document for each line that is an experiment."""
    lines = [load_strict(line.encode(), name=f"{name}, line {number}") for number, line in _numbered(text)]
    if not lines or not all(isinstance(line, dict) and "record_type" in line for line in lines):
        raise _refused(f"{name} has lines without a record_type (one of metadata, experiment, foundation)")
    head: dict[str, Any] = next((line for line in lines if line["record_type"] == "metadata"), {})
    repository, source = str(head.get("repository", _MARIN)), f"Agent-MoE digest of {head.get('snapshot_date', 'no date')}"
    for (number, _), line in zip(_numbered(text), lines, strict=True):
        if line["record_type"] == "experiment":
            yield _of_digest(line, where=f"{name}, line {number}", repository=repository, source=source)


def _numbered(text: str) -> Iterator[tuple[int, str]]:
    return ((number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip())


def _of_digest(
    row: Mapping[str, Any], *, where: str, repository: str, source: str, reconstructed: bool = False
) -> dict[str, Any]:
    title, issue, outcome = row.get("title"), row.get("issue"), _OUTCOMES.get(str(row.get("outcome")).lower())
    if outcome is None:
        raise _refused(f"{where}: the outcome {row.get('outcome')!r} is none of {', '.join(_OUTCOMES)}")
    if not title:
        raise _refused(f"{where}: it has no title")
    if not str(issue).isdigit():
        raise _refused(f"{where}: the issue {issue!r} is no number")
    metrics = [_speedup(name, row.get(key), reconstructed and key == "model_flops_speedup") for key, name in _SPEEDUPS.items()]
    document = {
        "name": f"agent-moe-{issue}",
        "title": title,
        "outcome": outcome,
        "topics": ["mixture of experts", *(row[key] for key in ("category", "section") if row.get(key))],
        "hypothesis": row.get("rationale"),
        "conclusion": row.get("summary"),
        "metrics": [metric for metric in metrics if metric],
        "links": {"issue": f"https://github.com/{repository}/issues/{issue}"},
        "source": source,
    }
    return {key: value for key, value in document.items() if value not in (None, [])}


def _speedup(name: str, said: Any, reconstructed: bool) -> dict[str, Any] | None:
    if said is None or said in _NOTHING:
        return None
    metric: dict[str, Any] = {"name": f"{name}, reconstructed" if reconstructed else name, "unit": "x", "said": said}
    if match := _RANGE.fullmatch(str(said)):
        low, high = float(match[1]), float(match[2] or match[1])
        metric |= {"value": low} if match[2] is None else {"low": low, "high": high}
    return metric


def _refused(what: str) -> DocumentError:
    return DocumentError(
        f"{what}.",
        why="Rows are read as the digest has them, none is guessed.",
        fix="Correct the row, or give the digest as Marin publishes it.",
    )
