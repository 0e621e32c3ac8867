"""Which changes of a signed document are its signer's to make, so that a verifier may accept them: a rule fixed beforehand.

All else that a signed file says follows from other files, is fixed, or is bound by a digest: to change it is to say something
else, which must be refused however well it is signed. Numbers count as equal to nine digits.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from registration_factory import CREATED_AT, forecast_document, target_spec

SAME = "the same content in another order, or numbers to 9 digits"
WORDS = "words of the registrant"
TOOL = "what the tool says of itself"
OWN = "what this file alone says; the fit or the run shows it"
AUTHORS = "words of who gave the notice"
SEALERS = "words of who sealed it"
CLOCK = "the writer's clock and order"
FOUR_YEARS = timedelta(days=4 * 366)
RUNGS_DONE = datetime(2026, 11, 19, 11, tzinfo=UTC)
"""When the last rung of the factory's ladder had ended."""

ALLOWED: Mapping[str, Mapping[str, str]] = {
    "statement.json": {
        "predicate.assumptions": WORDS,
        "predicate.createdAt": WORDS,
        "predicate.fit.ladderRule": WORDS,
        "predicate.knowledge.relatedRunsSeen": WORDS,
        "predicate.recipe.knownDifferencesFromLadder": WORDS,
        "predicate.resolution.due": WORDS,
        "predicate.resolution.resolver": WORDS,
        "predicate.resolution.voidIf": WORDS,
        "predicate.reviewers": WORDS,
        "predicate.targetRun.tolerance": WORDS,
        "predicate.targetRun.uid": WORDS,
        "predicate.tool.version": TOOL,
        "predicate.tool.versions": TOOL,
    },
    "amendment.json": {
        "predicate.createdAt": WORDS,
        "predicate.fit.ladderRule": WORDS,
        "predicate.knowledge.targetRunStepsSeen": WORDS,
        "predicate.reason": WORDS,
        "predicate.tool.version": TOOL,
        "predicate.tool.versions": TOOL,
    },
    "evaluation.json": {},
    "forecast.json": {"beside": OWN},
    "ladder.json": {"rows[].epochs": OWN},
    "recipe.json": {"beside": OWN},
    "samples.json": {"between": OWN},
    "target.json": {"seed": OWN},
    "outcome.json": {"checked_at": TOOL, "tool.version": TOOL},
    "notice.json": {name: AUTHORS for name in ("at", "evidence", "from_step", "reason", "target_steps_seen")},
    "seal.json": {"at": SEALERS, "commitment": SEALERS, "reveal_by": SEALERS},
    "seal.json, opened": {"at": SEALERS, "reveal_by": SEALERS},
    "opening.json": {},
    "log.jsonl": {"order": CLOCK},
}
"""File to the keys (and all below them) that may differ, and whose business they are."""

_ABSENT = object()
_TARGET_FLOPS = target_spec().flops
_QUANTILES = {float(level): value for level, value in forecast_document()["predictions"][0]["quantiles"].items()}
_WIDTH = _QUANTILES[0.95] - _QUANTILES[0.05]
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?Z")


def why_allowed(name: str, before: Any, after: Any) -> str | None:
    """Why a verifier may accept `after` in the place of `before`, the content of such a file; None where it must not."""
    if not _SOUND.get(name, _nothing_more)(after):
        return None
    reader = _READ_AS.get(name, _as_it_is)
    found = {_reason(name, at) for at in differences(reader(before), reader(after))}
    return None if None in found else ", ".join(sorted(reason for reason in found if reason)) or SAME


def differences(before: Any, after: Any, at: str = "") -> Iterator[str]:
    """The keys at which two documents differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before.keys() | after.keys():
            yield from differences(before.get(key, _ABSENT), after.get(key, _ABSENT), f"{at}.{key}" if at else str(key))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for pair in zip(before, after, strict=True):
            yield from differences(*pair, f"{at}[]")
    elif not _equal(before, after):
        yield at


def moment(text: str) -> datetime | None:
    """A time as the files write it; None where it is none."""
    try:
        return datetime.fromisoformat(text) if _MOMENT.fullmatch(text) else None
    except ValueError:
        return None


def _equal(before: Any, after: Any) -> bool:
    numbers = [value for value in (before, after) if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) == 2 and all(abs(number) < sys.float_info.max for number in numbers):
        return math.isclose(*numbers, rel_tol=1e-9, abs_tol=0.0)
    return type(before) is type(after) and bool(before == after)


def _reason(name: str, at: str) -> str | None:
    for allowed, why in ALLOWED[name].items():
        if at == allowed or at.startswith((f"{allowed}.", f"{allowed}[")):
            return why
    return None


def _statement_as_read(document: Any) -> Any:
    """Subjects by name: their order says nothing; their digests are put right by who signs again."""
    return {**document, "subject": sorted(each["name"] for each in document["subject"])}


def _forecast_as_read(document: Any) -> Any:
    """What a statement repeats, and `beside` it the rest: other predictions, other keys."""
    said = ("law", "parameters", "seed", "metric", "excluded", "warnings", "backtest")
    told = ("median", "bands", "sensitivity")
    (target,) = [each for each in document["predictions"] if math.isclose(each["flops"], _TARGET_FLOPS, rel_tol=2e-6)]
    quantiles = [(float(level), value) for level, value in sorted(target["quantiles"].items(), key=lambda pair: float(pair[0]))]
    repeated = {key: document[key] for key in said} | {key: target[key] for key in told}
    return {**repeated, "quantiles": [list(pair) for pair in quantiles], "fixed": document.get("fixed", {}), "beside": document}


def _ladder_as_read(document: Any) -> Any:
    """Rows by the run that they name, which sixteen signs of its digest do; their order says nothing without a fit."""
    rows = [{**row, "run": row["run"][:16]} for row in document["rows"]]
    return {**document, "rows": sorted(rows, key=lambda row: str(row["run"]))}


def _recipe_as_read(document: Any) -> Any:
    """The recipe's name, and what it says of numbers that the target has; formulas, sources and constants are its own."""
    others = [each["value"] for each in document["numbers"] if each["name"] == "batch_size" and not _equal(each["value"], 8)]
    return {"recipe": document["recipe"], "other batch sizes": others, "beside": document}


