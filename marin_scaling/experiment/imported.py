"""Experiments from the files in which Marin keeps theirs: its Agent-MoE digest, its list of reports, its executor's records.

What a source does not say stays absent; nobody's outcome is guessed. Keys in addresses are taken out, and it is said where.
Nothing is fetched.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from marin_scaling.durable_files import read_bytes
from marin_scaling.errors import DocumentError
from marin_scaling.experiment.agent_moe_digest import digest_lines, digest_table
from marin_scaling.experiment.executor_record import executor_record
from marin_scaling.experiment.experiment import Experiment
from marin_scaling.experiment.report_list import report_list
from marin_scaling.speedrun.submission_file import explained
from marin_scaling.web_links import keys_in_text, text_without_keys

_OF_REPORTS = {"issue", "pull_request", "tracker", "execution"}

Reader = Callable[[str, str], Iterator[dict[str, Any]]]
"""From a file's text and name to the documents in it; `notes` of one are what a person is to be told."""


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
    documents = _read(reader, text, name)
    told = [note for document in documents for note in document.pop("notes", ())]
    found = [_without_keys(document) for document in documents]
    names = [document["name"] for document, _ in found]
    if twice := next((each for each in names if names.count(each) > 1), None):
        raise _refused(f"{name} has {twice} twice")
    taken = [f"{document['name']}: {key} was taken out of an address" for document, keys in found for key in keys]
    return Imported(experiments=tuple(_experiment(document, name) for document, _ in found), notes=(*told, *taken))


def _read(reader: Reader, text: str, name: str) -> list[dict[str, Any]]:
    try:
        found = list(reader(text, name))
    except DocumentError as error:
        raise _refused(error.what.removesuffix(".")) from error
    if not found:
        raise _refused(f"{name} holds no experiments")
    if reader is report_list and not any(each["links"].keys() & _OF_REPORTS for each in found):
        raise _refused(f"{name} is no list of reports: no bullet links an issue, a pull request, a run or an execution")
    return found


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


_READERS: dict[str, Reader] = {
    ".csv": digest_table,
    ".jsonl": digest_lines,
    ".md": report_list,
    ".json": executor_record,
}


def _refused(what: str) -> DocumentError:
    return DocumentError(
        f"{what}.",
        why="Experiments are imported from files whose shape is known.",
        fix="Give Marin's digest (.csv or .jsonl), its list of reports (.md), or a record of its executor (.json).",
    )
