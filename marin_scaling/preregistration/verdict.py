"""Verdict on a preregistration: no outcome yet, overdue, held or missed.

The preregistration is verified first. The outcome of its one run is written once to `outcome.json`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from marin_scaling import __version__
from marin_scaling.canonical_json import dump_canonical, sha256_hex
from marin_scaling.errors import MarinScalingError, VerificationError
from marin_scaling.files import read_bytes, write_once
from marin_scaling.preregistration.events.amendment import amendments_text, scored_amendments
from marin_scaling.preregistration.events.notice import deviations, ended_by, restarts_text
from marin_scaling.preregistration.events.observation import ended_at, marks_text, not_checked, read_observation, unit_texts
from marin_scaling.preregistration.layout import OUTCOME_NAME
from marin_scaling.preregistration.log import CLOCKS_DIFFER, Receipts, line_times, made_at, receipts_with_history, write_down
from marin_scaling.preregistration.outcome import State, Verdict, outcome_document, verdict_of
from marin_scaling.preregistration.register import Registration, answering_spec
from marin_scaling.preregistration.registry import REGISTRY, forecaster, one_folder, read_registration, signers_path
from marin_scaling.preregistration.statement import Statement, moment_text, parse_moment, prediction_at
from marin_scaling.preregistration.verify.authenticity import Verified, VerifiedSeal, sealed_verdict, verify_folder
from marin_scaling.preregistration.verify.rules import policy_steps
from marin_scaling.run.store import RUNS_DIR, StoredRun, is_finished, read_run, run_folder
from marin_scaling.untrusted_files import is_present, require_regular_tree

_AWAY = "its run is not here to be compared"
_TRACKED = "tracked: read from the log of the outside run that was named in advance"


def check_preregistration(
    folder: Path, *, runs_dir: Path, allowed_signers: Path, checked_at: datetime, receipts: Receipts | None = None
) -> Verdict:
    """Return the verdict on one preregistration; write `outcome.json` if its run is new.

    `VerificationError` if the preregistration is not authentic, the run began before it, or the run is another one.
    """
    verdict = verdict_on(folder, runs_dir=runs_dir, allowed_signers=allowed_signers, at=checked_at, receipts=receipts)
    if verdict.outcome is not None and not is_present(folder / OUTCOME_NAME):
        _require_not_logged(folder)
        write_once(folder / OUTCOME_NAME, dump_canonical(verdict.outcome))
        write_down(folder.parent, at=checked_at)
    return verdict


def check(registration: Path | str | Registration, *, registry: Path | str = REGISTRY, runs: Path | str = RUNS_DIR) -> Verdict:
    """Compare one preregistered forecast (name, path or object) with its run; `.state` is pending, held, missed, ...

    Writes `outcome.json` when the run is there for the first time. `VerificationError` if the preregistration is not authentic
    or the run is another one; `UsageError` if there is no such preregistration.
    """
    name = str(getattr(registration, "folder", registration))
    folder, runs_dir = one_folder(name, registry=Path(registry), sealed=True), Path(runs)
    require_regular_tree([folder, runs_dir])
    receipts = receipts_with_history([folder], runs_dir=runs_dir).get(folder.parent)
    now, signers = datetime.now(UTC), signers_path(folder)
    return check_preregistration(folder, runs_dir=runs_dir, allowed_signers=signers, checked_at=now, receipts=receipts)


def _require_not_logged(folder: Path) -> None:
    """Raise `VerificationError` if the log has an outcome whose file is missing."""
    if times := line_times(OUTCOME_NAME, folder=folder):
        raise VerificationError(
            f"{folder / OUTCOME_NAME} is not there, and the log has it since {moment_text(times[0])}.",
            why="An outcome is written once. Nothing was written now.",
            fix=f"Restore it from version control: git checkout -- {folder / OUTCOME_NAME}",
        )


def verdict_on(
    folder: Path, *, runs_dir: Path, allowed_signers: Path, at: datetime, receipts: Receipts | None = None
) -> Verdict:
    """Return the verdict of `check_preregistration`; write nothing."""
    verified = verify_folder(folder, allowed_signers=allowed_signers, runs_dir=runs_dir, receipts=receipts)
    if isinstance(verified, VerifiedSeal):
        return sealed_verdict(verified, at=at)
    policy_steps(verified)
    verdict = _verdict_of(verified, runs_dir=runs_dir, at=at)
    return replace(verdict, forecaster=forecaster(folder, verified.statement))


def _verdict_of(verified: Verified, *, runs_dir: Path, at: datetime) -> Verdict:
    folder, statement, known = verified.folder, verified.statement, verified.trust.receipts
    spec, claimed, warnings = None if statement.is_outside else answering_spec(folder), "", list[str]()
    if ended := ended_by(verified.notices, folder=folder, statement=statement, spec=spec, runs_dir=runs_dir, receipts=known):
        return ended
    run = read_run(run_folder(runs_dir, spec)) if spec is not None and is_finished(runs_dir, spec) else None
    if run is not None:
        _require_stamped_before(verified.stamped, run=run)
        outcome = _settle(verified, run=run, checked_at=at)
        warnings = reservations(folder, run=run, receipts=known)
        claimed = "".join(f"; {each}" for each in warnings)
    elif verified.outcome is not None:
        outcome, claimed = dict(verified.outcome), f"; {_TRACKED if spec is None else f'claimed: {_AWAY}'}"
        if spec is None:
            forecast = prediction_at(verified.subjects["forecast.json"], flops=statement.predicate["targetRun"]["flops"])
            observed, warnings = read_observation(folder), tracked_reservations(folder, receipts=known)
            marks = marks_text(observed, forecast.get("curve", []))
            claimed += "".join(f"; {each}" for each in (*filter(None, [marks]), *unit_texts(observed), *warnings))
    else:
        _require_not_logged(folder)
        scored = scored_amendments(verified.later_forecasts, folder=folder, value=None, finished_at=None, receipts=known)
        where = f"its run will lie in {run_folder(runs_dir, spec)}" if spec else _awaited(statement)
        waiting = _not_run(statement, where=where, at=at)
        sentence = waiting.sentence + amendments_text(scored) + _changes(verified, outcome=None)
        return replace(waiting, sentence=sentence, amendments=tuple(scored))
    state = State(outcome["verdict"])
    finished_at, value = parse_moment(run.record.finished_at) if run else ended_at(folder), outcome["value"]
    scored = scored_amendments(verified.later_forecasts, folder=folder, value=value, finished_at=finished_at, receipts=known)
    sentence = _sentence(statement, outcome=outcome, state=state) + claimed
    sentence += amendments_text(scored) + _changes(verified, outcome=outcome)
    verdict = verdict_of(statement, state=state, sentence=sentence, outcome=outcome)
    return replace(verdict, amendments=tuple(scored), warnings=tuple(warnings))


def _changes(verified: Verified, *, outcome: dict[str, Any] | None) -> str:
    """Return the restarts and deviations of the run as text to append to a verdict."""
    notices, receipts = verified.notices, verified.trust.receipts
    return restarts_text(notices) + deviations(notices, folder=verified.folder, outcome=outcome, receipts=receipts)


def check_all(folders: Sequence[Path], *, runs_dir: Path, checked_at: datetime) -> list[Verdict]:
    """Return the verdict on each folder, with its own `allowed_signers`; `REFUSED`, with the reason, if not authentic."""

    receipts = receipts_with_history(folders, runs_dir=runs_dir)

    def checked(folder: Path) -> Verdict:
        return check_preregistration(
            folder,
            runs_dir=runs_dir,
            allowed_signers=signers_path(folder),
            checked_at=checked_at,
            receipts=receipts.get(folder.parent),
        )

    return [_or_refused(checked, folder) for folder in folders]


def verdicts_on(
    folders: Sequence[Path],
    *,
    runs_dir: Path,
    at: datetime,
    allowed_signers: Path | None = None,
    receipts: Receipts | None = None,
) -> list[Verdict]:
    """Return the verdicts of `check_all`, optionally with other signers and receipts; write nothing."""

    def seen(folder: Path) -> Verdict:
        signers = allowed_signers or signers_path(folder)
        return verdict_on(folder, runs_dir=runs_dir, allowed_signers=signers, at=at, receipts=receipts)

    return [_or_refused(seen, folder) for folder in folders]


def _or_refused(judge: Callable[[Path], Verdict], folder: Path) -> Verdict:
    try:
        return judge(folder)
    except MarinScalingError as error:
        return Verdict(id=folder.name, state=State.REFUSED, sentence=f"refused: {error}", outcome=None)


def _settle(verified: Verified, *, run: StoredRun, checked_at: datetime) -> dict[str, Any]:
    folder, statement, standing = verified.folder, verified.statement, verified.outcome
    _check_run(statement, made=made_at(folder), run=run)
    outcome = outcome_document(
        statement,
        value=run.record.loss,
        run=run.spec.digest,
        record_sha256=sha256_hex(read_bytes(run.folder / "record.json")),
        checked_at=checked_at,
        tool_version=__version__,
    )
    if standing is None:
        return outcome
    for key in ("value", "record_sha256"):
        if standing[key] != outcome[key]:
            raise VerificationError(
                f"{folder / OUTCOME_NAME}: {key} is {standing[key]!r}, and {run.folder / 'record.json'} says {outcome[key]!r}.",
                why="Outcome and record are each written once; one of them was changed afterwards.",
                fix="Restore both from version control.",
            )
    return dict(standing)


def _require_stamped_before(stamped: Sequence[datetime], *, run: StoredRun) -> None:
    """Require that the run began after the first time stamp, if there are stamps."""
    if stamped and parse_moment(run.record.started_at) < min(stamped):
        raise VerificationError(
            f"{run.folder} began at {run.record.started_at}, before the first stamp of {moment_text(min(stamped))}.",
            why="A signature that was stamped after the run began may have been made after it, too.",
            fix="This forecast cannot be scored; have the next one stamped before its run.",
        )


def reservations(folder: Path, *, run: StoredRun, receipts: Receipts) -> list[str]:
    """Return warnings that a run began, or its record came, before the registry received the forecast.

    This is not a refusal: log lines are rewritten after merges, and commits can reorder files. With a base branch,
    `require_forecast_first` refuses.
    """
    began, received, warnings = parse_moment(run.record.started_at), receipts.forecast_at(folder), []
    if received is not None and received > began:
        warnings.append(_received_late(received, began))
    committed, record_at = receipts.committed_at(folder), receipts.runs.get(f"{run.folder.parent.name}/{run.folder.name}")
    if committed is not None and record_at is not None and record_at.order < committed.order:
        said = f"the record of its run was committed at {moment_text(record_at.at)}, before the forecast, which was"
        warnings.append(f"{said} committed at {moment_text(committed.at)}")
    return warnings


def tracked_reservations(folder: Path, *, receipts: Receipts) -> list[str]:
    """Return warnings of what the log of an outside run lacks, and of a start before its receipt or the planned day.

    A log without times was read after the run's start, so its reading before the planned day is such a start.
    """
    observed, received = read_observation(folder), receipts.forecast_at(folder)
    warnings = not_checked(observed)
    if observed["started_at"] is None:
        early = _before_plan(folder, parse_moment(observed["read_at"]), event="was read")
        return [*warnings, "that the forecast was made before the run is its registrant's word", *early]
    began = parse_moment(observed["started_at"])
    late = [_received_late(received, began)] if received is not None and received > began else []
    return [*warnings, *late, *_before_plan(folder, began, event="begins")]


_FIRST_ZONE = timedelta(hours=14)
"""A day begins so long before that of UTC in the first time zone."""


def _before_plan(folder: Path, moment: datetime, *, event: str) -> list[str]:
    """Return a warning if an event of an outside run's log was before its planned day in every time zone."""
    planned = read_registration(folder).predicate["recipe"]["described"]["planned_start"]
    if f"{moment + _FIRST_ZONE:%Y-%m-%d}" >= planned:
        return []
    return [f"its log {event} at {moment_text(moment)}, before the planned start {planned}"]


