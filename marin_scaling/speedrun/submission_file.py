"""Read and write `submission.json`, a folder for each. A malformed one is refused with file and key; no more is judged."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from marin_scaling.canonical_json import dump_canonical, load_strict
from marin_scaling.durable_files import publish_folder, read_bytes
from marin_scaling.errors import DocumentError, MarinScalingError
from marin_scaling.limits import UNKNOWN_KEYS_NAMED
from marin_scaling.printable import quoted
from marin_scaling.speedrun.submission import Submission
from marin_scaling.text_patterns import PATTERNS

SUBMISSION_NAME = "submission.json"
MAX_SUBMISSION_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Submitted:
    """What lies in one place: a submission, or the reason why there is none."""

    place: Path
    submission: Submission | None
    refusal: str | None = None


def to_bytes(submission: Submission) -> bytes:
    """Canonical bytes; keys without a value are left out."""
    return dump_canonical(submission.model_dump(mode="json", exclude_none=True))


def parse_submission(raw: bytes, *, name: str) -> Submission:
    """The submission in these bytes; `DocumentError` names the first keys that are wrong."""
    if len(raw) > MAX_SUBMISSION_BYTES:
        raise _refusal(name, f"it has {len(raw)} bytes, more than {MAX_SUBMISSION_BYTES}")
    load_strict(raw, name=name)  # no key twice, no NaN
    try:
        return Submission.model_validate_json(raw, strict=True)
    except ValidationError as error:
        raise _refusal(name, explained(error)) from error


def read_submission(path: Path) -> Submission:
    """The submission in a file, or in the `submission.json` of a folder."""
    file = path / SUBMISSION_NAME if path.is_dir() else path
    return parse_submission(read_bytes(file), name=str(file))


def read_submissions(folder: Path) -> list[Submitted]:
    """All `submission.json` below a folder, or the one file, by path; one that is malformed is kept, with the reason.

    `StorageError` where there is no such folder or file.
    """
    if folder.is_dir():
        return [_read(path) for path in sorted(folder.rglob(SUBMISSION_NAME))]
    return [_parsed(folder, read_bytes(folder))]


def write_submission(folder: Path, submission: Submission) -> Path:
    """Publish a new submission in a folder of its own below `folder`; one that is there is never written over."""
    place = folder / submission.name
    publish_folder(place, {SUBMISSION_NAME: to_bytes(submission)})
    return place / SUBMISSION_NAME


def submission_schema() -> dict[str, Any]:
    """The JSON Schema of the format."""
    schema = Submission.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema


def _read(path: Path) -> Submitted:
    try:
        raw = read_bytes(path)
    except MarinScalingError as error:
        return Submitted(place=path, submission=None, refusal=error.what)
    return _parsed(path, raw)


def _parsed(path: Path, raw: bytes) -> Submitted:
    try:
        return Submitted(place=path, submission=parse_submission(raw, name=str(path)))
    except MarinScalingError as error:
        return Submitted(place=path, submission=None, refusal=error.what)


def explained(error: ValidationError, *, with_values: bool = True) -> str:
    """The first keys that are wrong; not those that are only wrong because a part of theirs is.

    Where the file may hold what must not be published, its values are left out (not `with_values`).
    """
    wrong = error.errors(include_url=False)
    above = {each["loc"][:count] for each in wrong for count in range(len(each["loc"]))}
    inner = [each for each in wrong if each["loc"] not in above]
    rest = len(inner) - UNKNOWN_KEYS_NAMED
    more = f"; {rest} more keys are wrong" if rest > 0 else ""
    return "; ".join(_sentence(each, with_value=with_values) for each in inner[:UNKNOWN_KEYS_NAMED]) + more


def _sentence(error: Any, *, with_value: bool) -> str:
    where = quoted(".".join(map(str, error["loc"])) or "the whole")
    if error["type"] in ("missing", "value_error"):
        return f"{where}: {error['msg'].removeprefix('Value error, ')}"
    said = error["msg"]
    if error["type"] == "string_pattern_mismatch":
        said = f"it should be {PATTERNS[error['ctx']['pattern']]}"
    return f"{where}: {said} (it is {json.dumps(error['input'], default=str)[:60]})" if with_value else f"{where}: {said}"


def _refusal(name: str, reason: str) -> DocumentError:
    return DocumentError(
        f"{name} is no submission: {reason}.",
        why="What is not understood cannot be compared with others.",
        fix="Write keys as in the reference of submission files, or let the tool write it: marin-scale speedrun import.",
    )
