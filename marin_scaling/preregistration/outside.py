"""Outside runs: sign the forecast of any trainer's run from a table of runs, and record its outcome from its log.

The level of assurance is `tracked`: the run, its tracker and the key of its loss are named in advance. No digest binds them.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Unpack

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints

from marin_scaling import __version__
from marin_scaling.canonical_json import dump_canonical, sha256_hex
from marin_scaling.errors import LadderFileError, StatementError, UsageError, VerificationError
from marin_scaling.files import publish_folder, read_bytes, write_once
from marin_scaling.fitting.combined_law import sparsity_of
from marin_scaling.fitting.fit import FitResult, fit
from marin_scaling.fitting.law import DEFAULT_LAW
from marin_scaling.forecast.loss_curve import (
    OTHER_METRIC,
    curve_from_ladder,
    curve_rows,
    curve_text,
    ends_apart,
    schedule_changes,
    schedule_error,
)
from marin_scaling.ladder.config import Promise
from marin_scaling.preregistration.events.notice import require_not_ended, restarts_of
from marin_scaling.preregistration.events.observation import (
    observation_document,
    observe,
    places_of,
    require_may_observe,
    verified_observation,
)
from marin_scaling.preregistration.format import METRICS
from marin_scaling.preregistration.imported import REGISTRIES, require_unknown_outcome
from marin_scaling.preregistration.ladder_records import curves_of_runs, read_signed_table
from marin_scaling.preregistration.layout import (
    _SLUG,
    OBSERVATION_DIR,
    OBSERVATION_NAME,
    OBSERVATION_SIGNATURE_NAME,
    OUTCOME_NAME,
)
from marin_scaling.preregistration.log import write_down
from marin_scaling.preregistration.outcome import Verdict, outcome_document
from marin_scaling.preregistration.outside_format import (
    OUTSIDE,
    TABLE_ENDINGS,
    CurvesSource,
    OutcomeSource,
    OutsideEvaluation,
    OutsideTarget,
    ReadingOfTable,
)
from marin_scaling.preregistration.preregister import (
    OnMessage,
    Signing,
    documented,
    register_evidence,
    require_law,
    require_policy,
    unknown_people,
    unsaid,
)
from marin_scaling.preregistration.register import USUAL_TERM, Evidence, Registration, ladder_row
from marin_scaling.preregistration.registry import REGISTRY, one_folder, signers_path
from marin_scaling.preregistration.signing.allowed_signers import require_may_sign
from marin_scaling.preregistration.signing.keys import find_principal, find_signing_key
from marin_scaling.preregistration.signing.sshsig import NAMESPACE
from marin_scaling.preregistration.statement import Statement, thinned
from marin_scaling.preregistration.verdict import check
from marin_scaling.preregistration.verify.authenticity import Verified, verify_folder
from marin_scaling.preregistration.verify.rules import policy_steps
from marin_scaling.printable import joined, printable, wrapped
from marin_scaling.run.curves import curve_names
from marin_scaling.run.table import ReadingChoices, RunTable
from marin_scaling.strict_model import NAME_PATTERN, Part, Reason
from marin_scaling.units import counted, format_flops, format_number, parse_count, parse_flops, says_perplexity, unit_of
from marin_scaling.untrusted_files import MOST_TABLE_BYTES, is_present
from marin_scaling.yaml_config import read_part

_ODD = 0.2
"""Largest relative difference of stated FLOPs from the table's without a warning."""


def _spelled(value: object, parse: Callable[[str], float] = parse_count) -> object:
    """Return the number that a text spells, as in options; any other value as it is."""
    if not isinstance(value, str):
        return value
    try:
        return parse(value)
    except UsageError as error:
        raise ValueError(f"must be a positive, finite number; {error.fix}") from error


_Number = Annotated[float, BeforeValidator(_spelled)]
"""Number of parameters or tokens, also spelled like 500B."""


def _has_unit(metric: str) -> str:
    if metric not in METRICS:
        raise ValueError(f"has no unit here; use one of: {', '.join(METRICS)}")
    return metric