def _samples_as_read(document: Any) -> Any:
    return {**{key: value for key, value in document.items() if key != "losses"}, "between": document["losses"]}


def _log_as_read(lines: Any) -> Any:
    """What came in, whenever; numbers and chain follow from the order."""
    said = sorted(({key: line[key] for key in ("type", "id", "files")} for line in lines), key=repr)
    return {"lines": said, "order": lines}


def _statement_is_sound(document: Any) -> bool:
    created, due = moment(document["predicate"]["createdAt"]), moment(document["predicate"]["resolution"]["due"])
    if created is None or due is None:
        return False
    ids = [each["id"] for each in document["predicate"]["assumptions"]]
    numbered = all(re.fullmatch("A[0-9]{1,3}", each) for each in ids) and len(set(ids)) == len(ids)
    return numbered and created.date() == CREATED_AT.date() and RUNGS_DONE <= created < due


def _amendment_is_sound(document: Any) -> bool:
    created, seen = moment(document["predicate"]["createdAt"]), document["predicate"]["knowledge"]["targetRunStepsSeen"]
    is_count = isinstance(seen, int) and 0 <= seen < target_spec().train_steps
    return created is not None and created > CREATED_AT and is_count and bool(document["predicate"]["reason"])


def _ladder_is_sound(document: Any) -> bool:
    names = [row["run"][:16] for row in document["rows"]]
    return len(set(names)) == len(names)


def _samples_are_sound(document: Any) -> bool:
    """A thousand that rise and have the quantiles of the factory's normal forecast, to 5 % of its 90 % interval."""
    losses = document["losses"]
    near = all(abs(losses[int(level * 1000)] - value) <= 0.0502 * _WIDTH for level, value in _QUANTILES.items())
    return len(losses) == 1000 and losses == sorted(losses) and near


def _outcome_is_sound(document: Any) -> bool:
    return moment(document["checked_at"]) is not None


def _seal_is_sound(document: Any) -> bool:
    given, until = moment(document["at"]), moment(document["reveal_by"])
    has_term = given is not None and until is not None and given < until <= given + FOUR_YEARS
    return has_term and re.fullmatch("[0-9a-f]{64}", document["commitment"]) is not None


def _opened_seal_is_sound(document: Any) -> bool:
    given = moment(document["at"])
    return _seal_is_sound(document) and given is not None and given >= CREATED_AT


def _notice_is_sound(document: Any) -> bool:
    given = moment(document["at"])
    return given is not None and given >= CREATED_AT and bool(document["reason"])


def _log_is_sound(lines: Any) -> bool:
    times = [moment(line["logged_at"]) for line in lines]
    known = [time for time in times if time is not None]
    rising = all(one <= other for one, other in pairwise(known))
    return len(known) == len(times) and rising and known[0] >= CREATED_AT - timedelta(minutes=10)


def _nothing_more(_: Any) -> bool:
    return True


def _as_it_is(document: Any) -> Any:
    return document


_READ_AS: Mapping[str, Callable[[Any], Any]] = {
    "amendment.json": _statement_as_read,
    "statement.json": _statement_as_read,
    "forecast.json": _forecast_as_read,
    "ladder.json": _ladder_as_read,
    "recipe.json": _recipe_as_read,
    "samples.json": _samples_as_read,
    "log.jsonl": _log_as_read,
}
_SOUND: Mapping[str, Callable[[Any], bool]] = {
    "amendment.json": _amendment_is_sound,
    "statement.json": _statement_is_sound,
    "ladder.json": _ladder_is_sound,
    "samples.json": _samples_are_sound,
    "outcome.json": _outcome_is_sound,
    "notice.json": _notice_is_sound,
    "seal.json": _seal_is_sound,
    "seal.json, opened": _opened_seal_is_sound,
    "log.jsonl": _log_is_sound,
}
