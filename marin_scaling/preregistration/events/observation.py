"""Reading of an outside run's log: the named run and key, the value, digests of the files, and the reader's signature."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from marin_scaling import __version__
from marin_scaling.canonical_json import dump_canonical, load_canonical, sha256_hex
from marin_scaling.errors import StatementError, VerificationError, refuse
from marin_scaling.files import read_bytes, read_plain
from marin_scaling.preregistration.format import MOST_TOLERANCE, Principal
from marin_scaling.preregistration.layout import (
    OBSERVATION_DIR,
    OBSERVATION_NAME,
    OBSERVATION_SIGNATURE_NAME,
)
from marin_scaling.preregistration.log import Trust, known_at
from marin_scaling.preregistration.outcome import OutcomeTool, VerifiedStep
from marin_scaling.preregistration.registry import read_whole
from marin_scaling.preregistration.signing.allowed_signers import fingerprint_at, require_signed
from marin_scaling.preregistration.statement import Statement, moment_text, parse_moment
from marin_scaling.printable import joined
from marin_scaling.strict_model import SHA256, Moment, One, Part, Positive, Text, check_document
from marin_scaling.units import format_count, format_number
from marin_scaling.untrusted_files import MOST_TABLE_BYTES

if TYPE_CHECKING:
    from marin_scaling.run.import_runs import LoggedValues
    from marin_scaling.run.trackers import TrackedRun

_PROMISED = ("tracker", "project", "run", "key")
_ENDED = ("", "finished")
"""States of a run whose last value is its outcome; files of results have none."""


class LogFile(Part):
    """A file of the log, by digest."""

    name: Text
    sha256: SHA256


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
    state: Text
    """state of the run in the log; empty if it has none"""
    started_at: Moment | None
    """start of the run by its tracker; null if the log does not say"""
    project_in_log: Text
    """project of the run in the log; empty if it has none"""
    is_named_in_log: bool
    """false if only the file's name names the run"""
    files: list[LogFile]
    """files of the log; empty for one that was read online"""
    by: Principal
    """person who read the log: the registrant or the resolver"""
    read_at: Moment
    tool: OutcomeTool


def observe(target: Mapping[str, Any], statement: Statement, logs: Sequence[str], *, diverged: bool = False) -> dict[str, Any]:
    """Return the part of `observed.json` that comes from the log at these places (files, folders, `wandb:ENTITY/PROJECT`).

    `diverged` takes a key that has no value at the end as that of a run that diverged. `VerificationError` lists every way in
    which the log is not that of the run that `target` names.
    """
    from marin_scaling.run.import_runs import LoggedValues
    from marin_scaling.run.trackers import read_tracked_runs

    outcome = target["outcome"]
    run = _named_run(outcome, read_tracked_runs(*logs), where=joined(logs))
    values = LoggedValues(run)
    key = _own_key(values, outcome["key"])
    ends = _ends_with(key, run)
    found = {
        "value": None if diverged and not ends else values.number(key),
        "tokens": values.number(values.key(_tokens_keys(outcome))),
        "state": run.state,
        "started_at": None if run.started_at is None else moment_text(run.started_at),
        "project_in_log": run.project,
        "is_named_in_log": run.is_named,
        "files": _digests(logs),
    }
    faults = [*_differences(found, target, statement)]
    if run.kind != outcome["tracker"]:
        faults.append(f"the log is of the kind {run.kind}, and the tracker {outcome['tracker']} was promised")
    if not ends and not diverged:
        faults.append(
            f"{key} was logged last at step {run.last_steps[key]:g} of {_last_step(run):g} (if it diverged: --diverged)"
        )
    if diverged and found["value"] is not None:
        faults.append(f"{key} ends with {found['value']:g}, so the run did not diverge")
    if faults:
        raise VerificationError(
            tuple(f"{run.source}: {fault}." for fault in faults),
            why="An outcome is the last value of the named key in the log of the promised run, once that has finished.",
            fix="Name the log of that run when it has finished: --log PATH",
        )
    return found


def _named_run(outcome: Mapping[str, Any], runs: Sequence[TrackedRun], *, where: str) -> TrackedRun:
    """Return the one run with the promised id, or else name, with all its restarts under one id.

    A log of one run that does not name it can be that of the promised run.
    """
    found = [run for run in runs if run.id == outcome["run"]] or [run for run in runs if run.name == outcome["run"]]
    found = found or [run for run in runs if len(runs) == 1 and not run.is_named]
    if len(found) == 1 or (found and len({(run.id, run.project) for run in found}) == 1 and all(map(_start_of, found))):
        return _with_restarts(sorted(found, key=_start_of))
    names = joined(dict.fromkeys(f"{run.name} ({run.id})" if run.id else run.name for run in runs), most=8) or "none"
    count = f"{len(found)} runs" if found else "no run"
    raise VerificationError(
        f"{where} has {count} with the id or name {outcome['run']!r}; its runs: {names}.",
        why="The statement names the run whose log gives the outcome.",
        fix="Name the log of that run alone: --log PATH",
    )