def _received_late(received: datetime, began: datetime) -> str:
    said = f"logged at {moment_text(received)}, after its run had begun at {moment_text(began)}"
    return f"{said}: that it was made before is its registrant's word"


def _check_run(statement: Statement, *, made: datetime, run: StoredRun) -> None:
    promised, record = statement.predicate["targetRun"], run.record
    if parse_moment(record.started_at) > datetime.now(UTC) + CLOCKS_DIFFER:
        raise VerificationError(
            f"{run.folder} began at {record.started_at}, which is still to come.",
            why="A record of a run that has not been trained is made up.",
            fix="Set the clock of the machine, and train the run again.",
        )
    if parse_moment(record.started_at) < made:
        raise VerificationError(
            f"{run.folder} began at {record.started_at}, before its preregistration of {moment_text(made)}.",
            why="A forecast made after the run began may have seen it.",
            fix="This forecast cannot be scored; register the next one before its run.",
        )
    tolerance = promised["tolerance"]
    numbers = (
        ("FLOPs", record.flops, promised["flops"], tolerance["flops"]),
        ("trained tokens", record.trained_tokens, promised["tokens"], tolerance["tokens"]),
        ("parameters", record.params_total, promised["paramsTotal"], 0.0),
    )
    differing: list[tuple[str, Any, Any]]
    names = (
        ("FLOP convention", record.flops_convention, promised["flopsConvention"]),
        ("metric", record.metric, statement.predicate["metric"]["name"]),
    )
    differing = [
        (what, found, expected) for what, found, expected, share in numbers if abs(found - expected) > share * expected
    ]
    differing += [(what, found, expected) for what, found, expected in names if found != expected]
    if differing:
        what, found, expected = differing[0]
        raise VerificationError(
            f"{run.folder}: {what} {found!r} differ from the promised {expected!r}.",
            why="A forecast speaks of one run; another one neither confirms nor refutes it.",
            fix="Train the target in target.json with this statement, as registered.",
        )


