"""Reading of an outside run's log: the named run and key, the value, digests of the files, and the reader's signature."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

from pydantic import Field

from marin_scaling import __version__
from marin_scaling.canonical_json import dump_canonical, load_canonical, sha256_hex
from marin_scaling.errors import RunTableError, StatementError, UsageError, VerificationError, refuse
from marin_scaling.files import read_bytes, read_plain
from marin_scaling.preregistration.events.notice import Notice
from marin_scaling.preregistration.format import MOST_TOLERANCE, Principal
from marin_scaling.preregistration.layout import (
    OBSERVATION_DIR,
    OBSERVATION_NAME,
    OBSERVATION_SIGNATURE_NAME,
)
from marin_scaling.preregistration.log import Trust, known_at
from marin_scaling.preregistration.outcome import OutcomeTool, VerifiedStep
from marin_scaling.preregistration.outside_format import RunName
from marin_scaling.preregistration.registry import read_whole
from marin_scaling.preregistration.signing.allowed_signers import fingerprint_at, require_signed
from marin_scaling.preregistration.statement import Statement, moment_text, parse_moment
from marin_scaling.printable import joined
from marin_scaling.strict_model import SHA256, Moment, One, Part, Positive, Text, check_document
from marin_scaling.units import counted, format_count, format_number
from marin_scaling.untrusted_files import MOST_TABLE_BYTES, is_present

if TYPE_CHECKING:
    from marin_scaling.run.import_runs import LoggedValues, TrackedRun

_PROMISED = ("tracker", "project", "run", "key")
_ENDED = ("", "finished")
"""States of a run whose last value is its outcome; files of results have none."""


class LogFile(Part):
    """A file of the log, by digest."""

    name: Text
    sha256: SHA256


class LoggedRun(Part):
    """One of the runs of an outside run that was restarted under other ids."""

    run: RunName
    """id of the run: first the promised one, then those of the notices in their order"""
    first_step: float | None
    """first logged step; null if the log has no steps"""
    last_step: float | None
    """last logged step"""
    steps_apart: float | None
    """median distance of its logged steps"""
    first_tokens: float | None
    """trained tokens in the first row that has them"""
    last_tokens: float | None
    """trained tokens in the last row that has them"""
    started_at: Moment | None
    """start of the run by its tracker"""


class ObservationFile(Part):
    """The content of `observed/observed.json`."""

    format_version: One
    statement_sha256: SHA256
    tracker: Text
    project: Text
    run: Text
    key: Text
    value: Positive | None
    """last value of the key; null for a run that diverged"""
    tokens: Positive | None
    """trained tokens in the log; null if it has none"""
    tokens_unit: Literal["thousands", "millions", "billions", "trillions"] | None = None
    """unit of the tokens in the log, from which they were converted; missing for tokens one by one"""
    state: Text
    """state of the run in the log; empty if it has none"""
    started_at: Moment | None
    """start of the run by its tracker, or the latest possible one by times without a zone; null if the log does not say"""
    project_in_log: Text
    """project of the run in the log; empty if it has none"""
    is_named_in_log: bool
    """false if only the file's name names the run"""
    curve: Annotated[list[Positive | None], Field(min_length=20, max_length=20)] | None = None
    """losses at every 5 % of the run, if its curve was forecast; null where the log has none"""
    files: list[LogFile]
    """files of all logs; empty for one that was read online"""
    ended_at: Moment | None = None
    """time of the last row; null if the log has none"""
    runs: list[LoggedRun] = Field(default_factory=list)
    """runs that the log joins; missing for a run under one id"""
    by: Principal
    """person who read the log: the registrant or the resolver"""
    read_at: Moment
    tool: OutcomeTool