class TargetFile(Part):
    """An outside run to forecast: its size, its measurement, and where its outcome will be read."""

    name: Annotated[str, StringConstraints(pattern=f"^{_SLUG.pattern}$")]
    """Name of the forecast after its date; lower-case letters, digits and hyphens."""
    params: _Number = Field(gt=0)
    """All parameters."""
    active_params: _Number | None = Field(default=None, gt=0)
    """Parameters that a token passes; default: all."""
    tokens: _Number = Field(gt=0)
    """Trained tokens."""
    flops: Annotated[float, BeforeValidator(partial(_spelled, parse=parse_flops))] = Field(gt=0)
    """Training FLOPs, counted as in the table."""
    flops_convention: Reason
    """Convention of these FLOPs, such as `6 x active parameters x tokens`."""
    metric: Annotated[str, AfterValidator(_has_unit)]
    """Metric of the loss: bits_per_byte, nats_per_token or paloma_macro_loss_nats."""
    evaluation: Reason
    """Texts and settings of the evaluation."""
    data: Reason
    """Training data and its mix."""
    trainer: Reason
    """Trainer and its version."""
    schedule: Reason
    """Schedule of the learning rate, with its phases."""
    planned_start: datetime.date
    """First day of the run; today or later."""
    outcome: OutcomeSource
    """Tracker, project, run and key from which the outcome will be read."""
    curves: CurvesSource | None = None
    """Loss curves of the table's runs, from which the whole curve of this run is forecast."""
    promise: Promise = Promise()
    """Declarations, as in a ladder file."""

    def target(self) -> OutsideTarget:
        """Return the content of `target.json`; `StatementError` for a key of perplexities."""
        if says_perplexity(self.outcome.key):
            raise StatementError(
                f"outcome.key {self.outcome.key!r} names a perplexity, and the metric is {self.metric}.",
                why="The outcome is read as a loss in the unit of the metric.",
                fix="Name a key of the loss; log it if only its exponential is.",
            )
        described = {"trainer": self.trainer, "schedule": self.schedule, "planned_start": f"{self.planned_start}"}
        return OutsideTarget(
            format_version=1,
            ladder=self.name,
            role=OUTSIDE,
            recipe=OUTSIDE,
            budget_flops=self.flops,
            flops=self.flops,
            flops_convention=self.flops_convention,
            params=round(self.params),
            active_params=round(self.active_params or self.params),
            tokens=round(self.tokens),
            data={"source": self.data, "digest": sha256_hex(self.data.encode())},
            evaluation=OutsideEvaluation(metric=self.metric, described=self.evaluation),
            described=described,
            outcome=self.outcome,
        )


def _refused(lines: str | tuple[str, ...]) -> LadderFileError:
    return LadderFileError(
        lines,
        why="A target file describes one outside run, so that its outcome can be recognized later.",
        fix="Correct these keys. No forecast was signed. To see a complete target file: marin-scale preregister --help",
    )


def read_target_file(path: Path) -> TargetFile:
    """Read the target of an outside run; `LadderFileError` names every fault with its line."""
    return read_part(Path(path), TargetFile, noun="a target", refused=_refused)


def preregister_table(
    table: Path | str,
    target: TargetFile | Path | str,
    *,
    registry: Path | str = REGISTRY,
    key: Path | str | None = None,
    signer: str | None = None,
    slug: str | None = None,
    law: str = DEFAULT_LAW,
    on_message: OnMessage = print,
    **choices: Unpack[ReadingChoices],
) -> Registration:
    """Forecast an outside run from the runs in a table, and register the signed forecast.

    `table` is a CSV or TSV file below the current folder and `choices` are those of `ms.load_runs`; both are signed with the
    file's digest. `key`, `signer`, `slug` and `law` are as in `ms.preregister`. `RunTableError` for a bad table or a
    size that contradicts its FLOPs; `UsageError`, `StatementError` or `SigningError` if the forecast cannot be registered.
    """
    _require_files(table, target)
    wanted, registry = target if isinstance(target, TargetFile) else read_target_file(Path(target)), Path(registry)
    principal = registrant_of(wanted, registry=registry, signer=signer, on_message=on_message)
    signing_key = find_signing_key(None if key is None else Path(key).expanduser(), make=True)
    on_message(f"signing as {principal}; {signing_key.note}\n")
    evidence = forecast_outside(table, wanted, law=law, on_message=on_message, **choices)
    if isinstance(evidence.target, OutsideTarget):
        require_unknown_outcome(evidence.target.to_bytes(), registries=registry.parent / REGISTRIES)
    signing = Signing(registry=registry, key=signing_key, principal=principal, slug=slug or wanted.name)
    rule = f"all runs of {Path(table).as_posix()} as read with the signed choices, except those listed as excluded"
    return register_evidence(evidence, signing, promise=wanted.promise, ladder_rule=rule, on_message=on_message)


