"""Forecast a ladder's target, register the forecast, train the target, and sign later events.

Every rung must be recorded and trained on one text, so that no one can select runs.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, time, timedelta
from itertools import filterfalse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marin_scaling.errors import DataError, SigningError, StatementError, UsageError
from marin_scaling.files import read_bytes
from marin_scaling.fitting.fit import FitResult, fit
from marin_scaling.fitting.law import DEFAULT_LAW, find_law, law_names
from marin_scaling.forecast.forecast import (
    Forecast,
    Target,
    choices_outside,
    forecast,
    forecast_runs,
    optimal_target,
    samples_of,
    sensitivity,
)
from marin_scaling.ladder.config import Promise
from marin_scaling.ladder.plan import plan_target
from marin_scaling.preregistration.events import amendment
from marin_scaling.preregistration.events.notice import ENDING_KINDS, Kind, give_notice, require_not_ended
from marin_scaling.preregistration.events.seal import LONGEST_SEAL, whole_folder
from marin_scaling.preregistration.format import METRICS
from marin_scaling.preregistration.ladder_records import add_recorded_curve, undeclared_differences
from marin_scaling.preregistration.layout import OUTCOME_NAME, SIGNERS_NAME, is_sealed
from marin_scaling.preregistration.log import read_log, write_down
from marin_scaling.preregistration.register import (
    USUAL_TERM,
    Evidence,
    Registration,
    answering_spec,
    is_outside_run,
    preregister_target,
    standing_registration,
)
from marin_scaling.preregistration.registry import REGISTRY, read_registration, registration_folders, signers_path
from marin_scaling.preregistration.review.changes import look_alike
from marin_scaling.preregistration.signing.allowed_signers import read_allowed_signers
from marin_scaling.preregistration.signing.keys import NoSigningKeyError, SigningKey, find_principal, find_signing_key
from marin_scaling.preregistration.signing.sshsig import NAMESPACE
from marin_scaling.preregistration.tracked_run import stated_steps
from marin_scaling.preregistration.verify.authenticity import verify_folder
from marin_scaling.preregistration.verify.rules import log_step, policy_steps, require_followable
from marin_scaling.printable import joined, wrapped
from marin_scaling.recipe.base import RungPlan
from marin_scaling.recipe.find import find_recipe, recipe_document
from marin_scaling.run.plan import LoadedLadder, PlannedLadder, corpus_of, file_of, hardware_of, load_ladder, target_spec
from marin_scaling.run.spec import RunSpec, read_spec
from marin_scaling.run.store import RUNS_DIR, is_finished, read_runs, run_folder
from marin_scaling.run.table import read_run_table
from marin_scaling.units import format_count, format_flops, format_number
from marin_scaling.untrusted_files import is_present

if TYPE_CHECKING:
    from marin_scaling.forecast.backtest import Backtest
    from marin_scaling.train.launcher import TrainingTime

_NEAR = 0.75
"""Smallest ratio of equal characters of two near names."""
OnMessage = Callable[[str], object]
"""Function that receives each message for the reader, such as `print`."""


def preregister(
    ladder: PlannedLadder | LoadedLadder,
    *,
    registry: Path | str = REGISTRY,
    key: Path | str | None = None,
    signer: str | None = None,
    slug: str | None = None,
    seal_until: str | None = None,
    law: str = DEFAULT_LAW,
    on_message: OnMessage = print,
) -> Registration:
    """Forecast a ladder's target from its recorded rungs, and register the signed forecast or its seal.

    `key` is an SSH private key (default: yours, or a new one), `signer` the name in `allowed_signers`, `slug` the folder's
    name after the date. `seal_until` is the last day (YYYY-MM-DD) on which only a digest is public, and `law` is a name of
    `ms.fit`. `UsageError` for missing rungs or an unknown law; `DataError`, `StatementError`, `SigningError` or
    `VerificationError` if the forecast cannot be registered.
    """
    reveal_by = end_of_seal(seal_until) if seal_until else None
    planned = ladder.bind() if isinstance(ladder, LoadedLadder) else ladder
    registry, principal = Path(registry), find_principal(signer)
    file = planned.ladder.file
    require_registrable(planned, registry=registry, principal=principal, sealed=reveal_by is not None)
    for warning in unknown_people(file.promise, registry=registry, principal=principal):
        on_message(warning)
    signing_key = find_signing_key(None if key is None else Path(key).expanduser(), make=True)
    on_message(f"signing as {principal}; {signing_key.note}\n")
    evidence = forecast_target(planned, law=law, on_message=on_message)
    _require_declared(evidence, planned)
    signing = Signing(registry=registry, key=signing_key, principal=principal, slug=slug or file.name)
    return register_evidence(evidence, signing, promise=file.promise, reveal_by=reveal_by, on_message=on_message)


@dataclass(frozen=True, kw_only=True)
class Signing:
    """Registry of a new forecast, key and name to sign it with, and its name after the date."""

    registry: Path
    key: SigningKey
    principal: str
    slug: str


def register_evidence(
    evidence: Evidence,
    signing: Signing,
    *,
    promise: Promise,
    on_message: OnMessage,
    ladder_rule: str | None = None,
    reveal_by: datetime | None = None,
) -> Registration:
    """Register a forecast now, or its seal, and say where it is."""
    registration = preregister_target(
        evidence,
        registry_dir=signing.registry,
        key=signing.key,
        principal=signing.principal,
        slug=signing.slug,
        created_at=datetime.now(UTC),
        promise=promise,
        ladder_rule=ladder_rule,
        reveal_by=reveal_by,
    )
    if registration.added_signer:
        on_message(registration.added_signer)
    on_message(f"Signed and {'sealed' if reveal_by else 'registered'}: {registration.folder}")
    return registration


_LADDER_SUFFIXES = (".yaml", ".yml")


def require_ladder_file(path: Path) -> None:
    """Raise `UsageError` for a table or a folder of runs: a forecast is signed for the target of a ladder file."""
    if path.suffix.lower() in _LADDER_SUFFIXES or not path.exists():
        return
    if path.is_dir():
        raise UsageError(
            f"{path} is a folder, not a ladder file.",
            fix=f"Name the ladder file: marin-scale preregister ladders/{path.name}.yaml",
        )
    raise UsageError(
        f"{path} is not a ladder file (.yaml).",
        why="A forecast is signed for the target of a ladder, or for an outside run that a target file describes.",
        fix=f"For a run of your own trainer: marin-scale preregister --table {path} --target target.yaml. For a ladder of this "
        "tool: marin-scale preregister ladders/NAME.yaml",
    )


def signer_text(principal: str, key: Path | None) -> str:
    """Return the name and key that `preregister` would sign with; no key is made."""
    try:
        return f"signing as {principal}; {find_signing_key(key).note}"
    except NoSigningKeyError:
        return f"signing as {principal}; no key yet, so a new one will be made"


def require_registrable(planned: PlannedLadder, *, registry: Path, principal: str, sealed: bool) -> None:
    """Refuse a ladder whose rungs are not all recorded, and a forecast that could not meet the registry's policy."""
    require_whole_ladder(planned)
    require_policy(planned.ladder.file.promise, registry=registry, principal=principal, sealed=sealed)


