"""The statement: what is promised about a run that has not been trained, as an in-toto Statement with our predicate.

Canonical JSON, so that the bytes are unique and a person can read them; the keys follow in-toto's lowerCamelCase. The exact
ladder, the whole fit and the target lie beside it and stand in it by digest. Signing and storing are done elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from marin_scaling.canonical_json import dump_canonical, load_canonical, sha256_hex
from marin_scaling.preregistration.allowed_signers import compared_name
from marin_scaling.preregistration.derivation import derived_fields, refuse, require_samples_of, sorted_quantiles
from marin_scaling.preregistration.document_shape import check_shape
from marin_scaling.preregistration.statement_format import DECLARATION, LEVELS, METRICS, STATEMENT_TYPE
from marin_scaling.preregistration.version_0_2 import IF_OVERDUE
from marin_scaling.preregistration.versions import LATEST, VERSION_0_1, VERSION_0_1_ENDED, FormatVersion, version_of

LONGEST_TERM = timedelta(days=4 * 366)
"""Longest time from a statement to the day on which its run is due: four years, as for a seal. A later day is never due."""


MOST_TOLERANCE = 0.01
"""Largest share by which the FLOPs or tokens of a run may differ from what was promised."""
_LEAST_DIGITS = 5
"""Of 32 random hexadecimal digits fewer than five kinds come once in 10^16 times."""


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A statement that was read: its exact bytes and what they say."""

    raw: bytes
    document: dict[str, Any]
    version: FormatVersion

    @property
    def predicate(self) -> dict[str, Any]:
        """The promise itself."""
        predicate: dict[str, Any] = self.document["predicate"]
        return predicate

    @property
    def sha256(self) -> str:
        """Digest of the exact bytes: what the run carries."""
        return sha256_hex(self.raw)

    @property
    def created_at(self) -> datetime:
        """When the registrant says it was made (UTC)."""
        return parse_moment(self.predicate["createdAt"])

    @property
    def due(self) -> datetime | None:
        """Until when its run must be there (UTC); the first format said nothing of it."""
        resolution = self.predicate.get("resolution")
        return parse_moment(resolution["due"]) if resolution else None

    def is_overdue(self, *, at: datetime) -> bool:
        """Whether its run should have been there at that time."""
        return self.due is not None and at > self.due

    @property
    def quantiles(self) -> dict[float, float]:
        """Level to value, in the metric's unit, by level."""
        return sorted_quantiles(self.predicate["forecast"]["quantiles"])

    @property
    def subjects(self) -> dict[str, str]:
        """File name to SHA-256 digest."""
        return {subject["name"]: subject["digest"]["sha256"] for subject in self.document["subject"]}


def build_statement(
    files: Mapping[str, bytes],
    *,
    registration_id: str,
    registrant: str,
    created_at: datetime,
    tool: Mapping[str, Any],
    declared: Mapping[str, Any],
) -> Statement:
    """The statement about the subjects in `files` (name to canonical bytes), in the newest format.

    `declared` holds what only the registrant can say, grouped as it stands in the predicate; all else is taken from the files.
    `StatementError` when they do not carry a promise: the target is not larger than the ladder, the metric differs, or there
    are no 23 increasing quantiles at the target's FLOPs.
    """
    documents = {name: read_subject(files[name], name=name, path=name, version=LATEST) for name in LATEST.subject_names}
    predicate: dict[str, Any] = {
        "id": registration_id,
        "kind": "register",
        "registrant": registrant,
        "createdAt": moment_text(created_at),
        "tool": dict(tool),
        "knowledge": {"targetRunStepsSeen": 0, "declaration": DECLARATION},
        "resolution": {"ifOverdue": IF_OVERDUE},
        **derived_fields(documents, version=LATEST),
    }
    for part, said in declared.items():
        predicate[part] = {**predicate.get(part, {}), **said} if isinstance(said, dict) else said
    statement = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": sha256_hex(files[name])}} for name in LATEST.subject_names],
        "predicateType": LATEST.predicate_type,
        "predicate": predicate,
    }
    made = read_statement(dump_canonical(statement), name="statement.json")
    _require_term(made)
    require_samples_of(documents["samples.json"]["losses"], made.quantiles)
    return made


def read_statement(raw: bytes, *, name: str) -> Statement:
    """The statement in the exact bytes of `statement.json`; `DocumentError` or `StatementError` when it is not sound."""
    document = load_canonical(raw, name=name)
    version = version_of(document, name=name)
    check_shape(document, version.statement_shape, name=name)
    statement = Statement(raw=raw, document=document, version=version)
    _check_meaning(statement)
    return statement


def read_subject(raw: bytes, *, name: str, path: str, version: FormatVersion = LATEST) -> Any:
    """The document of one subject (by the name that it has in this version), of its shape; `path` is for errors."""
    document = load_canonical(raw, name=path)
    check_shape(document, version.subject_shapes[name], name=path)
    return document