def _awaited(statement: Statement) -> str:
    """Return the command that records the outcome of an outside run."""
    return f"record it from the log of its run: marin-scale outcome {statement.predicate['id']} --log PATH"


def _not_run(statement: Statement, *, where: str, at: datetime) -> Verdict:
    forecast, unit = statement.predicate["forecast"], statement.predicate["metric"]["unit"]
    promised = f"{forecast['point']:.4f} {unit} was forecast"
    if statement.is_overdue(at=at):
        state, due = State.OVERDUE, statement.predicate["resolution"]["due"]
        sentence = f"overdue: {promised}, and its run was due at {due}; until it is there, it counts as missed"
    else:
        state, sentence = State.PENDING, f"no outcome yet: {promised}; {where}"
    return verdict_of(statement, state=state, sentence=sentence, outcome=None)


def _sentence(statement: Statement, *, outcome: dict[str, Any], state: State) -> str:
    low, high = statement.quantiles[0.05], statement.quantiles[0.95]
    forecast = f"{statement.quantiles[0.5]:.4f} (90 % interval {low:.4f} to {high:.4f})"
    if outcome["scores"] is None:
        return f"{state}: the run diverged; {forecast} was forecast"
    scores, unit = outcome["scores"], statement.predicate["metric"]["unit"]
    return (
        f"{state}: observed {outcome['value']:.4f} {unit}, forecast {forecast}; "
        f"error {scores['signed_error']:+.4f} ({_side(scores)}{scores['per_cent_of_loss']:+.2f} %{_reducible(scores)}), "
        f"CRPS {scores['crps']:.4f}{_skill(outcome)}"
    )


def _side(scores: dict[str, Any]) -> str:
    """Return the meaning of the error's sign."""
    error = scores["signed_error"]
    return f"forecast too {'high' if error > 0 else 'low'}, " if error else ""


def _skill(outcome: dict[str, Any]) -> str:
    skill = (outcome["baseline"] or {}).get("skill")
    return "" if skill is None else f", skill {skill:+.2f}"


def _reducible(scores: dict[str, Any]) -> str:
    percent = scores["per_cent_of_reducible_loss"]
    return "" if percent is None else f", {percent:+.2f} % of the reducible loss"