def require_policy(promise: Promise, *, registry: Path, principal: str, sealed: bool = False) -> None:
    """Refuse a forecast that could not meet the registry's policy."""
    now = datetime.now(UTC)
    due = datetime.combine(promise.due, time(23, 59, 59), tzinfo=UTC) if promise.due else now + USUAL_TERM
    resolver = promise.resolver or principal
    require_followable(registry, registrant=principal, resolver=resolver, sealed=sealed, at=now, due=due)


def unknown_people(promise: Promise, *, registry: Path, principal: str) -> list[str]:
    """Return a warning for each resolver and reviewer of a ladder file who has no key in `allowed_signers` (or is mistyped)."""
    path = registry / SIGNERS_NAME
    listed = {each.principal for each in read_allowed_signers(path)} if is_present(path) else set()
    named = [("resolver", promise.resolver), *(("reviewers", name) for name in promise.reviewers)]
    return [
        _unknown(key, name, path=path, listed=listed | {principal})
        for key, name in named
        if name is not None and name not in listed | {principal}
    ]


def _unknown(key: str, name: str, *, path: Path, listed: Collection[str]) -> str:
    near = [each for each in listed if _is_near(name, each)]
    meant = f" (did you mean {near[0]}?)" if near else ""
    task = "cannot sign the outcome" if key == "resolver" else "cannot sign the forecast"
    line = f'{name} namespaces="{NAMESPACE}" PUBLIC_KEY'
    return wrapped(f"warning: promise.{key}: {name}{meant} has no key in {path} and {task} until this line is added: {line}")