def _require_files(table: object, target: object) -> None:
    """Raise `UsageError` for a table or target that is not named by its path."""
    for name, value, how in (
        ("table", table, 'frame.to_csv("runs.csv", index=False), then name "runs.csv"'),
        ("target", target, 'Write its keys to a YAML file, then name the file: "target.yaml"'),
    ):
        if not isinstance(value, str | Path | TargetFile):
            raise UsageError(
                f"{name} is a {type(value).__name__}, and the path of a file is needed.",
                why="The signature covers the table by the digest of its file, so that others can read both files again.",
                fix=how,
            )


def registrant_of(target: TargetFile, *, registry: Path, signer: str | None, on_message: OnMessage = print) -> str:
    """Return the name to sign as; refuse a run that was to begin before today, or a forecast against the registry's policy."""
    today = datetime.datetime.now(datetime.UTC).date()
    if target.planned_start < today:
        raise StatementError(
            f"planned_start of {target.name} is {target.planned_start}, and today is {today}.",
            why="A forecast must be made before its run.",
            fix="Correct planned_start, or forecast the next run.",
        )
    due = target.promise.due or (datetime.datetime.now(datetime.UTC) + USUAL_TERM).date()
    if due <= target.planned_start:
        usual = "" if target.promise.due else f", {USUAL_TERM.days} days from today,"
        raise StatementError(
            f"promise.due of {target.name} is {due}{usual} and its planned_start {target.planned_start}.",
            fix="Give the run the time that it takes: a later promise.due.",
        )
    principal = find_principal(signer)
    require_policy(target.promise, registry=registry, principal=principal)
    for warning in unknown_people(target.promise, registry=registry, principal=principal):
        on_message(warning)
    if target.promise.void_if and target.promise.resolver in (None, principal):
        ours = "only a promise.resolver who is someone else can void a forecast"
        on_message(wrapped(f"warning: promise.void_if has no effect: {ours}"))
    return principal


def forecast_outside(
    table: Path | str,
    target: TargetFile,
    *,
    law: str = DEFAULT_LAW,
    on_message: OnMessage = print,
    **choices: Unpack[ReadingChoices],
) -> Evidence:
    """Fit the runs of a table and forecast an outside run; pass the results and warnings to `on_message`."""
    from marin_scaling.forecast.backtest import backtest_doubts, backtest_of_fit
    from marin_scaling.forecast.targets import WantedRun, target_runs

    require_law(law)
    promised, source = target.target(), _source(Path(table), choices)
    wanted = None if target.curves is None else _with_schedule(target.curves, metric=target.metric)
    result = fit(_in_metric(read_signed_table(Path(table), choices, curves=wanted), target), law=law)
    _require_active(result, target)
    active = target.active_params or target.params
    size = WantedRun(params=target.params, tokens=target.tokens, active_params=active)
    (run,) = target_runs(result, [size])
    doubts = _doubts_of_flops(target, cost=run.flops)
    curves = None if target.curves is None else _curves(target.curves, result.rows)
    run = replace(run, flops=target.flops, log_error=schedule_error(curves))
    on_message(f"{promise_text(target)}\n")
    if converted := _doubts_of_schedules(curves):
        on_message(wrapped(f"note: {converted[0]}") + "\n")
    tested = backtest_of_fit(result)
    document, losses = documented(result, tested, target=run, on_message=on_message)
    if curves is not None:
        _add_curve(document, curves, rows=result.rows, target=promised, losses=losses, on_message=on_message)
    estimates = [*_doubts_of_estimates(result.rows, curves), *_doubts_of_schedules(curves)]
    document["warnings"] = [*document["warnings"], *estimates]
    doubts += [*estimates, *_doubts_of_names(result.rows, curves)]
    doubts += [*backtest_doubts(tested), *unsaid(target.promise, of="the target file")]
    for doubt in doubts:
        on_message(wrapped(f"warning: {doubt}"))
    recipe = {"recipe": OUTSIDE, "numbers": [], "constants": []}
    return Evidence(
        rows=result.rows, forecast=document, losses=losses, recipe=recipe, target=promised, source=source, curves=curves
    )


