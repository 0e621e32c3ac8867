"""Import Marin's experiments: reports, executor records, agent digests."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from marin_scaling.canonical_json import load_strict
from marin_scaling.errors import DocumentError
from marin_scaling.experiment.experiment import Experiment, Outcome, free_name
from marin_scaling.files import read_bytes
from marin_scaling.strict_model import fault_text
from marin_scaling.units import counted
from marin_scaling.untrusted_text import keys_in_text, names_secret, text_without_keys

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
    """Yield a document for each row of the table; its `notes` are shown to the user."""
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
            raise _refused(f"{name}, line {line}: more cells than columns")
        unread = [] if number else [f"column {each} is not read" for each in sorted(row.keys() - _COLUMNS)]
        yield document | {"notes": [*unread, *_contradictions(document, row)]}


def _contradictions(document: Mapping[str, Any], row: Mapping[str, str]) -> Iterator[str]:
    """Yield notes if a row's text and its numeric columns differ."""
    for column in _SPEEDUP_COLUMNS.values():
        match = _RANGE.fullmatch(row.get(f"{column}_text") or "")
        said = (match[1], match[2] or match[1]) if match else (None, None)
        for end, bound in zip(("low_x", "high_x"), said, strict=True):
            cell = row.get(f"{column}_{end}")
            if cell and bound is None and row.get(f"{column}_text", "") in _NOTHING:
                yield f"{document['name']}: {column}_{end}, {cell}, is skipped because {column}_text is empty"
            elif cell and bound is not None and not _is_number(cell, float(bound)):
                yield f"{document['name']}: {column}_{end} is {cell}, but {column}_text has {bound}; the text is used"


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
        raise _refused(f"{name} lacks one of the columns issue, experiment and outcome")
    return rows


def digest_lines(text: str, name: str) -> Iterator[dict[str, Any]]:
    """Yield a document for each line that is an experiment."""
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
        raise _refused(f"{where}: unknown outcome {row.get('outcome')!r}; outcomes: {', '.join(_OUTCOMES)}")
    if not title:
        raise _refused(f"{where}: the title is missing")
    if not str(issue).isdigit():
        raise _refused(f"{where}: the issue {issue!r} is not a number")
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


_MEMORY = re.compile(r"<function (\S+) at 0x[0-9a-f]+>")
_ASSIGNED = re.compile(r"(\w{0,64}(?:token|key|secret|password))=\S+", re.IGNORECASE)
_REPOSITORY = "https://github.com/marin-community/marin"
LEFT_OUT = "(left out)"
"""Placeholder for the value of a setting whose name suggests a secret."""
_NAME_SIGNS = re.compile(r"[^A-Za-z0-9._+-]+")


class _Step(BaseModel):
    """Fields that are read from a step."""

    name: str
    output_path: str
    fn_name: str | None = None
    description: str | None = None
    config: dict[str, Any] | None = None
    dependencies: list[str] = Field(default_factory=list)


class _Record(BaseModel):
    """Fields that are read from a record."""

    caller_path: str
    steps: list[_Step]
    created_date: str | None = None
    git_commit: str | None = None
    user: str | None = None
    description: str | None = None


def executor_record(text: str, name: str) -> Iterator[dict[str, Any]]:
    """Yield the one experiment in the record."""
    document = load_strict(text.encode(), name=name)
    try:
        record = _Record.model_validate_json(text)
    except ValidationError as error:
        raise _refused(f"{name} is not a record of Marin's executor: {fault_text(error, document)}") from error
    stem, names = name.rpartition("/")[2].removesuffix(".json"), _names(record.steps)
    document = {
        "name": _name(stem),
        "title": (record.description or _below_repository(record.caller_path))[:500],
        "date": record.created_date[:10] if record.created_date else None,
        "authors": [{"name": record.user}] if record.user else None,
        "steps": [_step(step, names) for step in record.steps],
        "configuration": {names[step.output_path]: _settings(step.config or {}) for step in record.steps},
        "code": _code(record),
        "source": f"Marin executor record {stem}",
    }
    hidden = json.dumps(document["configuration"]).count(LEFT_OUT)
    notes = [f"{_name(stem)}: {counted(hidden, 'setting')} with names of secrets removed"] if hidden else []
    yield {key: value for key, value in document.items() if value is not None} | {"notes": notes}


def _names(steps: Sequence[_Step]) -> dict[str, str]:
    """Return a unique name for each step, by the path of its output."""
    found: dict[str, str] = {}
    for step in steps:
        found.setdefault(step.output_path, free_name(_name(step.name), found.values()))
    return found