def moment_text(moment: datetime) -> str:
    """A time as the files write it, in UTC, to the second.

    >>> moment_text(datetime(2026, 11, 20, 8, tzinfo=UTC))
    '2026-11-20T08:00:00Z'
    """
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def parse_moment(text: str) -> datetime:
    """A time in UTC as the files write it.

    >>> parse_moment("2026-11-20T08:00:00Z").isoformat()
    '2026-11-20T08:00:00+00:00'
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        refuse(f"the time {text!r} is no moment ({error})", fix="Write it like 2026-11-20T08:00:00Z.")
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _check_meaning(statement: Statement) -> None:
    names = statement.version.subject_names
    if tuple(sorted(statement.subjects)) != names or len(statement.document["subject"]) != len(names):
        refuse(f"its subjects are {sorted(statement.subjects)}, not {list(names)}", fix="Register it again.")
    require_sound_forecast(statement)
    if f"{statement.created_at:%Y-%m-%d}" != statement.predicate["id"][:10]:
        refuse(
            f"its id {statement.predicate['id']} does not start with the day of {statement.predicate['createdAt']}",
            fix="Register it again.",
        )
    if statement.version is not VERSION_0_1:
        _check_resolution(statement)
        _check_people(statement)
        _check_promised_run(statement)
    elif statement.created_at >= VERSION_0_1_ENDED:
        refuse(
            f"its format {statement.version.number} ended on {VERSION_0_1_ENDED:%Y-%m-%d}, and it says that it is younger",
            fix="Register with the newest format, which says more: marin-scale preregister",
        )


def require_sound_forecast(statement: Statement) -> None:
    """`StatementError` unless its quantiles are the 23 fixed ones, rise, lie in the metric's support, and have its point."""
    forecast, metric = statement.predicate["forecast"], statement.predicate["metric"]
    if {key: metric[key] for key in ("unit", "direction", "support")} != METRICS[metric["name"]]:
        refuse(f"unit, direction or support of {metric['name']} are not {METRICS[metric['name']]}", fix="Register it again.")
    quantiles = statement.quantiles
    if len(forecast["quantiles"]) != len(LEVELS) or tuple(quantiles) != LEVELS:
        refuse(f"its quantile levels are {[*quantiles]}, not the {len(LEVELS)} fixed ones", fix="State exactly those levels.")
    for (low, value), (high, next_value) in pairwise(quantiles.items()):
        if value >= next_value:
            refuse(f"quantile {high:g} is {next_value}, not above {value} at {low:g}", fix="A forecast needs an interval.")
    lower, upper = metric["support"]
    if not lower < quantiles[LEVELS[0]] <= quantiles[LEVELS[-1]] < upper:
        refuse(
            f"its quantiles reach outside {lower:g} to {upper:g} {metric['unit']}", fix="Look at the fit: it cannot be right."
        )
    if forecast["point"] != quantiles[0.5]:
        refuse(
            f"its point {forecast['point']} is not its median {quantiles[0.5]}",
            fix="The point is the median. Restore the file from version control if it was edited.",
        )


def _check_people(statement: Statement) -> None:
    reviewers = [compared_name(each) for each in statement.predicate["reviewers"]]
    if len(set(reviewers)) < len(reviewers):
        refuse(
            f"one of its reviewers is asked twice: {', '.join(reviewers)}", fix="Name each reviewer once: promise.reviewers."
        )
    if compared_name(statement.predicate["registrant"]) in reviewers:
        refuse(
            f"its registrant {statement.predicate['registrant']} is one of its reviewers", fix="Ask someone else to review it."
        )


def _check_promised_run(statement: Statement) -> None:
    run = statement.predicate["targetRun"]
    for what, share in run["tolerance"].items():
        if share > MOST_TOLERANCE:
            refuse(
                f"targetRun.tolerance.{what} is {share:g}, more than {MOST_TOLERANCE:g}",
                fix="Register it again: a run with other numbers is another run.",
            )
    if len(set(run["uid"])) < _LEAST_DIGITS:
        refuse(
            f"targetRun.uid {run['uid']} is not random: it has {len(set(run['uid']))} different digits",
            fix="Register it again: the tool draws 128 random bits.",
        )


def _require_term(statement: Statement) -> None:
    """Refuse a new statement that is due too late; `check` refuses one that was signed so."""
    if statement.due is not None and statement.due - statement.created_at > LONGEST_TERM:
        refuse(
            f"it is due at {moment_text(statement.due)}, more than {LONGEST_TERM.days} days after it is made",
            fix="Give an earlier day, within four years: promise.due in the ladder's file.",
        )


def _check_resolution(statement: Statement) -> None:
    due = parse_moment(statement.predicate["resolution"]["due"])
    if due <= statement.created_at:
        refuse(
            f"it is due at {due:%Y-%m-%dT%H:%M:%SZ}, before it was made",
            fix="Give the run the time that it takes: a later promise.due in the ladder's file.",
        )
    ids = [assumption["id"] for assumption in statement.predicate["assumptions"]]
    if len(set(ids)) < len(ids):
        refuse(f"two of its assumptions have one id: {', '.join(ids)}", fix="Number them A1, A2 and so on.")