def _doubts_of_estimates(rows: Sequence[Mapping[str, Any]], curves: Mapping[str, Any] | None) -> list[str]:
    estimated = [row for row in rows if curves is not None and row["run"] in curves["complete"]]
    return [f"the final loss of {row['run']}, {row['loss']:.6g}, is estimated from its curve" for row in estimated]


def _with_schedule(source: CurvesSource, *, metric: str) -> dict[str, Any]:
    """Return the source of curves as a document; `UsageError` if losses of this metric cannot be converted."""
    if source.schedule != source.runs_schedule and unit_of(metric) != unit_of("nats_per_token"):
        raise UsageError(
            f"curves.schedule is another one than curves.runs_schedule, and the metric is {metric}.",
            why="The law of annealing converts losses in nats per token; bits per byte depend on the tokenizer.",
            fix="Forecast a loss in nats per token, or train the runs with the target's schedule.",
        )
    return source.model_dump(mode="json")


def _doubts_of_schedules(curves: Mapping[str, Any] | None) -> list[str]:
    """Return a warning that states by how much a change of schedule moved the final losses."""
    if not (changes := [each[-1] for each in schedule_changes(curves or {}).values()]):
        return []
    low, high = (100 * math.expm1(each) for each in (min(changes), max(changes)))
    return [
        f"final losses of the runs are converted from runs_schedule to schedule by {low:+.2f} to {high:+.2f} %; the forecast "
        f"counts {164.5 * schedule_error(curves):.2f} % for errors of this (90 %), as on curves of 25M and 100M parameters"
    ]


def _doubts_of_names(rows: Sequence[Mapping[str, Any]], curves: Mapping[str, Any] | None) -> list[str]:
    """Return warnings about runs without a curve, and curves without a run."""
    if curves is None:
        return []
    path, runs, known = Path(curves["path"]), [str(row["run"]) for row in rows], {each["run"] for each in curves["runs"]}
    others = [each for each in curve_names(path, columns=curves["columns"]) if each not in runs]
    lacking = [each for each in runs if each not in known]
    return [
        *([f"{path} has no curve of {joined(lacking, most=6)}"] if lacking else []),
        *([f"{path} has curves of no fitted run: {joined(others, most=6)}"] if others else []),
    ]