def _is_near(name: str, other: str) -> bool:
    """Return True if one name is probably a mistyped other one: people of one domain are not near.

    >>> _is_near("carol@exmple.org", "carol@example.org"), _is_near("bob@example.org", "solo@example.org")
    (True, False)
    """
    if look_alike(name, other):
        return True
    parts = zip(name.casefold().partition("@"), other.casefold().partition("@"), strict=True)
    return all(difflib.SequenceMatcher(None, *pair).ratio() >= _NEAR for pair in parts)


def existing_registration(planned: PlannedLadder, *, registry: Path = REGISTRY) -> Registration | None:
    """Return the registered forecast of this ladder's target on this data, None if there is none."""
    file = planned.ladder.file
    ours = file.name, planned.specs[0].data, file.target.budget_flops
    for folder in filterfalse(is_sealed, registration_folders(registry)):
        if is_outside_run(folder):
            continue
        spec = target_in(folder)
        if (spec.ladder, spec.data, spec.budget_flops) == ours and (
            standing := standing_registration(spec, registry_dir=registry)
        ):
            return standing
    return None


def end_of_seal(day: str) -> datetime:
    """Return the last second of a day (UTC); `UsageError` if a seal cannot last until then."""
    now, end = datetime.now(UTC), _last_second(day)
    if end is None or not now < end <= now + LONGEST_SEAL:
        raise UsageError(
            f"--seal-until {day} is not a day within the next four years.",
            why="A sealed forecast must be revealed within four years.",
            fix=f"Choose a day, such as --seal-until {now + timedelta(days=90):%Y-%m-%d}",
        )
    return end


def _last_second(day: str) -> datetime | None:
    try:
        return datetime.combine(datetime.strptime(day, "%Y-%m-%d"), time(23, 59, 59), tzinfo=UTC)
    except ValueError:
        return None


def train_target(folder: Path, *, on: str = "local", on_message: OnMessage = print) -> TrainingTime:
    """Verify the preregistration in `folder`, then train its run.

    `on` is local, ray or ray:ADDRESS. The run's spec contains the statement's digest from its first step. Errors as in
    `verify` and in training.
    """
    from marin_scaling.preregistration.review.pull_request import is_uncommitted
    from marin_scaling.train.session import target_pool, train_with_progress, use_tracker

    whole, signers = whole_folder(folder), signers_path(folder)
    verified = verify_folder(whole, allowed_signers=signers, runs_dir=RUNS_DIR)
    if whole != folder:
        verify_folder(folder, allowed_signers=signers)
    require_not_ended(folder)
    log_step(folder, log=read_log(folder.parent))
    policy_steps(verified, stamped=folder)
    if is_uncommitted(folder):
        on_message(f"warning: {folder} has uncommitted changes; only a pushed forecast visibly precedes its run")
    target = answering_spec(whole)
    use_tracker(file_of(target.ladder))
    pool, storage = target_pool(on, ladder=target.ladder), hardware_of(target.ladder).storage
    return train_with_progress([target], corpus=corpus_of(target), label="target", pool=pool, storage=storage)