def observe(
    target: Mapping[str, Any],
    statement: Statement,
    logs: Sequence[str],
    *,
    curves: Mapping[str, Any] | None = None,
    restarts: Sequence[Notice] = (),
    diverged: bool = False,
) -> dict[str, Any]:
    """Return the part of `observed.json` that comes from the log at these places (files, folders, `wandb:ENTITY/PROJECT`).

    The logs of the `restarts` under other ids are joined to that of the promised run. `curves` are those of `ladder.json`, if
    the curve of the run was forecast. `diverged` takes a key that has no value at the end as that of a run that diverged.
    `VerificationError` lists every way in which the log is not that of the run that `target` names.
    """
    from marin_scaling.run.import_runs import LoggedValues, joined_run
    from marin_scaling.run.logs import TEXT_KINDS
    from marin_scaling.run.trackers import TABLE_KINDS

    outcome = target["outcome"]
    runs = runs_in_logs(outcome, restarts, logs, curves=curve_keys(target, curves))
    run = joined_run(runs)
    values, counts = LoggedValues(run), tokens_keys(outcome)
    unit = values.unit_of_tokens(counts, target["tokens"])
    key = _own_key(values, outcome["key"])
    ends = _ends_with(key, run)
    found: dict[str, Any] = {
        "value": None if diverged and (not ends or _is_far_above(values.number(key), statement)) else values.number(key),
        "tokens": values.tokens(counts, unit),
        **({"tokens_unit": unit} if unit else {}),
        "state": run.state,
        "started_at": _text_of(run.started_at),
        "ended_at": _text_of(runs[-1].ended_at),
        "project_in_log": run.project,
        "is_named_in_log": run.is_named,
        "files": _digests(logs),
        **_joined_runs(runs, outcome, restarts, unit=unit),
    }
    if curves is not None:
        found["curve"] = curve_in_log(run, target, curves, unit=unit)
    faults = [*_differences(found, target, statement), *_faults_of_restarts(found, restarts)]
    faults += [fault for fault in _faults_of_source(runs, target, statement) if fault not in faults]
    if not ends and not diverged:
        faults.append(_stopped(key, run))
    if ends and not diverged and found["value"] is None and run.kind in (*TEXT_KINDS, *TABLE_KINDS):
        faults.append(f"{key} ends with {values.exact[key]}")
    faults += _future(found, datetime.now(UTC))
    if diverged and found["value"] is not None:
        faults.append(
            f"{key} ends with {found['value']:g}, inside the forecast's 98 % interval or below, so the run did not diverge"
        )
    if faults:
        raise VerificationError(
            tuple(f"{run.source}: {fault}." for fault in faults),
            why="An outcome is the last value of the named key in the log of the promised run, once that has finished.",
            fix=_log_of_other_kind(runs, statement, outcome)
            or "Name the log of that run, once it has finished: --log PATH. If its loss ends as NaN, or above the forecast, "
            "because it diverged, add --diverged.",
        )
    return found


def _log_of_other_kind(runs: Sequence[TrackedRun], statement: Statement, outcome: Mapping[str, Any]) -> str:
    """Return what to do about logs of another kind than promised; empty if all are of the promised kind."""
    if all(run.kind == outcome["tracker"] for run in runs):
        return ""
    return (
        f"Name the log of the run of the kind {outcome['tracker']}: --log PATH. Without such a log, withdraw the forecast: "
        f"marin-scale registry withdraw {statement.predicate['id']} --reason WHY --steps-seen N"
    )


def _is_far_above(value: float | None, statement: Statement) -> bool:
    """Return True for a loss above the highest quantile of the forecast, which a diverged run may end with."""
    return value is not None and value > max(statement.quantiles.values())


def _ids_of(outcome: Mapping[str, Any], restarts: Sequence[Notice]) -> list[str]:
    return [outcome["run"], *(each.document["run"] for each in restarts)]


def places_of(logs: Sequence[Path | str]) -> list[str]:
    """Return the places of logs as text, each once; `UsageError` for none, or for something else."""
    if not logs or not all(isinstance(each, Path | str) for each in logs):
        raise UsageError(
            f"No log is named: {logs!r}." if not logs else f"A log is named by its path as text or Path, not {logs!r}.",
            fix="Name each log by itself: --log A --log B, and in Python ms.record_outcome(registration, 'a.log', 'b.log')",
        )
    return [*dict.fromkeys(map(str, logs))]