def _curves(source: CurvesSource, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the content of `curves` in `ladder.json`; `UsageError` for a file that cannot be bound."""
    path = Path(source.path)
    raw = read_bytes(path, most_bytes=MOST_TABLE_BYTES)
    runs = curves_of_runs(path, rows, columns=dict(source.columns))
    return {**source.model_dump(mode="json"), "sha256": sha256_hex(raw), "runs": runs}


def _add_curve(
    document: Mapping[str, Any],
    curves: Mapping[str, Any],
    *,
    rows: Sequence[Mapping[str, Any]],
    target: OutsideTarget,
    losses: Sequence[float],
    on_message: OnMessage,
) -> None:
    """Add the forecast of the whole curve to `document`, and print it."""
    ladder = {"rows": [ladder_row(row) for row in rows], "curves": curves}
    _require_own_metric(ladder, key=curves["key"])
    found = curve_from_ladder(ladder, target.model_dump(mode="json"), thinned(losses))
    document["predictions"][0]["curve"] = curve_rows(found)
    on_message(f"curve, from those of {counted(len(curves['runs']), 'run')} in {curves['path']}:\n{curve_text(found)}\n")


def _require_own_metric(ladder: Mapping[str, Any], *, key: str | None) -> None:
    """Raise `UsageError` if the curves are of another loss than the table, and no key of that loss is given."""
    if key is None and (apart := ends_apart(ladder)) > OTHER_METRIC:
        raise UsageError(
            f"The curves of {ladder['curves']['path']} end {apart:.1%} off the final losses of the table.",
            why="Without curves.key they must be of the table's loss, because the outcome's key is compared with them.",
            fix="Name the column of that loss (curves: {columns: {loss: NAME}}), or the key of the curves' loss in the "
            "target's log: curves: {key: KEY}",
        )


def promise_text(target: TargetFile) -> str:
    """Return what is promised of an outside run: where its outcome will be read, its start, its due day."""
    source, due = target.outcome, target.promise.due or f"{USUAL_TERM.days} days after the signature"
    lines = [
        f"outside run {target.name}: {source.key} of the run {source.run} in {source.project} ({source.tracker})",
        f"  planned start {target.planned_start}, due {due}",
        *(f"  void if {each}" for each in target.promise.void_if),
    ]
    return "\n".join(lines)


def _require_active(result: FitResult, target: TargetFile) -> None:
    from marin_scaling.forecast.targets import DENSE

    if target.active_params is None and (sparsity := sparsity_of(result.frame)) > DENSE:
        raise StatementError(
            f"{target.name} has no active_params, and the models of the table have {sparsity:.3g} parameters for each active "
            "one.",
            why="Loss and FLOPs of a sparse model follow from the parameters that a token passes.",
            fix="Add active_params to the target file; for a dense model the same number as params.",
        )


def _doubts_of_flops(target: TargetFile, *, cost: float) -> list[str]:
    """Return a warning if the stated FLOPs differ from those that the table gives; `StatementError` if they contradict."""
    from marin_scaling.forecast.targets import OFF_COST

    ratio, active = target.flops / cost, target.active_params or target.params
    said = (
        f"flops of {target.name} is {format_flops(target.flops)}; by the table, {format_number(active, 3)} active parameters "
        f"and {format_number(target.tokens, 3)} "
        f"tokens cost {format_number(cost, 3)}"
    )
    if not 1 / OFF_COST <= ratio <= OFF_COST:
        raise StatementError(
            f"{said}.",
            why="FLOPs follow from parameters and tokens, by the convention of the table.",
            fix="Correct flops, params, active_params or tokens in the target file.",
        )
    return [f"{said} ({ratio:.3g}x)"] if abs(ratio - 1) > _ODD else []


def _in_metric(table: RunTable, target: TargetFile) -> RunTable:
    """Return the table in the target's metric; `UsageError` if its column of losses is of another one."""
    if table.metric in METRICS and table.metric != target.metric:
        raise UsageError(
            f"The loss of {table.source} is {table.metric}, and the target's metric is {target.metric}.",
            why="A forecast and its outcome are of one metric.",
            fix="Choose the column of the target's metric: --column loss=NAME, or correct the target's metric.",
        )
    return replace(table, metric=target.metric)


def _source(path: Path, choices: ReadingChoices) -> dict[str, Any]:
    """Return the table's path, digest and choices for the statement; `UsageError` for a file of another kind or place."""
    name = path.as_posix()
    if unknown := choices.keys() - ReadingOfTable.model_fields.keys():
        raise UsageError(
            f"{joined(sorted(unknown))}: no choice about a table.", fix=f"Choose of: {', '.join(ReadingOfTable.model_fields)}."
        )
    if path.is_dir() or path.suffix not in TABLE_ENDINGS:
        raise UsageError(
            f"{path} is {'a folder' if path.is_dir() else 'no .csv or .tsv file'}.",
            why="Reviewers read the signed table as text.",
            fix=f"Write its runs as text: marin-scale table {path} --to runs.csv",
        )
    if not re.fullmatch(NAME_PATTERN, name):
        raise UsageError(
            f"{path} is no path below this folder of letters, digits and ._+-.",
            why="The statement names the table by its path, so that others find it.",
            fix="Go to the root of the repository, copy the table into it, and name it there: --table tables/runs.csv",
        )
    kept = {key: [*value] if isinstance(value, set | tuple | frozenset) else value for key, value in choices.items() if value}
    return {"path": name, "sha256": sha256_hex(read_bytes(path, most_bytes=MOST_TABLE_BYTES)), "choices": kept}


def record_outcome(
    registration: Path | str | Registration,
    *logs: Path | str,
    registry: Path | str = REGISTRY,
    key: Path | str | None = None,
    signer: str | None = None,
    diverged: bool = False,
    on_message: OnMessage = print,
) -> Verdict:
    """Read the outcome of an outside run from its log, sign the reading, and return the verdict.

    `logs` are files, folders, or `wandb:ENTITY/PROJECT`, read as by `marin-scale import`. The registrant or the resolver signs.
    `diverged` states that the run diverged, which is a miss; its log must have no loss at the end, or one far above the
    forecast. `VerificationError` lists every way in which the log is not that of the promised run; nothing is written then.
    """
    folder = one_folder(str(getattr(registration, "folder", registration)), registry=Path(registry))
    verified = verify_folder(folder, allowed_signers=signers_path(folder))
    if not isinstance(verified, Verified) or not verified.statement.is_outside:
        raise UsageError(
            f"{folder.name} does not forecast an outside run.",
            fix=f"Compare it with its run: marin-scale check {folder.name}",
        )
    places = places_of(logs)
    require_not_ended(folder)
    policy_steps(verified)
    if verified.outcome is not None:
        raise UsageError(
            f"{folder.name} has its outcome already, checked at {verified.outcome['checked_at']}; no log was read.",
            why="An outcome is read once, so that no later log can replace it.",
            fix=f"See it: marin-scale check {folder.name}",
        )
    if not is_present(folder / OBSERVATION_DIR):
        _observe(
            verified,
            places,
            key=None if key is None else Path(key).expanduser(),
            signer=signer,
            diverged=diverged,
            on_message=on_message,
        )
    now = datetime.datetime.now(datetime.UTC)
    if not is_present(folder / OUTCOME_NAME):
        write_once(folder / OUTCOME_NAME, dump_canonical(_outcome(verified, at=now)))
    write_down(folder.parent, at=now)
    return check(folder, registry=registry)


def _observe(
    verified: Verified, logs: Sequence[str], *, key: Path | None, signer: str | None, diverged: bool, on_message: OnMessage
) -> None:
    """Sign a reading of the log and publish it beside the statement."""
    folder, statement, target = verified.folder, verified.statement, verified.subjects["target.json"]
    principal, now = find_principal(signer), datetime.datetime.now(datetime.UTC)
    require_may_observe(statement, principal)
    curves, restarts = verified.subjects["ladder.json"].get("curves"), restarts_of(verified.notices)
    found = observe(target, statement, logs, curves=curves, restarts=restarts, diverged=diverged)
    _refuse_perplexity(found["value"], statement, key=target["outcome"]["key"])
    signing_key = find_signing_key(key)
    require_may_sign(signers_path(folder), principal=principal, key=signing_key.public_key, namespace=NAMESPACE, at=now)
    raw = observation_document(found, statement=statement, target=target, by=principal, at=now)
    files = {OBSERVATION_NAME: raw, OBSERVATION_SIGNATURE_NAME: signing_key.sign(raw)}
    publish_folder(folder / OBSERVATION_DIR, files)
    on_message(f"signing as {principal}; {signing_key.note}")


_LARGEST_MISS = 0.1
"""Relative distance to a forecast within which a logarithm is near it; Marin's seven public ones missed by up to 2.7 %."""


def _refuse_perplexity(value: float | None, statement: Statement, *, key: str) -> None:
    """Raise `VerificationError` for a value above all quantiles of nats per token whose logarithm is among or near them."""
    median, high = statement.quantiles[0.5], max(statement.quantiles.values())
    nats = statement.predicate["metric"]["unit"] == unit_of("nats_per_token")
    near = max(high - median, median - min(statement.quantiles.values()), _LARGEST_MISS * median)
    if value is not None and nats and value > high and abs((logarithm := math.log(value)) - median) <= near:
        raise VerificationError(
            f"{printable(key)} ends with {value:g}, whose logarithm {logarithm:.4g} is near the forecast of {median:.4g}.",
            why="The forecast is in nats per token, and the log seems to hold perplexities. Nothing was written.",
            fix="Record it from a log in nats per token; if the run diverged, add --diverged.",
        )


def _outcome(verified: Verified, *, at: datetime.datetime) -> Mapping[str, Any]:
    """Return the content of `outcome.json` from the signed reading."""
    folder, target = verified.folder, verified.subjects["target.json"]
    restarts = restarts_of(verified.notices)
    observed = verified_observation(
        folder, statement=verified.statement, target=target, restarts=restarts, trust=verified.trust
    )
    return outcome_document(
        verified.statement,
        value=observed["value"],
        run=verified.run_digest,
        record_sha256=sha256_hex(read_bytes(folder / OBSERVATION_DIR / OBSERVATION_NAME)),
        checked_at=at,
        tool_version=__version__,
    )