def target_in(folder: Path) -> RunSpec:
    """Return the target of a preregistration, not yet bound to it."""
    return read_spec(read_bytes(folder / "target.json"), name=str(folder / "target.json"))


def require_whole_ladder(planned: PlannedLadder) -> None:
    """Require that all rungs are recorded, and trained and measured like the target."""
    _require_one_text(planned)
    _require_trained(planned)


def _require_one_text(planned: PlannedLadder) -> None:
    """Require one text and one evaluation for all fitted rungs and the target."""
    here = planned.specs[0]
    for stored in read_runs(planned.runs_dir):
        for what, theirs, ours in (
            ("data", stored.spec.data, here.data),
            ("evaluation", stored.spec.evaluation, here.evaluation),
        ):
            if stored.spec.role == "rung" and theirs != ours:
                raise DataError(
                    f"{stored.folder} has other {what} than the target here: {theirs} and {ours}.",
                    why="Rungs and target need the same text and evaluation.",
                    fix="Use the Python version that trained the rungs, or train the ladder again under another name.",
                )


def _require_trained(planned: PlannedLadder) -> None:
    """Require that every rung is recorded: a forecast from part of a ladder could be selected."""
    missing = [spec for spec in planned.specs if not is_finished(planned.runs_dir.parent, spec)]
    if missing:
        first = ", ".join(f"width {spec.model.hidden_dim} at {format_flops(spec.budget_flops)} FLOPs" for spec in missing[:3])
        raise UsageError(
            f"{len(missing)} of {len(planned.specs)} rungs of the ladder {planned.ladder.file.name!r} are not trained: "
            f"{first}{' and more' if len(missing) > 3 else ''}.",
            why="A forecast uses the whole ladder, so that runs cannot be selected.",
            fix=f"Train them: marin-scale ladder ladders/{planned.ladder.file.name}.yaml; or remove them from that file.",
        )


def require_law(law: str) -> None:
    """Raise `UsageError` for a law that `verify` cannot fit again: one of a Python file, or an unknown one."""
    if ".py:" in law:
        raise UsageError(
            f"--law {law} is a law of a Python file.",
            why="Others fit the signed forecast again, and a statement does not hold the code of a law.",
            fix=f"Choose: {', '.join(law_names())}. Compare with your own law: marin-scale fit TABLE --law {law}",
        )
    find_law(law)


def forecast_target(planned: PlannedLadder, *, law: str = DEFAULT_LAW, on_message: OnMessage = print) -> Evidence:
    """Fit the ladder's rungs and forecast its target; pass the results and warnings to `on_message`."""
    from marin_scaling.forecast.backtest import backtest_doubts, backtest_of_fit

    require_law(law)
    require_simulated_repeats(planned.specs)
    result = fit(read_run_table(planned.runs_dir), law=law)
    tested = backtest_of_fit(result)
    file = planned.ladder.file
    unique_tokens = planned.specs[0].data.tokens if file.data.epochs > 1 and not file.data.corpora else None
    optimum = forecast(result, flops=file.target.budget_flops, unique_tokens=unique_tokens)
    plan, choice = _sized(planned, optimum)
    require_horizon_of(plan.trained_tokens, planned.specs)
    target = target_spec(file, plan, corpus=planned.corpus)
    require_simulated_repeats([target])
    document, losses = documented(result, tested, target=_as_forecast(result, target), on_message=on_message)
    others = (f"{found.where}: {found.message}" for found in planned.other_runs())
    doubts = (*plan.doubts, *others, *backtest_doubts(tested), *unsaid(file.promise, of="the ladder file"))
    on_message("\n".join([wrapped(_target_line(target, choice)), *(wrapped(f"warning: {doubt}") for doubt in doubts)]))
    recipe = recipe_document(find_recipe(file.recipe), plan, batch_is_given=file.target.batch_size is not None)
    curves = add_recorded_curve(document, result.rows, target=target, ladder_dir=planned.runs_dir, losses=losses)
    if curves is not None:
        middle = document["predictions"][0]["curve"][9]["quantiles"]
        on_message(
            f"curve: training loss {middle['0.5']:.4f} [{middle['0.05']:.4f}, {middle['0.95']:.4f}] nats/token at 50 %, and 19 "
            f"other marks, from {len(curves['runs'])} curves"
        )
    return Evidence(rows=result.rows, forecast=document, losses=losses, recipe=recipe, target=target, curves=curves)


