"""Find the run that a preregistration, a digest or a folder names, and track a run against its forecast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from marin_scaling.errors import MarinScalingError, UsageError
from marin_scaling.fitting.fit import fit
from marin_scaling.forecast.forecast import Target, forecast_runs
from marin_scaling.forecast.loss_curve import CurveForecast, curve_from_ladder, losses_at_fractions, marks_of_steps
from marin_scaling.forecast.tracking import EarlierForecast, FollowedCurve, Tracked, finished_curves, track_losses
from marin_scaling.ladder.config import read_ladder_file
from marin_scaling.preregistration.events.notice import ending_names, restarts_of
from marin_scaling.preregistration.events.observation import curve_keys, places_of, require_source, runs_in_logs
from marin_scaling.preregistration.events.seal import whole_folder
from marin_scaling.preregistration.layout import SEAL_NAME, STATEMENT_NAME
from marin_scaling.preregistration.register import Registration, answering_spec, is_outside_run
from marin_scaling.preregistration.registry import REGISTRY, one_folder, read_registration, read_subject_in, signers_path
from marin_scaling.preregistration.statement import prediction_at, size_of
from marin_scaling.preregistration.verify.authenticity import Verified, verify_folder
from marin_scaling.run.curves import find_spec, logged_curve, loss_at_end, losses_so_far, read_curve, rows_so_far
from marin_scaling.run.import_runs import joined_run
from marin_scaling.run.spec import RunSpec
from marin_scaling.run.stability import GRADIENT_NORM_KEYS, stability_of_log, stability_of_rows, without_norms
from marin_scaling.run.store import RUNS_DIR, read_runs, workplace
from marin_scaling.run.table import read_run_table
from marin_scaling.run.trackers import run_of_table
from marin_scaling.untrusted_files import is_present


def named_spec(run: str, *, registry: Path = REGISTRY) -> RunSpec:
    """Return the spec of a run by its preregistration (name or path), the first digits of its digest, or its folder.

    `UsageError` if there is no such run, or more than one.
    """
    folder = registration_folder(run, registry=registry)
    if folder is not None:
        return answering_spec(folder)
    return find_spec(Path(run).name if Path(run).is_dir() else run, workplace())


def registration_folder(name: str, *, registry: Path) -> Path | None:
    """Return the folder of a preregistration by name or path (of one's own sealed one, its files); None if there is none."""
    places = (registry / name, Path(name))
    known = (place for place in places if name and any(is_present(place / file) for file in (STATEMENT_NAME, SEAL_NAME)))
    return next(map(whole_folder, known), None)


def stated_steps(stated: int | None, *, folder: Path) -> int:
    """Return the stated number of steps seen, default 0; `UsageError` if none is stated and the target's run has begun."""
    from marin_scaling.run.plan import hardware_of
    from marin_scaling.train.session import synced_paths

    if stated is not None:
        return stated
    if is_outside_run(folder):
        raise UsageError(
            f"The run of {folder.name} is trained elsewhere.",
            why="The number of seen steps is signed, and no record of the run is here.",
            fix="State how many steps of its loss you have seen, 0 if none: --steps-seen N",
        )
    spec = answering_spec(folder)
    done = len(losses_so_far(spec, synced_paths([spec], storage=hardware_of(spec.ladder).storage)))
    if done:
        raise UsageError(
            f"The run of {folder.name} has started here: step {done} of {spec.train_steps}.",
            why="The number of seen steps is signed.",
            fix="State how many steps of the loss you have seen, 0 if none: --steps-seen N",
        )
    return 0


def track(
    run: str,
    against: str = "",
    *,
    steps: int | None = None,
    columns: Mapping[str, str] | None = None,
    registry: Path = REGISTRY,
) -> Tracked:
    """Forecast where a run will end, from its training loss so far and the curves of its ladder's finished runs.

    `run` is a preregistration, the first digits of a digest, or a table of steps and losses, whose columns `columns` may name;
    `against` is a preregistration or a ladder file (default: the run's); `steps` cuts the curve. Errors as in `named_spec`,
    `RunTableError` for a damaged table.
    """
    from marin_scaling.run.plan import hardware_of
    from marin_scaling.train.session import synced_paths

    spec = _spec_of(run, against, registry=registry)
    is_table = Path(run).is_file()
    place = synced_paths([spec], storage=None if is_table else hardware_of(spec.ladder).storage)
    rows = () if is_table else rows_so_far(spec, place)[:steps]
    losses, stability = [row.train_loss_nats_per_token for row in rows], stability_of_rows(rows)
    if is_table:
        losses = read_curve(Path(run), train_steps=spec.train_steps, columns=columns)
        stability = stability_of_log(run_of_table(Path(run), columns=columns, curves=GRADIENT_NORM_KEYS, steps=steps))
    curves = finished_curves(read_runs(_ladder_of(spec, against)), without=spec.digest)
    forecast = _forecast_of(spec, against or run, registry=registry)
    ended_at = None if is_table or steps else loss_at_end(spec, place)
    found = track_losses(losses[:steps], spec, curves, forecast=forecast, ended_at=ended_at, stability=stability)
    return replace(found, followed=_followed(spec, losses[:steps], registration_folder(against or run, registry=registry)))


def _followed(spec: RunSpec, losses: Sequence[float | None], folder: Path | None) -> FollowedCurve | None:
    """Return the training losses of a run against the signed forecast of their curve; None without such a forecast."""
    signed = {} if folder is None else _signed_curve(read_subject_in(folder, "forecast.json"), flops=spec.flops)
    known = [each for each in losses if each is not None]
    if folder is None or not signed or not known:
        return None
    ladder, target, samples = (read_subject_in(folder, f"{name}.json") for name in ("ladder", "target", "samples"))
    seen = np.array(marks_of_steps(losses, train_steps=spec.train_steps), dtype=np.float64)
    return FollowedCurve(
        run=spec.directory_name,
        metric="nats_per_token",
        fraction=len(losses) / spec.train_steps,
        last_loss=known[-1],
        signed=signed,
        seen=seen,
        now=curve_from_ladder(ladder, size_of(target), samples["losses"], seen=seen),
        end=signed[1.0],
    )


def _signed_curve(forecast: Mapping[str, Any], *, flops: float) -> dict[float, dict[float, float]]:
    """Return the signed quantiles of the loss by fraction and level; empty if only the end was forecast."""
    return {
        row["fraction"]: {float(level): value for level, value in row["quantiles"].items()}
        for row in prediction_at(forecast, flops=flops).get("curve", [])
    }


def track_outside(registration: Path | str | Registration, *logs: Path | str, registry: Path | str = REGISTRY) -> FollowedCurve:
    """Follow an outside run by its log, against the signed forecast of its curve, or of its end where no curve was forecast.

    `logs` are files, folders or `wandb:ENTITY/PROJECT`, of a restarted run one for each id. `UsageError` for a run of this
    tool, `VerificationError` for a forecast that is not authentic, or logs of other runs, projects or trackers, of an earlier
    start, or with a gap before a restart.
    """
    folder = one_folder(str(getattr(registration, "folder", registration)), registry=Path(registry))
    verified = verify_folder(folder, allowed_signers=signers_path(folder))
    if not isinstance(verified, Verified) or not verified.statement.is_outside:
        raise UsageError(
            f"{folder.name} does not forecast an outside run, and --log is given.",
            fix=f"Track it by its own record: marin-scale track {folder.name}",
        )
    target, ladder = verified.subjects["target.json"], verified.subjects["ladder.json"]
    outcome, restarts = target["outcome"], restarts_of(verified.notices)
    curves = ladder.get("curves", {"key": None, "train_steps": None})
    keys = curve_keys(target, curves)
    runs = runs_in_logs(outcome, restarts, places_of(logs), curves=(*keys, *GRADIENT_NORM_KEYS))
    require_source(runs, target, verified.statement, restarts=restarts)
    run = joined_run(runs)
    with_losses = replace(run, history=without_norms(run))
    logged = logged_curve(
        with_losses, key=keys[0], tokens_keys=keys[1:], tokens=target["tokens"], train_steps=curves["train_steps"]
    )
    seen, end = losses_at_fractions(logged.fractions, logged.losses), verified.statement.quantiles
    signed = _signed_curve(verified.subjects["forecast.json"], flops=target["flops"])
    now = CurveForecast(by_fraction={}, end=end)
    if signed:
        now = curve_from_ladder(ladder, target, verified.subjects["samples.json"]["losses"], seen=seen)
    return FollowedCurve(
        run=outcome["run"],
        metric=target["evaluation"]["metric"],
        fraction=float(logged.fractions[-1]),
        last_loss=float(logged.losses[-1]),
        signed=signed,
        seen=seen,
        now=now,
        end=end,
        broken_at=logged.broken_at,
        tokens_share=logged.tokens_share,
        stability=stability_of_log(run),
    )


def _spec_of(run: str, against: str, *, registry: Path) -> RunSpec:
    """Return the run to track; for a table, the target of the preregistration it is tracked against."""
    if not Path(run).is_file():
        return named_spec(run, registry=registry)
    folder = registration_folder(against, registry=registry)
    if folder is None:
        reason = f"{against} is not a preregistration" if against else "--against is missing"
        raise UsageError(
            f"{run} is a table of losses, and {reason}.",
            why="Curves are compared at equal fractions of training, which need the number of steps.",
            fix="Name the preregistration of its target: --against FOLDER",
        )
    return answering_spec(folder)


def _forecast_of(spec: RunSpec, against: str, *, registry: Path) -> EarlierForecast:
    """Return the signed forecast; else the law's forecast for this size and length, or the reason for having none."""
    folder = registration_folder(against, registry=registry)
    if folder is not None:
        ended = "".join(f"; it has its {name}" for name in ending_names(folder))
        return EarlierForecast(quantiles=read_registration(folder).quantiles, by=f"signed: {folder.name}{ended}")
    shape, ladder = spec.model.shape(), _ladder_of(spec, against)
    target = Target(
        flops=spec.flops,
        params=shape.params_total,
        tokens=spec.trained_tokens,
        active_params=shape.params_active,
        unique_tokens=spec.unique_tokens,
    )
    try:
        table = read_run_table(
            ladder, drop=[spec.digest] if spec.role == "rung" and (ladder / spec.directory_name).exists() else []
        )
        return EarlierForecast(
            quantiles=forecast_runs(fit(table), [target])[0].quantiles, by=f"law of the other runs in {ladder}"
        )
    except MarinScalingError as error:
        return EarlierForecast(quantiles=None, by=error.what)


def _ladder_of(spec: RunSpec, against: str) -> Path:
    is_file = against.endswith((".yaml", ".yml"))
    return RUNS_DIR / (read_ladder_file(Path(against)).name if is_file else spec.ladder)