def runs_in_logs(
    outcome: Mapping[str, Any], restarts: Sequence[Notice], logs: Sequence[str], *, curves: Sequence[str] = ()
) -> list[TrackedRun]:
    """Return the promised run and its declared restarts from the logs.

    Of logs that name no run, each is that of the id in its place. `curves` are keys whose history is read. `VerificationError`
    for a log of another run, or an id without a log.
    """
    from marin_scaling.run.trackers import read_tracked_runs

    ids, places = _ids_of(outcome, restarts), [read_tracked_runs(log, curves=curves) for log in logs]
    for log, place in zip(logs, places, strict=True):
        if not any({run.id, run.name} & {*ids} for run in place) and [run.is_named for run in place] != [False]:
            raise _another_run(place, where=log, wanted=joined(ids), count="no run")
    runs = [run for place in places for run in place]
    if len(places) == len(runs) == len(ids) and not any(run.is_named or run.name in ids for run in runs):
        return runs
    return [_named_run(each, runs, where=joined(logs)) for each in ids]


def _named_run(name: str, runs: Sequence[TrackedRun], *, where: str) -> TrackedRun:
    """Return the one run with this id, or else name, with all its restarts under one id."""
    from marin_scaling.run.import_runs import start_of, with_restarts

    found = [run for run in runs if run.id == name] or [run for run in runs if run.name == name]
    if len(found) == 1 or (found and len({(run.id, run.project) for run in found}) == 1 and all(map(start_of, found))):
        return with_restarts(sorted(found, key=start_of))
    raise _another_run(runs, where=where, wanted=name, count=f"{len(found)} runs" if found else "no run")


def _another_run(runs: Sequence[TrackedRun], *, where: str, wanted: str, count: str) -> VerificationError:
    names = joined(dict.fromkeys(f"{run.name} ({run.id})" if run.id else run.name for run in runs), most=8) or "none"
    return VerificationError(
        f"{where} has {count} with the id or name {wanted}; its runs: {names}.",
        why="The statement and its signed restarts name the runs whose logs give the outcome.",
        fix="Name the logs of all declared ids, a file or folder each: --log A --log B. Join several files of one id. If the "
        "run continued under an id that is not declared, sign that before it ends: marin-scale registry restart FOLDER "
        "--restarted-as ID --from-step N --reason WHY",
    )


