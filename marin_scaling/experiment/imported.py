"""Experiments from the files in which Marin keeps theirs: its Agent-MoE digest, its list of reports, its executor's records.

What a source does not say stays absent; nobody's outcome is guessed. Keys in addresses are taken out, and it is said where.
Nothing is fetched.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from marin_scaling.canonical_json import load_strict
from marin_scaling.durable_files import read_bytes
from marin_scaling.errors import DocumentError
from marin_scaling.experiment.executor_record import executor_record
from marin_scaling.experiment.experiment import Experiment, Outcome
from marin_scaling.experiment.report_list import report_list
from marin_scaling.speedrun.submission_file import explained
from marin_scaling.web_links import keys_in_text, text_without_keys

_MARIN = "marin-community/marin"
_OUTCOMES = {outcome.replace("-", " "): outcome for outcome in Outcome}
_SPEEDUPS = {"model_flops_speedup": "speedup in model FLOPs", "wall_clock_speedup": "speedup in time"}
_RANGE = re.compile(r"≈?(\d+(?:\.\d+)?)(?:[–-](\d+(?:\.\d+)?))?x")
_NOTHING = ("", "—")


@dataclass(frozen=True, kw_only=True)
class Imported:
    """The experiments in a file, and what was taken out of them."""

    experiments: tuple[Experiment, ...]
    notes: tuple[str, ...]


def import_experiments(path: Path) -> Imported:
    """The experiments in one of Marin's files; `DocumentError` where it is none of them."""
    raw, name = read_bytes(path), str(path)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _refused(f"{name} is not text in UTF-8 (byte {error.start})") from error
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise _refused(f"{name}: files that end in {path.suffix or 'nothing'!r} are not read")
    found = [_without_keys(document) for document in reader(text, name)]
    names = [document["name"] for document, _ in found]
    if not found:
        raise _refused(f"{name} holds no experiments")
    if twice := next((each for each in names if names.count(each) > 1), None):
        raise _refused(f"{name} has {twice} twice")
    notes = tuple(f"{document['name']}: {key} was taken out of an address" for document, keys in found for key in keys)
    return Imported(experiments=tuple(_experiment(document, name) for document, _ in found), notes=notes)


def _experiment(document: Mapping[str, Any], name: str) -> Experiment:
    try:
        return Experiment.model_validate_json(json.dumps(document))
    except ValidationError as error:
        raise _refused(f"{name}: of {document.get('name')!r}, {explained(error)}") from error


def _without_keys(document: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    taken: list[str] = []

    def cleaned(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: cleaned(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [cleaned(inner) for inner in value]
        if isinstance(value, str) and (keys := keys_in_text(value)):
            taken.extend(keys)
            return text_without_keys(value)
        return value

    return cleaned(document), taken


# --- the Agent-MoE digest: a table, or lines of JSON --------------------------------------------------------------------------


def _digest_table(text: str, name: str) -> Iterator[dict[str, Any]]:
    for row in _rows(text, name):
        speedups = {
            "model_flops_speedup": row.get("model_flops_speedup_text"),
            "wall_clock_speedup": row.get("wallclock_speedup_text"),
        }
        yield _of_digest(
            {"issue": row["issue"], "title": row["experiment"], "outcome": row["outcome"], **speedups},
            repository=_MARIN,
            source=row.get("source") or name.rpartition("/")[2],
            reconstructed=row.get("model_flops_value_is_reconstructed") == "yes",
        )


def _rows(text: str, name: str) -> list[dict[str, str]]:
    try:
        reader = csv.DictReader(io.StringIO(text))
        rows, columns = list(reader), set(reader.fieldnames or ())
    except csv.Error as error:
        raise _refused(f"{name} is not a CSV table: {error}") from error
    if not {"issue", "experiment", "outcome"} <= columns:
        raise _refused(f"{name} has no columns issue, experiment and outcome")
    return rows


def _digest_lines(text: str, name: str) -> Iterator[dict[str, Any]]:
    lines = [load_strict(line.encode(), name=f"{name}, line {number}") for number, line in _numbered(text)]
    if not lines or not all(isinstance(line, dict) and "record_type" in line for line in lines):
        raise _refused(f"{name} has lines without a record_type")
    head: dict[str, Any] = next((line for line in lines if line["record_type"] == "metadata"), {})
    repository, source = str(head.get("repository", _MARIN)), f"Agent-MoE digest of {head.get('snapshot_date', 'no date')}"
    for line in lines:
        if line["record_type"] == "experiment":
            yield _of_digest(line, repository=repository, source=source)


def _numbered(text: str) -> Iterator[tuple[int, str]]:
    return ((number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip())


def _of_digest(row: Mapping[str, Any], *, repository: str, source: str, reconstructed: bool = False) -> dict[str, Any]:
    title, issue = row.get("title"), row.get("issue")
    outcome = _OUTCOMES.get(str(row.get("outcome")).lower())
    if outcome is None or not title or not str(issue).isdigit():
        raise _refused(f"{source}: a row has the issue {issue!r}, the title {title!r} and the outcome {row.get('outcome')!r}")
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


_READERS: dict[str, Callable[[str, str], Iterator[dict[str, Any]]]] = {
    ".csv": _digest_table,
    ".jsonl": _digest_lines,
    ".md": report_list,
    ".json": executor_record,
}


def _refused(what: str) -> DocumentError:
    return DocumentError(
        f"{what}.",
        why="Experiments are imported from files whose shape is known.",
        fix="Give Marin's digest (.csv or .jsonl), its list of reports (.md), or a record of its executor (.json).",
    )
