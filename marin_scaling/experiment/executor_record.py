"""An experiment from the record that Marin's executor writes of one execution: its steps, what each took, and their settings.

The record says no outcome and no hypothesis. Memory addresses in its names of functions, and the values of settings that
are named as keys are, are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from marin_scaling.canonical_json import load_strict
from marin_scaling.errors import DocumentError
from marin_scaling.experiment.experiment import free_name
from marin_scaling.speedrun.submission_file import explained
from marin_scaling.units import counted
from marin_scaling.web_links import names_secret

_MEMORY = re.compile(r"<function (\S+) at 0x[0-9a-f]+>")
_ASSIGNED = re.compile(r"(\w{0,64}(?:token|key|secret|password))=\S+", re.IGNORECASE)
_REPOSITORY = "https://github.com/marin-community/marin"
LEFT_OUT = "(left out)"
"""What stands for the value of a setting that is named as keys are."""
_NAME_SIGNS = re.compile(r"[^A-Za-z0-9._+-]+")


class _Step(BaseModel):
    """What is read of a step; the executor writes more."""

    name: str
    output_path: str
    fn_name: str | None = None
    description: str | None = None
    config: dict[str, Any] | None = None
    dependencies: list[str] = Field(default_factory=list)


class _Record(BaseModel):
    """What is read of a record."""

    caller_path: str
    steps: list[_Step]
    created_date: str | None = None
    git_commit: str | None = None
    user: str | None = None
    description: str | None = None


def executor_record(text: str, name: str) -> Iterator[dict[str, Any]]:
    """The one experiment in the record."""
    load_strict(text.encode(), name=name)  # no key twice, no NaN
    try:
        record = _Record.model_validate_json(text)
    except ValidationError as error:
        raise DocumentError(
            f"{name} is no record of Marin's executor: {explained(error)}.",
            why="Steps are read as the executor wrote them.",
            fix="Give one of the files experiments/NAME-HASH.json below the executor's prefix.",
        ) from error
    stem, names = name.rpartition("/")[2].removesuffix(".json"), _names(record.steps)
    document = {
        "name": _name(stem),
        "title": (record.description or _below_repository(record.caller_path))[:500],
        "date": record.created_date[:10] if record.created_date else None,
        "authors": [{"name": record.user}] if record.user else None,
        "steps": [_step(step, names) for step in record.steps],
        "configuration": {names[step.output_path]: _settings(step.config or {}) for step in record.steps},
        "code": _code(record),
        "source": f"record of Marin's executor {stem}",
    }
    hidden = json.dumps(document["configuration"]).count(LEFT_OUT)
    notes = [f"{_name(stem)}: {counted(hidden, 'setting')} named as keys are, left out"] if hidden else []
    yield {key: value for key, value in document.items() if value is not None} | {"notes": notes}


def _names(steps: Sequence[_Step]) -> dict[str, str]:
    """A name for each step by where its output lies; of steps with one name the later ones get a number."""
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
    """As they are, but for texts under a name that keys have."""
    if isinstance(value, Mapping):
        return {key: _settings(inner, hidden=hidden or names_secret(str(key))) for key, inner in value.items()}
    if isinstance(value, list):
        return [_settings(inner, hidden=hidden) for inner in value]
    if hidden and isinstance(value, str):
        return LEFT_OUT
    return _ASSIGNED.sub(rf"\1={LEFT_OUT}", _MEMORY.sub(r"\1", value)) if isinstance(value, str) else value


def _name(words: str) -> str:
    parts = [_NAME_SIGNS.sub("-", part).strip("-._+") for part in str(words).split("/")]
    return "/".join(part for part in parts if part)[:180].strip("-._+/") or "step"  # room for a number


def _below_repository(path: str) -> str:
    """Of a path on someone's machine the part in the repository."""
    return path[path.index("experiments/") :] if "experiments/" in path else path.rpartition("/")[2]