def _code(record: _Record) -> dict[str, Any] | None:
    if not record.git_commit:
        return None
    return {"repository": _REPOSITORY, "commit": record.git_commit, "path": _below_repository(record.caller_path)}


def _step(step: _Step, names: Mapping[str, str]) -> dict[str, Any]:
    what = step.description or _MEMORY.sub(r"\1", step.fn_name or "")
    document = {
        "name": names[step.output_path],
        "what": " ".join(what.split())[:500] or None,
        "inputs": list(dict.fromkeys(names[path] for path in step.dependencies if path in names)),
        "data": [path[:500] for path in step.dependencies if path not in names],
        "output": step.output_path[:500],
    }
    return {key: value for key, value in document.items() if value is not None}


def _settings(value: Any, *, hidden: bool = False) -> Any:
    """Return the settings without texts whose name suggests a secret."""
    if isinstance(value, Mapping):
        return {key: _settings(inner, hidden=hidden or names_secret(str(key))) for key, inner in value.items()}
    if isinstance(value, list):
        return [_settings(inner, hidden=hidden) for inner in value]
    if hidden and isinstance(value, str):
        return LEFT_OUT
    return _ASSIGNED.sub(rf"\1={LEFT_OUT}", _MEMORY.sub(r"\1", value)) if isinstance(value, str) else value


def _name(words: str) -> str:
    parts = [_NAME_SIGNS.sub("-", part).strip("-._+") for part in str(words).split("/")]
    return "/".join(part for part in parts if part)[:180].strip("-._+/") or "step"  # leave room for a number


def _below_repository(path: str) -> str:
    """Return the part of a path that lies in the repository."""
    return path[path.index("experiments/") :] if "experiments/" in path else path.rpartition("/")[2]


_HEADING = re.compile(r"(#{2,6})\s+(.*?)\s*")
_BULLET = re.compile(r"(\s*)[-*]\s+(.*)")
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]*(?:\([^()\s]*\)[^()\s]*)*)\)")
_BADGE = re.compile(r"\[?!\[[^\]]*\]\([^)]*\)(?:\]\([^)]*\))?")
_ISSUE = re.compile(r"https://github\.com/[\w.-]+/[\w.-]+/issues/(\d+)")
_CONCLUSION = re.compile(r"conclusion:\s*(.+)", re.IGNORECASE)
_KINDS = (
    ("execution", "data_browser"),
    ("tracker", "wandb"),
    ("pull_request", "/pull/"),
    ("data", "huggingface.co/datasets/"),
    ("models", "huggingface.co/"),
)
_MANY = ("tracker", "data", "models", "other")


def report_list(text: str, name: str) -> Iterator[dict[str, Any]]:
    """Yield a document for each experiment in the list, in order."""
    found: dict[str, dict[str, Any]] = {}
    for topics, title, below in _items(text):
        document = _document(topics, title, below, source=f"list of reports {name.rpartition('/')[2]}")
        if "issue" not in document["links"]:
            document["name"] = free_name(document["name"], found)
        found[document["name"]] = _merged(found.get(document["name"]), document)
    yield from found.values()


def _items(text: str) -> Iterator[tuple[list[str], str, list[str]]]:
    """Yield the section headings, each top-level bullet, and the bullets below it."""
    headings: dict[int, str] = {}
    item: tuple[list[str], str, list[str]] | None = None
    for line in text.splitlines():
        if match := _HEADING.fullmatch(line):
            if item:
                yield item
            item = None
            level = len(match[1])
            headings = {depth: words for depth, words in headings.items() if depth < level} | {level: _plain(match[2])}
        elif match := _BULLET.fullmatch(line):
            if match[1] and item:
                item[2].append(match[2])
                continue
            if item:
                yield item
            item = ([headings[level] for level in sorted(headings)], match[2], [])
        elif item and line.strip() and line[0].isspace():
            item = _continued(item, line.strip())
    if item:
        yield item


def _continued(item: tuple[list[str], str, list[str]], words: str) -> tuple[list[str], str, list[str]]:
    """Return the item with a continuation line of its last bullet."""
    headings, title, below = item
    if not below:
        return headings, f"{title} {words}", []
    return headings, title, [*below[:-1], f"{below[-1]} {words}"]