def _sized(planned: PlannedLadder, optimum: Forecast) -> tuple[RungPlan, str]:
    """Plan the target at the width nearest to N*, or at one in the interval of N* that the text suffices for; say which."""
    file, corpus, length = planned.ladder.file, planned.corpus, planned.specs[0].model.seq_len
    text = math.inf if corpus.parts else file.data.epochs * (len(corpus.train) // length) * length
    size, interval = optimum.active_params, optimum.params_interval
    nearest = plan_target(file, compute_optimal_params=size)
    plan = plan_target(file, compute_optimal_params=size, params_interval=interval, tokens_at_most=text)
    if plan == nearest:
        return plan, "the width nearest to N*"
    short = f"width {nearest.shape.hidden_dim} is nearer, but needs {format_count(nearest.trained_tokens)} tokens"
    return plan, f"in the interval of N*; {short}, and the text has {format_count(text)}"


_HORIZON = 1.2
"""Largest ratio between the tokens of the target and those whose repeats its rungs simulate; repeats then differ as much."""


def require_horizon_of(tokens: int, specs: Sequence[RunSpec]) -> None:
    """Raise `DataError` if the rungs repeat text as a run of other length than the target does."""
    horizon = specs[0].horizon_tokens
    if horizon is None or max(tokens, horizon) <= _HORIZON * min(tokens, horizon):
        return
    passes = {part.name: part.share * tokens / (part.available * specs[0].model.seq_len) for part in specs[0].exposures}
    if max(passes.values()) > 1:
        seen = ", ".join(f"{name} {times:.3g} times" for name, times in passes.items())
        raise DataError(
            f"The rungs repeat their text as a run of {format_count(horizon)} tokens does; the target has "
            f"{format_count(tokens)} at its best size, and sees {seen}.",
            why="Rungs that repeat more or less than the target bias its forecast.",
            fix=f"Set data.horizon: {float(tokens):.3g} and data.epochs: {math.ceil(max(passes.values()))} or more, then train "
            "the rungs again.",
        )


def require_simulated_repeats(specs: Sequence[RunSpec]) -> None:
    """Raise `DataError` if a run repeats a part of its mix, unless all runs simulate the repeats of the target."""
    repeating = next((spec for spec in specs if spec.mix and spec.is_repeating), None)
    if repeating is not None:
        passes = ", ".join(f"{each.name} {each.passes:.3g} times" for each in repeating.exposures)
        raise DataError(
            f"The {repeating.role} {repeating.rung_name} repeats parts of its mix: it sees {passes}.",
            why="No law says what repeats of some parts cost; rungs that repeat less than the target bias a forecast.",
            fix="Let all runs repeat as the target does: data.horizon: target. Then train the rungs again.",
        )


def _require_declared(evidence: Evidence, planned: PlannedLadder) -> None:
    """Require that constants that differ between the target and all rungs are declared, as `verify` does."""
    target, *rungs = (json.loads(spec.to_bytes()) for spec in (evidence.target, *planned.specs))
    declared = planned.ladder.file.promise.known_differences
    undeclared = undeclared_differences(rungs, target=target, recipe=evidence.recipe, declared=declared)
    if undeclared:
        raise StatementError(
            f"ladders/{planned.ladder.file.name}.yaml: promise.known_differences does not name {undeclared[0]}.",
            why="`verify` refuses a target whose constants differ from its ladder without a declaration.",
            fix="Train the target like the ladder, or add the difference to promise.known_differences.",
        )


def amend_forecast(
    folder: Path,
    *,
    reason: str,
    steps_seen: int | None = None,
    key: Path | None = None,
    signer: str | None = None,
    on_message: OnMessage = print,
) -> Path:
    """Forecast the run of a preregistration again, from its ladder as it is now; return the folder of the signed amendment.

    `steps_seen` is how many steps of the run the registrant has seen. `SigningError` if the run has ended.
    """
    verify_folder(folder, allowed_signers=signers_path(folder))
    if is_outside_run(folder):
        raise UsageError(
            f"{folder.name} forecasts an outside run, which cannot be forecast again from its ladder.",
            fix=f"Record its outcome from its log: marin-scale outcome {folder.name} --log PATH",
        )
    target = target_in(folder)
    amendment.require_open(folder)
    _require_not_run(folder)
    seen = stated_steps(steps_seen, folder=folder)
    planned = load_ladder(Path("ladders") / f"{target.ladder}.yaml").bind()
    require_whole_ladder(planned)
    signing_key, principal, now = find_signing_key(key), find_principal(signer), datetime.now(UTC)
    law = str(read_registration(folder).predicate["fit"]["law"]).partition(":")[0]
    rows, document, losses = _forecast_again(planned.runs_dir, target=target, law=law, on_message=on_message)
    made = amendment.amend(
        folder,
        rows=rows,
        forecast=document,
        losses=losses,
        key=signing_key,
        principal=principal,
        at=now,
        reason=reason,
        steps_seen=seen,
    )
    write_down(folder.parent, at=now)
    on_message(signing_key.note)
    return made


def _require_not_run(folder: Path) -> None:
    answer = answering_spec(folder)
    if is_finished(RUNS_DIR, answer):
        raise SigningError(
            f"The run of {folder.name} is finished: {run_folder(RUNS_DIR, answer)}.",
            why="A known loss cannot be forecast.",
            fix=f"Compare the forecast with the run: marin-scale check {folder.name}",
        )


def sign_notice(
    folder: Path,
    kind: Kind,
    *,
    reason: str,
    steps_seen: int | None = None,
    forecast: Path | None = None,
    key: Path | None = None,
    signer: str | None = None,
    on_message: OnMessage = print,
    **content: Any,
) -> Path:
    """Sign and log a withdrawal, a void, a deviation or a restart of a preregistration; return the notice's folder.

    `content` is what the kind needs: `condition`, `from_step`, `run`, `evidence`. `forecast` is a file of `fit --json` with the
    registrant's forecast under a deviation. `UsageError` for a withdrawal, a restart or a forecast after the outcome.
    """
    verify_folder(folder, allowed_signers=signers_path(folder))
    if (kind in ("withdraw", "restart") or forecast) and is_present(folder / OUTCOME_NAME):
        raise UsageError(
            f"{folder.name} has an outcome.",
            why="A withdrawal would lose the score; restarts and forecasts are signed before the run ends.",
            fix=f"Keep the forecast: marin-scale check {folder.name}",
        )
    if kind in (*ENDING_KINDS, "restart"):
        require_not_ended(folder)
    if forecast is not None:
        content["quantiles"] = _stated_quantiles(forecast, predicate=read_registration(folder).predicate)
    seen = stated_steps(steps_seen, folder=folder) if kind == "withdraw" or forecast else 0
    signing_key, principal, now = find_signing_key(key), find_principal(signer), datetime.now(UTC)
    given = give_notice(
        folder, kind, key=signing_key, principal=principal, at=now, reason=reason, target_steps_seen=seen, **content
    )
    write_down(folder.parent, at=now)
    on_message(signing_key.note)
    return given


def _stated_quantiles(path: Path, *, predicate: Mapping[str, Any]) -> dict[str, float]:
    """Return the quantiles by level of the one forecast in a file of `marin-scale fit --json`, which is about the same run."""
    metric, flops = predicate["metric"]["name"], predicate["targetRun"]["flops"]
    try:
        document = json.loads(read_bytes(path))
        found = document["predictions"]
        quantiles = [{f"{float(level):g}": value for level, value in each["quantiles"].items()} for each in found]
        costs = [float(each["flops"]) for each in found]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        document, quantiles, costs = {}, [], []
    found_metric = document.get("metric")
    if len(quantiles) != 1 or (found_metric in METRICS and found_metric != metric):  # another table names no metric of ours
        raise UsageError(
            f"{path} holds {len(quantiles)} forecasts of {found_metric or 'no metric'}; a notice takes 1 of {metric}.",
            fix="Write a forecast of the changed run: marin-scale fit TABLE --predict-runs TARGETS --json > forecast.json",
        )
    if not 1 / _OTHER_COST <= costs[0] / flops <= _OTHER_COST:
        raise UsageError(
            f"{path} forecasts a run of {format_flops(costs[0])} FLOPs, and the promised one has {format_flops(flops)}.",
            why="The forecast is of the same run after its change.",
            fix="Write a forecast of its size: marin-scale fit TABLE --predict-runs TARGETS --json > forecast.json",
        )
    return quantiles[0]


_OTHER_COST = 2.0
"""Ratio of FLOPs from which a forecast is of another run; a change of mix or context changes a run's by less."""


def _forecast_again(
    runs_dir: Path, *, target: RunSpec, law: str, on_message: OnMessage = print
) -> tuple[list[dict[str, Any]], dict[str, Any], list[float]]:
    """Return the rows of a ladder's current runs, the fit's document with a forecast of `target`, and its losses."""
    from marin_scaling.forecast.backtest import backtest_of_fit

    result = fit(read_run_table(runs_dir), law=law)
    tested = backtest_of_fit(result)
    document, losses = documented(result, tested, target=_as_forecast(result, target), on_message=on_message)
    return list(result.rows), document, losses


def _as_forecast(result: FitResult, target: RunSpec) -> Target:
    return optimal_target(result, target.flops, unique_tokens=target.unique_tokens)


def documented(
    result: FitResult, tested: Backtest, *, target: Target, on_message: OnMessage
) -> tuple[dict[str, Any], list[float]]:
    """Print the forecast of a run with its sensitivity; return its document and equally likely losses."""
    from marin_scaling.forecast.report import forecast_document, forecast_text, sensitivity_text

    (prediction,) = forecast_runs(result, [target])
    on_message(forecast_text(result, [prediction], tested) + "\n")
    hangs_on = sensitivity(result, prediction)
    on_message(sensitivity_text(hangs_on, flops=target.flops) + "\n")
    if outside := choices_outside([*map(asdict, hangs_on)], prediction.quantiles):
        on_message(wrapped(f"warning: {outside}") + "\n")
    document = forecast_document(result, [prediction], sensitivities=[hangs_on], tested=tested)
    return document, samples_of(result, target).tolist()


def unsaid(promise: Promise, *, of: str) -> list[str]:
    """Return a warning about empty fields of the promise of a file."""
    if not promise.left_out:
        return []
    return [f"{of} leaves {joined([f'promise.{name}' for name in promise.left_out])} empty, and so will the statement"]


def _target_line(target: RunSpec, choice: str) -> str:
    return (
        f"target: width {target.model.hidden_dim}, {format_count(target.model.shape().params_total)} parameters, "
        f"{format_count(target.trained_tokens)} tokens, {format_number(target.flops, 5)} FLOPs, {choice}"
    )