def curve_keys(target: Mapping[str, Any], curves: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the keys of the loss and of the tokens in the target's log; none without a forecast of the curve."""
    outcome = target["outcome"]
    return () if curves is None else (curves["key"] or outcome["key"], *tokens_keys(outcome))


def curve_in_log(
    run: TrackedRun, target: Mapping[str, Any], curves: Mapping[str, Any], *, unit: str
) -> list[float | None] | None:
    """Return the losses of a run at every 5 % of its training, None where its log has none; None without any.

    `unit` is that of the tokens in its log.
    """
    from marin_scaling.forecast.loss_curve import losses_at_fractions
    from marin_scaling.run.column_units import COUNT_UNITS
    from marin_scaling.run.curves import logged_curve

    key, *counts = curve_keys(target, curves)
    tokens = target["tokens"] / COUNT_UNITS.get(unit, 1.0)
    try:
        curve = logged_curve(run, key=key, tokens_keys=counts, tokens=tokens, train_steps=curves["train_steps"])
    except RunTableError:  # the outcome stands without a curve, and says so
        return None
    return [None if math.isnan(each) else each for each in losses_at_fractions(curve.fractions, curve.losses).tolist()]


def marks_text(observed: Mapping[str, Any], curve: Sequence[Mapping[str, Any]]) -> str:
    """Return how many losses of a signed reading lie inside the `curve` of forecast.json; empty without one of them."""
    pairs = zip(curve, observed.get("curve") or (), strict=False)
    inside = [row["quantiles"]["0.05"] <= loss <= row["quantiles"]["0.95"] for row, loss in pairs if loss is not None]
    return f"{sum(inside)} of {counted(len(inside), 'mark')} of its curve lie in the signed 90 % intervals" if inside else ""


def require_source(
    runs: Sequence[TrackedRun], target: Mapping[str, Any], statement: Statement, *, restarts: Sequence[Notice]
) -> None:
    """Raise `VerificationError` if the runs are not those promised and declared.

    That is, if one is of another tracker or project, or began before the promise, or if there is a gap before a restart.
    """
    from marin_scaling.run.import_runs import LoggedValues, joined_run

    outcome, values = target["outcome"], LoggedValues(joined_run(runs))
    unit = values.unit_of_tokens(tokens_keys(outcome), target["tokens"])
    logged = _joined_runs(runs, outcome, restarts, unit=unit)
    if faults := dict.fromkeys([*_faults_of_source(runs, target, statement), *_faults_of_restarts(logged, restarts)]):
        raise VerificationError(
            tuple(f"{runs[0].source}: {fault}." for fault in faults),
            fix=_log_of_other_kind(runs, statement, outcome) or "Name the log of the promised run: --log PATH",
        )


def _faults_of_source(runs: Sequence[TrackedRun], target: Mapping[str, Any], statement: Statement) -> Iterator[str]:
    for run in runs:
        yield from _other_projects(run.project, target)
        yield from _early_start(_text_of(run.started_at), statement)
        if run.kind != target["outcome"]["tracker"]:
            yield f"the log is of the kind {run.kind}, and the tracker {target['outcome']['tracker']} was promised"


def _logged(run: TrackedRun, name: str, outcome: Mapping[str, Any], unit: str) -> dict[str, Any]:
    """Return what the signed reading holds of one of the joined runs."""
    from marin_scaling.run.import_runs import LoggedValues

    last, first = LoggedValues(replace(run, config={})), LoggedValues(replace(run, config={}, metrics=run.first))
    apart = [after - before for before, after in pairwise(run.steps)]
    return {
        "run": name,
        "first_step": run.steps[0] if run.steps else None,
        "last_step": run.steps[-1] if run.steps else None,
        "steps_apart": median(apart) if apart else None,
        "first_tokens": first.tokens(tokens_keys(outcome), unit),
        "last_tokens": last.tokens(tokens_keys(outcome), unit),
        "started_at": _text_of(run.started_at),
    }


def _joined_runs(
    runs: Sequence[TrackedRun], outcome: Mapping[str, Any], restarts: Sequence[Notice], *, unit: str
) -> dict[str, Any]:
    """Return `runs` of a signed reading, empty for a run under one id."""
    ids = _ids_of(outcome, restarts)
    return {"runs": [_logged(run, name, outcome, unit) for run, name in zip(runs, ids, strict=True)]} if restarts else {}


def _text_of(moment: datetime | None) -> str | None:
    return None if moment is None else moment_text(moment)


def _faults_of_restarts(found: Mapping[str, Any], restarts: Sequence[Notice]) -> Iterator[str]:
    """Yield faults of joined logs: other ids than declared, gaps, earlier steps than declared, and late notices."""
    runs, ended = found.get("runs", []), found.get("ended_at")
    read, declared = [run["run"] for run in runs], [each.document["run"] for each in restarts]
    if read != [*(each.document["continues"] for each in restarts[:1]), *declared]:
        yield f"its restarts are {joined(read[1:]) or 'none'}, and {joined(declared) or 'none'} declared"
        return
    for (before, after), notice in zip(pairwise(runs), restarts, strict=True):
        yield from _faults_of_restart(before, after, notice.document, end=runs[-1])
        given = notice.received_at or notice.at
        if ended is not None and given > parse_moment(ended):
            yield f"{notice.name} is late: it was given at {moment_text(given)}, and the run ended at {ended}"


def _faults_of_restart(
    before: Mapping[str, Any], after: Mapping[str, Any], declared: Mapping[str, Any], *, end: Mapping[str, Any]
) -> Iterator[str]:
    """Yield contradictions of two logs to the declared place where the second continues the first.

    A gap may be 1 % of the run, or the distance of two logged steps.
    """
    unit = "tokens" if declared.get("from_step") is None else "step"
    place, ended, began = declared[f"from_{unit}"], before[f"last_{unit}"], after[f"first_{unit}"]
    share = max(MOST_TOLERANCE, *((run["steps_apart"] or 0) / (end["last_step"] or math.inf) for run in (before, after)))
    room = share * (end[f"last_{unit}"] or 0)
    if began is not None and began < place:
        yield f"{after['run']} begins at {unit} {began:g}, before {place:g}, from which its notice declares it"
    if began is not None and began > place + room:
        yield f"a gap: {after['run']} begins at {unit} {began:g}, and its notice declares it from {place:g}"
    if ended is not None and ended < place - room:
        yield f"a gap: {before['run']} ends at {unit} {ended:g}, and {after['run']} continues from {place:g}"
    starts = [run["started_at"] for run in (before, after)]
    if before["last_step"] is not None and before["last_step"] >= (end["last_step"] or math.inf):
        yield f"{before['run']} had finished at step {before['last_step']:g}, so that {after['run']} is another run"
    if None not in starts and parse_moment(starts[1]) < parse_moment(starts[0]):
        yield f"{after['run']} began at {starts[1]}, before {before['run']}, which it continues ({starts[0]})"


def _own_key(values: LoggedValues, key: str) -> str:
    """Return the log's spelling of the promised key; `VerificationError` if it has no number, and none that diverged."""
    run, own = values.run, values.spelling(key)
    if own is None:
        near = [name for name in run.metrics if key.rsplit("/", 1)[-1] in name] or [*run.metrics]
        raise VerificationError(
            f"{run.source}: the run {run.name} has no value of {key!r}; it has {joined(near, most=8) or 'no metrics'}.",
            why="The statement names the key that gives the outcome; another one cannot be chosen afterwards.",
            fix="Name the log that has this key: --log PATH",
        )
    if values.number(own) is None and not _is_diverged(values.exact[own]):
        raise VerificationError(
            f"{run.source}: {own} of the run {run.name} is {str(values.exact[own])[:40]!r}, not a number.",
            fix="Name the log in which this key is the loss: --log PATH",
        )
    return own


def tokens_keys(outcome: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the keys under which a log may have the trained tokens."""
    from marin_scaling.run.columns import COLUMNS, aliases_of

    return (outcome["tokens_key"],) if outcome["tokens_key"] else ("tokens", *aliases_of(COLUMNS["tokens"]))


def _is_diverged(value: object) -> bool:
    """Return True for what loggers write for a loss that is no finite number."""
    try:
        return not math.isfinite(float(str(value)))
    except ValueError:
        return False


def _digests(logs: Sequence[str]) -> list[dict[str, str]]:
    """Return name and digest of each file of the log that is read."""
    from marin_scaling.run.trackers import ONLINE, files_at

    paths = [Path(log) for log in logs if not log.startswith(ONLINE)]
    files = [(f"{file.relative_to(path.parent)}", file) for path in paths for file in files_at(path)]
    return [{"name": name, "sha256": sha256_hex(read_bytes(file, most_bytes=MOST_TABLE_BYTES))} for name, file in files]


def _last_step(run: TrackedRun) -> float:
    return max(run.last_steps.values(), default=0.0)


def _stopped(key: str, run: TrackedRun) -> str:
    """Return where the log has the key last."""
    said = f"{key} was logged last at step {run.last_steps[key]:g} of {_last_step(run):g}"
    return f"{said}; {counted(run.stopped[key], 'row')} after it have no number for it" if key in run.stopped else said


_ZONES_APART = timedelta(days=1)  # text logs name no time zone


def _future(found: Mapping[str, Any], read_at: datetime) -> Iterator[str]:
    """Yield times of the log that lie after its reading, which are no proof that the run began after the forecast."""
    for what, key in (("began", "started_at"), ("ended", "ended_at")):
        moment = found.get(key)
        if moment is not None and parse_moment(moment) > read_at + _ZONES_APART:
            yield f"the run {what} at {moment}, after it was read at {moment_text(read_at)}"


def _ends_with(key: str, run: TrackedRun) -> bool:
    """Return True if the log has the key at its end, or does not say when it was logged."""
    end = _last_step(run)
    return key not in run.stopped and run.last_steps.get(key, end) >= (1 - MOST_TOLERANCE) * end


def _differences(found: Mapping[str, Any], target: Mapping[str, Any], statement: Statement) -> Iterator[str]:
    """Yield differences of a run in its log from the promise: project, state, tokens, start, and range of the metric."""
    metric, value, tokens = statement.predicate["metric"], found["value"], found["tokens"]
    yield from _other_projects(found["project_in_log"], target)
    if found["state"] not in _ENDED and (value is not None or found["state"] == "running"):
        yield f"the run has the state {found['state']}: it has not finished"
    if tokens is not None and value is not None and abs(tokens / target["tokens"] - 1) > MOST_TOLERANCE:
        yield (
            f"the run has {format_count(tokens)} tokens, and {format_count(target['tokens'])} were promised "
            f"({format_number(tokens)}, {format_number(target['tokens'])}; {MOST_TOLERANCE:.0%} is allowed)"
        )
    for began in dict.fromkeys([found["started_at"], *(run["started_at"] for run in found.get("runs", []))]):
        yield from _early_start(began, statement)
    low, high = metric["support"]
    if value is not None and not low < value < high:
        yield f"{value:g} is no {metric['name']}, which lies in {low:g} to {high:g}"


def _early_start(began: str | None, statement: Statement) -> Iterator[str]:
    if began is not None and parse_moment(began) < statement.created_at:
        yield f"the run began at {began}, before the statement of {moment_text(statement.created_at)}"


def _other_projects(project: str, target: Mapping[str, Any]) -> Iterator[str]:
    promised = target["outcome"]["project"]
    if project and promised.rsplit("/", 1)[-1] != project.rsplit("/", 1)[-1]:
        yield f"the run is of the project {project}, and {promised} was promised"


def observation_document(
    found: Mapping[str, Any], *, statement: Statement, target: Mapping[str, Any], by: str, at: datetime
) -> bytes:
    """Return the bytes of `observed.json`."""
    document = {
        "format_version": 1,
        "statement_sha256": statement.sha256,
        **{key: target["outcome"][key] for key in _PROMISED},
        **found,
        "by": by,
        "read_at": moment_text(at),
        "tool": {"name": "marin-scaling", "version": __version__},
    }
    check_document(document, ObservationFile, name=OBSERVATION_NAME)
    return dump_canonical(document)


def require_may_observe(statement: Statement, principal: str) -> None:
    """Raise `StatementError` unless this person is the registrant or the resolver."""
    able = (statement.predicate["registrant"], statement.predicate["resolution"]["resolver"])
    if principal not in able:
        people = joined(dict.fromkeys(able))
        raise StatementError(
            f"{principal} is neither the registrant nor the resolver of {statement.predicate['id']} ({people}).",
            why="The statement names who reads the outcome.",
            fix="Let one of them sign: --as NAME --key KEY",
        )


def verified_observation(
    folder: Path, *, statement: Statement, target: Mapping[str, Any], restarts: Sequence[Notice], trust: Trust
) -> dict[str, Any]:
    """Return the content of the signed reading in `folder`; `VerificationError` unless it is sound and about this promise.

    `restarts` are the verified notices of restarts under other ids.
    """
    place = folder / OBSERVATION_DIR
    path, signature = place / OBSERVATION_NAME, place / OBSERVATION_SIGNATURE_NAME
    files = read_whole(place, names=(OBSERVATION_NAME, OBSERVATION_SIGNATURE_NAME))
    raw = files[OBSERVATION_NAME]
    document: dict[str, Any] = load_canonical(raw, name=str(path))
    check_document(document, ObservationFile, name=str(path))
    read_at = parse_moment(document["read_at"])
    name = f"{OBSERVATION_DIR}/{OBSERVATION_NAME}"
    moments = [read_at, known_at(read_at, name, folder=folder, receipts=trust.receipts)]
    require_signed(
        raw,
        signature=files[OBSERVATION_SIGNATURE_NAME],
        path=signature,
        principal=document["by"],
        moments=moments,
        allowed_signers=trust.allowed_signers,
    )
    _require_promised(document, statement, target, where=str(path), read_at=read_at)
    for fault in _faults_of_restarts(document, restarts):
        _refuse(str(path), fault)
    return document


def read_observation(folder: Path) -> dict[str, Any]:
    """Return the content of a verified reading."""
    path = folder / OBSERVATION_DIR / OBSERVATION_NAME
    document: dict[str, Any] = load_canonical(read_plain(path), name=str(path))
    return document


def ended_at(folder: Path) -> datetime | None:
    """Return the end of an outside run by its verified reading; None without one, or if its log has no times."""
    ended = read_observation(folder).get("ended_at") if is_present(folder / OBSERVATION_DIR) else None
    return None if ended is None else parse_moment(ended)


def _require_promised(
    document: Mapping[str, Any], statement: Statement, target: Mapping[str, Any], *, where: str, read_at: datetime
) -> None:
    """Require that a reading is about this promise, by a person who may read it."""
    if document["statement_sha256"] != statement.sha256:
        _refuse(where, "it is about another statement")
    for key in _PROMISED:
        if document[key] != target["outcome"][key]:
            _refuse(where, f"its {key} is {document[key]!r}, and {target['outcome'][key]!r} was promised")
    if document["by"] not in (statement.predicate["registrant"], statement.predicate["resolution"]["resolver"]):
        _refuse(where, f"{document['by']} is neither its registrant nor its resolver")
    if read_at < statement.created_at:
        _refuse(where, f"it was read at {document['read_at']}, before the statement was made")
    for fault in (*_differences(document, target, statement), *_future(document, read_at)):
        _refuse(where, fault)


def _refuse(where: str, reason: str) -> NoReturn:
    refuse(f"{where}: {reason}", fix="Restore the folder from version control; a reading of another run is no outcome.")


def observation_step(folder: Path, document: Mapping[str, Any], *, unit: str) -> VerifiedStep:
    """Return the step of a verified reading."""
    value = "diverged" if document["value"] is None else f"{document['value']:.6g} {unit}"
    key = fingerprint_at(folder / OBSERVATION_DIR / OBSERVATION_SIGNATURE_NAME)
    lacking, units = ("".join(f"; {each}" for each in texts) for texts in (not_checked(document), unit_texts(document)))
    runs = joined(run["run"] for run in document.get("runs", [document]))
    evidence = f"{value}, read by {document['by']} with {key} from the log of {runs}{units}{lacking}"
    return VerifiedStep(what="observed", evidence=evidence, compared=not lacking)


def unit_texts(document: Mapping[str, Any]) -> list[str]:
    """Return in words the unit from which the tokens of a verified reading were converted; empty for tokens one by one."""
    return [f"its log counts tokens in {unit}, converted"] if (unit := document.get("tokens_unit")) else []


def not_checked(document: Mapping[str, Any]) -> list[str]:
    """Return in words what the log of a verified reading does not have, so that it was not checked, and repeated steps."""
    known = {
        "project": document["project_in_log"],
        "name of the run": document["is_named_in_log"],
        "start of the run": document["started_at"],
        "state": document["state"],
        "tokens": document["tokens"],
        "curve": document.get("curve", True),
        **_known_of_restarts(document),
    }
    names = [name for name, value in known.items() if not value]
    repeated = [
        f"{after['run']} repeats from step {after['first_step']:g} what {before['run']} had logged to {before['last_step']:g}"
        for before, after in pairwise(document.get("runs", []))
        if (after["first_step"] or 0) < (before["last_step"] or 0)
    ]
    return [*([f"not in its log, so not checked: {joined(names)}"] if names else []), *repeated]


def _known_of_restarts(document: Mapping[str, Any]) -> dict[str, bool]:
    """Return whether the logs of a restarted run have what its restarts are compared with; empty for a run under one id."""
    runs = document.get("runs", [])
    if not runs:
        return {}
    places = [run["first_step"] is not None or run["first_tokens"] is not None for run in runs]
    return {"steps of each restart": all(places), "end of the run": bool(document.get("ended_at"))}