def _document(topics: list[str], title: str, below: list[str], *, source: str) -> dict[str, Any]:
    addresses = [address for line in (title, *below) for _, address in _LINK.findall(line)]
    links = _links(addresses + [match[0] for match in _ISSUE.finditer(title)])
    words = _plain(_BADGE.sub("", title)) or "without a title"
    issue = _ISSUE.match(links.get("issue", ""))
    said = [match[1] for line in below if (match := _CONCLUSION.fullmatch(_plain(line)))]
    slug = issue[1] if issue else re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")[:80] or "none"
    name = f"marin-report-{slug}"
    document = {
        "name": name,
        "title": words[:500],
        "topics": topics,
        "conclusion": " ".join(said) or None,
        "links": links,
        "source": source,
        "notes": [f"{name}: skipped {each}, which is not a web address" for each in addresses if not _is_address(each)],
    }
    return {key: value for key, value in document.items() if value is not None}


def _is_address(words: str) -> bool:
    return re.match(r"https?://", words) is not None


def _links(addresses: list[str]) -> dict[str, Any]:
    links: dict[str, Any] = {}
    for address in dict.fromkeys(filter(_is_address, addresses)):
        kind = "issue" if _ISSUE.match(address) else next((kind for kind, part in _KINDS if part in address), "other")
        if kind in _MANY:
            links.setdefault(kind, []).append(address)
        elif kind in links and links[kind] != address:
            links.setdefault("other", []).append(address)
        else:
            links[kind] = address
    return links


def _merged(first: dict[str, Any] | None, second: dict[str, Any]) -> dict[str, Any]:
    if first is None:
        return second
    known = [kind for document in (first, second) for kind in document["links"].values()]
    links = _links([each for kind in known for each in ([kind] if isinstance(kind, str) else kind)])
    topics = list(dict.fromkeys([*first["topics"], *second["topics"]]))
    notes = [*first["notes"], *second["notes"]]
    said = "\n\n".join(dict.fromkeys(each["conclusion"] for each in (first, second) if "conclusion" in each))
    merged = {**second, **first, "links": links, "topics": topics, "notes": notes}
    return merged | ({"conclusion": said} if said else {})


def _plain(words: str) -> str:
    return " ".join(re.sub(r"\\(?=[\[\]*_`])", "", _LINK.sub(lambda match: match[1], words)).split())


_OF_REPORTS = {"issue", "pull_request", "tracker", "execution"}

Reader = Callable[[str, str], Iterator[dict[str, Any]]]
"""Function from a file's text and name to its documents; their `notes` are shown to the user."""


@dataclass(frozen=True, kw_only=True)
class Imported:
    """Experiments in a file, with notes on removed content."""

    experiments: tuple[Experiment, ...]
    notes: tuple[str, ...]


def import_experiments(path: Path) -> Imported:
    """Import the experiments in one of Marin's files; `DocumentError` for any other file."""
    raw, name = read_bytes(path), str(path)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _refused(f"{name} is not UTF-8 text (byte {error.start})") from error
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise _refused(f"{name}: files with suffix {path.suffix!r} are not read")
    documents = _read(reader, text, name)
    told = [note for document in documents for note in document.pop("notes", ())]
    found = [_without_keys(document) for document in documents]
    names = [document["name"] for document, _ in found]
    if twice := next((each for each in names if names.count(each) > 1), None):
        raise _refused(f"{name} has a duplicate name, {twice}")
    taken = [f"{document['name']}: {key} was removed from a web address" for document, keys in found for key in keys]
    return Imported(experiments=tuple(_experiment(document, name) for document, _ in found), notes=(*told, *taken))


def _read(reader: Reader, text: str, name: str) -> list[dict[str, Any]]:
    try:
        found = list(reader(text, name))
    except DocumentError as error:
        raise _refused(error.what.removesuffix(".")) from error
    if not found:
        raise _refused(f"{name} has no experiments")
    if reader is report_list and not any(each["links"].keys() & _OF_REPORTS for each in found):
        raise _refused(f"{name} is not a list of reports: no bullet links an issue, pull request, run or execution")
    return found


def _experiment(document: Mapping[str, Any], name: str) -> Experiment:
    try:
        return Experiment.model_validate_json(json.dumps(document))
    except ValidationError as error:
        raise _refused(f"{name}: {document.get('name')!r}: {fault_text(error, document)}") from error


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
        why="The importer reads three formats of Marin, and does not guess.",
        fix="Use Marin's digest (.csv or .jsonl), list of reports (.md) or executor record (.json).",
    )