def _start_of(run: TrackedRun) -> float:
    return run.started_at.timestamp() if run.id and run.started_at else 0.0


def _with_restarts(runs: Sequence[TrackedRun]) -> TrackedRun:
    """Return the last of the restarts of a run, in their order, with the values of all and the first start."""
    return replace(
        runs[-1],
        started_at=runs[0].started_at,
        config={key: value for run in runs for key, value in run.config.items()},
        metrics={key: value for run in runs for key, value in run.metrics.items()},
        last_steps={key: step for run in runs for key, step in run.last_steps.items()},
    )


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


def _tokens_keys(outcome: Mapping[str, Any]) -> tuple[str, ...]:
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


def _ends_with(key: str, run: TrackedRun) -> bool:
    """Return True if the log has the key at its end, or does not say when it was logged."""
    end = _last_step(run)
    return run.last_steps.get(key, end) >= (1 - MOST_TOLERANCE) * end


def _differences(found: Mapping[str, Any], target: Mapping[str, Any], statement: Statement) -> Iterator[str]:
    """Yield differences of a run in its log from the promise: project, state, tokens, start, and range of the metric."""
    project, metric = target["outcome"]["project"], statement.predicate["metric"]
    value, tokens, began = found["value"], found["tokens"], found["started_at"]
    if found["project_in_log"] and project.rsplit("/", 1)[-1] != found["project_in_log"].rsplit("/", 1)[-1]:
        yield f"the run is of the project {found['project_in_log']}, and {project} was promised"
    if found["state"] not in _ENDED and (value is not None or found["state"] == "running"):
        yield f"the run has the state {found['state']}: it has not finished"
    if tokens is not None and value is not None and abs(tokens / target["tokens"] - 1) > MOST_TOLERANCE:
        yield (
            f"the run has {format_count(tokens)} tokens, and {format_count(target['tokens'])} were promised "
            f"({format_number(tokens)}, {format_number(target['tokens'])}; {MOST_TOLERANCE:.0%} is allowed)"
        )
    if began is not None and parse_moment(began) < statement.created_at:
        yield f"the run began at {began}, before the statement of {moment_text(statement.created_at)}"
    low, high = metric["support"]
    if value is not None and not low < value < high:
        yield f"{value:g} is no {metric['name']}, which lies in {low:g} to {high:g}"


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


def verified_observation(folder: Path, *, statement: Statement, target: Mapping[str, Any], trust: Trust) -> dict[str, Any]:
    """Return the content of the signed reading in `folder`; `VerificationError` unless it is sound and about this promise."""
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
    return document


def read_observation(folder: Path) -> dict[str, Any]:
    """Return the content of a verified reading."""
    path = folder / OBSERVATION_DIR / OBSERVATION_NAME
    document: dict[str, Any] = load_canonical(read_plain(path), name=str(path))
    return document


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
    for fault in _differences(document, target, statement):
        _refuse(where, fault)


def _refuse(where: str, reason: str) -> NoReturn:
    refuse(f"{where}: {reason}", fix="Restore the folder from version control; a reading of another run is no outcome.")


def observation_step(folder: Path, document: Mapping[str, Any], *, unit: str) -> VerifiedStep:
    """Return the step of a verified reading."""
    value = "diverged" if document["value"] is None else f"{document['value']:.6g} {unit}"
    key = fingerprint_at(folder / OBSERVATION_DIR / OBSERVATION_SIGNATURE_NAME)
    lacking = "".join(f"; {each}" for each in not_checked(document))
    evidence = f"{value}, read by {document['by']} with {key} from the log of {document['run']}{lacking}"
    return VerifiedStep(what="observed", evidence=evidence, compared=not lacking)


def not_checked(document: Mapping[str, Any]) -> list[str]:
    """Return in words what the log of a verified reading does not have, so that it was not checked."""
    known = {
        "project": document["project_in_log"],
        "name of the run": document["is_named_in_log"],
        "start of the run": document["started_at"],
        "state": document["state"],
        "tokens": document["tokens"],
    }
    names = [name for name, value in known.items() if not value]
    return [f"not in its log, so not checked: {joined(names)}"] if names else []
