"""Page of one ladder, and the forecasts registered from it."""

from __future__ import annotations

import html
import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from marin_scaling.errors import FitRefused, MarinScalingError
from marin_scaling.files import read_bytes
from marin_scaling.fitting.fit import FitResult, fit
from marin_scaling.fitting.optima import size_column
from marin_scaling.forecast.backtest import backtest_of_fit, backtest_text
from marin_scaling.forecast.forecast import Forecast, forecast_runs, optimal_target, targets_of
from marin_scaling.forecast.report import forecast_text
from marin_scaling.ladder.config import read_ladder_file
from marin_scaling.ladder.plan import ladder_table, plan_at, plan_ladder
from marin_scaling.markdown import Markdown, cell, link, page_name, without_root
from marin_scaling.preregistration.outcome import State
from marin_scaling.printable import LISTED, RUNS_DRAWN, RUNS_LISTED, TITLE_CHARACTERS
from marin_scaling.publish.charts import (
    MOST_PANELS,
    MeasuredOutcome,
    law_charts,
    loads_chart,
    norms_chart,
    residual_chart,
)
from marin_scaling.publish.figures import figure_files, picture_files, render, show_figure, show_pictures, state_chip
from marin_scaling.recipe.find import RECIPES, find_recipe
from marin_scaling.run.stability import Stability, entropy_share, extreme_loads, norm_spikes, stability_of_rows
from marin_scaling.run.store import HistoryRow, StoredRun, read_runs, run_folders
from marin_scaling.run.table import RunTable, read_run_table
from marin_scaling.speedrun.entry import RUNS_PREFIX
from marin_scaling.units import format_count, format_flops
from marin_scaling.untrusted_files import is_present

HELD_OUT_NAME = "heldout.csv"


@dataclass(frozen=True, kw_only=True)
class PublishedPage:
    """Page with the files that it shows, by path below the generated pages, and its row in the index."""

    files: dict[str, bytes]
    index_row: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class FittedLadder:
    """Law of a ladder, and forecasts of held-out runs with their measured losses."""

    name: str
    result: FitResult
    forecasts: Sequence[Forecast]
    outcomes: Sequence[MeasuredOutcome]


@dataclass(frozen=True, kw_only=True)
class LadderPage(PublishedPage):
    """Page of a ladder; `fitted` is None without a law."""

    fitted: FittedLadder | None = None


@dataclass(frozen=True, kw_only=True)
class PromisedRun:
    """Name, state, ladder and forecast of a preregistration, with the observed value if there is one."""

    name: str
    ladder: str
    forecast: Forecast
    observed: float | None
    state: State


def ladder_names(root: Path) -> list[str]:
    """Return the names of all ladders that have runs or a file."""
    trained = [path.name for path in (root / "runs").glob("*/") if path.is_dir() and not path.name.startswith(RUNS_PREFIX)]
    planned = [path.stem for path in (root / "ladders").glob("*.yaml")]
    return sorted({name for name in [*trained, *planned] if not name.startswith(".")})


def ladder_page(root: Path, name: str, *, promised: Sequence[PromisedRun] = ()) -> LadderPage:
    """Return the page of one ladder; its index row has the number of runs and the state of its law.

    `promised` are the forecasts registered from it.
    """
    if not (root / "runs" / name).is_dir():
        return _plain_page(name, "planned; no runs yet", _plan_text(root, name), run_count="0")
    try:
        return _fitted_page(root, name, promised)
    except MarinScalingError as error:
        state, reason = f"no law: {without_root(error.what, root).rstrip('.')}", without_root(str(error), root)
        return _plain_page(name, state, reason, run_count=_run_count(root / "runs" / name))


def ladders_index(pages: Sequence[PublishedPage]) -> bytes:
    """Return the index of all ladders."""
    return render("ladders.md.j2", title="Ladders", rows=[each.index_row for each in pages]).encode()


def _plain_page(name: str, state: str, reason: str, *, run_count: str) -> LadderPage:
    text = render("ladder_without_law.md.j2", title=f"Ladder {name}", state=state, reason=reason)
    row = (link(name, f"{page_name(name)}.md"), run_count, "", "", state)
    return LadderPage(files={f"ladders/{page_name(name)}.md": text.encode()}, index_row=row)


def _run_count(folder: Path) -> str:
    """Return the number of runs of a ladder without a law; "unknown" if its table cannot be read."""
    try:
        runs = read_run_table(folder)
    except MarinScalingError:
        return "unknown" if is_present(folder / "runs.csv") else str(len(run_folders(folder)))
    return str(len(runs.frame) + len(runs.excluded))


def _plan_text(root: Path, name: str) -> str:
    try:
        return ladder_table(plan_ladder(read_ladder_file(root / "ladders" / f"{name}.yaml")))
    except MarinScalingError as error:
        return without_root(str(error), root)


def _fitted_page(root: Path, name: str, promised: Sequence[PromisedRun]) -> LadderPage:
    folder, stem = root / "runs" / name, f"ladders/{page_name(name)}"
    result, held_out = fit(read_run_table(folder)), _held_out(folder)
    fitted = FittedLadder(name=name, result=result, forecasts=_forecasts(result, held_out), outcomes=_outcomes(held_out))
    figure, figures = _figure(fitted, promised=promised, stem=stem)
    stability, drawn = stability_section(read_runs(folder), stem=stem)
    text = render(
        "ladder.md.j2",
        title=f"Ladder {name}",
        name=name,
        result=result,
        budgets=_budgets(result),
        figure=figure,
        **_law_values(result, root, name),
        promised=list(map(_promised_row, promised)),
        held_out=None if held_out is None else _held_out_rows(held_out, fitted.forecasts),
        held_out_left=_left_out(held_out) if held_out else [],
        runs=_run_rows(result),
        left_out=_left_out(result),
        source=_source(folder),
        stability=stability,
        RUNS_LISTED=RUNS_LISTED,
    )
    row = (link(name, f"{page_name(name)}.md"), str(len(result.frame)), _budgets(result), result.metric, result.status.value)
    return LadderPage(files={f"{stem}.md": text.encode(), **figures, **drawn}, index_row=row, fitted=fitted)


def _figure(fitted: FittedLadder, *, promised: Sequence[PromisedRun], stem: str) -> tuple[Markdown, dict[str, bytes]]:
    """Return the figure's Markdown and files."""
    result, name = fitted.result, fitted.name
    latest = promised[-1:]  # labels of several forecasts of similar runs would overlap
    shown = [*fitted.forecasts, *(each.forecast for each in latest)]
    outcomes = [*fitted.outcomes, *observed_outcomes(latest)]
    panels = law_charts(result, shown, outcomes=outcomes, most_runs=RUNS_DRAWN)
    whole = panels.pop("whole")
    some = f" ({RUNS_DRAWN} or fewer of {len(result.frame)})" if len(result.frame) > RUNS_DRAWN else ""
    captions = {"runs": f"The runs of the ladder {name}{some}", "law": "The law through the best of each budget"}
    if (residuals := residual_chart(result)) is not None:
        panels["residuals"], captions["residuals"] = residuals, "By how much each run lies off the law"
    title = f"Ladder {name}: runs, law and forecasts"
    files = figure_files({**panels, "whole": whole}, whole, page_stem=stem, page=page_name(name), title=title)
    return show_figure(page_name(name), captions), files


@dataclass(frozen=True, kw_only=True)
class StabilitySection:
    """Figures and table of the runs that recorded gradient norms."""

    figures: Markdown
    rows: Sequence[Sequence[str]]


def stability_section(runs: Sequence[StoredRun], *, stem: str) -> tuple[StabilitySection | None, dict[str, bytes]]:
    """Return the section of a page about the stability of runs, and its figures; None if no run recorded gradient norms."""
    found = {f"{run.spec.rung_name} ({run.record.spec_digest[:6]})": (run, rows) for run in runs if (rows := _normed_rows(run))}
    if not found:
        return None, {}

    dearest = list(found)[-MOST_PANELS:]
    tokens = {name: found[name][0].spec.trained_tokens // found[name][0].spec.train_steps for name in dearest}
    panels = {"norms": norms_chart({name: found[name][1] for name in dearest}, tokens_per_step=tokens)}
    captions = {"norms": "Gradient norms of the most expensive runs by trained tokens, a panel for each run"}
    mixture = next((name for name in reversed(found) if any(row.expert_shares for row in found[name][1])), None)
    if mixture is not None:
        panels["loads"] = loads_chart({mixture: found[mixture][1]})
        captions["loads"] = f"Loads of the experts of {mixture} by batch, in even shares, a panel for each layer"
    table = [_stability_row(name, stability_of_rows(each)) for name, (_, each) in found.items()]
    figures = show_pictures(Path(stem).name, captions)
    return StabilitySection(figures=figures, rows=table), picture_files(panels, page_stem=stem)


def _normed_rows(run: StoredRun) -> Sequence[HistoryRow]:
    """Return the rows of a run that recorded gradient norms; none of another, or of a curve that `verify` refuses."""
    try:
        is_older = b'"gradient_norm"' not in read_bytes(run.folder / "history.json")
        rows = () if is_older else run.history().rows
    except MarinScalingError:
        return ()
    return rows if any(row.gradient_norm for row in rows) else ()


def _stability_row(name: str, found: Stability) -> list[str]:
    spikes = norm_spikes(found.steps, found.norms)
    highest = max((each.norm / each.median for each in spikes), default=None)
    least, most = extreme_loads(found.shares) if found.shares else ((0.0, 0, 0), (0.0, 0, 0))
    share = entropy_share(found)
    return [
        name,
        f"{median(found.norms):.3g}",
        f"{found.norms[-1]:.3g}",
        f"{len(spikes)}" + ("" if highest is None else f", up to {highest:.3g}x"),
        "" if share is None else f"{share:.0%}",
        f"{least[0]:.2f} to {most[0]:.2f}" if found.shares else "",
        "" if found.dropped is None else f"{found.dropped:.2%}",
    ]


def _budgets(result: FitResult) -> str:
    flops = [point.flops for point in result.points]
    return f"{format_flops(min(flops))} to {format_flops(max(flops))}"


def _law_values(result: FitResult, root: Path, name: str) -> dict[str, Any]:
    """Return the template's values for the law: report, back-test, and forecasts at larger budgets."""
    try:
        too_many = f"not made here of {len(result.frame)} runs, more than {RUNS_LISTED}: marin-scale backtest"
        backtest = backtest_text(backtest_of_fit(result)) if len(result.frame) <= RUNS_LISTED else too_many
    except MarinScalingError as error:
        backtest = error.what
    ahead = _ahead(result) if result.status.may_be_used else []
    start = max((number for number, each in enumerate(ahead) if each.extrapolation <= 1 + 1e-9), default=0)
    return {
        "law": forecast_text(replace(result, source=without_root(result.source, root)), []),
        "backtest": without_root(backtest, root),
        "ahead": [_ahead_row(each) for each in ahead[start::_STEPS_A_DECADE]],
        "slider": _slider(ahead, result, start=start + _STEPS_A_DECADE, **_training_of(root, name)),
    }


def _held_out(folder: Path) -> RunTable | None:
    return read_run_table(folder / HELD_OUT_NAME) if is_present(folder / HELD_OUT_NAME) else None


def _forecasts(result: FitResult, held_out: RunTable | None) -> list[Forecast]:
    """Return a forecast for every held-out size and length."""
    if held_out is None or not result.status.may_be_used:
        return []
    frame = held_out.frame.assign(active_params=size_column(held_out.frame))
    sizes = frame[["flops", "params", "tokens", "active_params"]].drop_duplicates().sort_values("flops")
    return forecast_runs(result, targets_of(sizes.tail(LISTED)))


def _outcomes(held_out: RunTable | None) -> list[MeasuredOutcome]:
    if held_out is None:
        return []
    means = held_out.frame.groupby("flops")["loss"].mean().tail(LISTED)
    return [MeasuredOutcome(flops=float(flops), loss=float(loss)) for flops, loss in means.items()]  # type: ignore[arg-type]


def observed_outcomes(promised: Sequence[PromisedRun]) -> list[MeasuredOutcome]:
    """Return the measured losses of promised runs that have one."""
    known = [(each, each.observed) for each in promised if each.observed is not None]
    return [MeasuredOutcome(flops=each.forecast.flops, loss=loss, label=each.name) for each, loss in known]


def _promised_row(each: PromisedRun) -> list[str]:
    return [
        link(each.name, f"../preregistrations/{page_name(each.name)}.md"),
        format_flops(each.forecast.flops),
        f"{each.forecast.median:.4f}",
        "{:.4f} to {:.4f}".format(*each.forecast.interval()),
        "" if each.observed is None else f"{each.observed:.4f}",
        state_chip(each.state),
    ]


def _held_out_rows(held_out: RunTable, forecasts: Sequence[Forecast]) -> list[list[str]]:
    by_run = {(each.flops, each.params, each.tokens): each for each in forecasts}
    runs = held_out.frame.sort_values("flops").tail(LISTED).to_dict("records")
    return [_held_out_row(run, by_run.get((run["flops"], run["params"], run["tokens"]))) for run in runs]


def _held_out_row(run: Mapping[Hashable, Any], forecast: Forecast | None) -> list[str]:
    loss = float(run["loss"])
    measured = [cell(run["run"], TITLE_CHARACTERS), format_flops(float(run["flops"])), f"{loss:.4f}"]
    if forecast is None:
        return [*measured, "none", "", "", ""]
    low, high = forecast.interval()
    interval, error = f"{low:.4f} to {high:.4f}", f"{forecast.median / loss - 1:+.2%}"
    return [*measured, f"{forecast.median:.4f}", interval, error, "yes" if low <= loss <= high else "no"]


def _run_rows(result: FitResult) -> list[list[str]]:
    return [
        [
            Markdown(f"`{run['run'][:16]}`") if _is_digest(run["run"]) else cell(run["run"], TITLE_CHARACTERS),
            format_flops(run["flops"]),
            format_count(run["params"]),
            format_count(run["tokens"]),
            f"{run['tokens'] / run['params']:.3g}",
            f"{run['loss']:.4f}",
        ]
        for run in result.frame.sort_values(["budget_flops", "params", "run"]).to_dict("records")
    ]


def _left_out(runs: FitResult | RunTable) -> list[list[str]]:
    return [[cell(each.run, TITLE_CHARACTERS), cell(each.why)] for each in runs.excluded]


def _is_digest(run: str) -> bool:
    return len(run) == 64 and run.isascii() and run.isalnum()


def _source(folder: Path) -> str:
    path = folder / "SOURCE.md"
    return read_bytes(path).decode(errors="replace") if is_present(path) else ""


PROGRAM_NAME = "law.js"
_STEPS_A_DECADE = 8
_REACHES = (3, 2, 1)
"""Decades beyond the largest budget, tried in this order."""


def _ahead(result: FitResult) -> list[Forecast]:
    """Return forecasts from the smallest budget on, in equal logarithmic steps aligned with the largest budget."""
    largest, smallest = result.largest_flops, min(point.flops for point in result.points)
    for decades in _REACHES:
        steps = range(-_STEPS_A_DECADE * 9, _STEPS_A_DECADE * decades + 1)
        budgets = [flops for step in steps if (flops := largest * 10 ** (step / _STEPS_A_DECADE)) >= 0.999 * smallest]
        try:
            return forecast_runs(result, [optimal_target(result, flops) for flops in budgets])
        except FitRefused:
            continue
    return []


def _ahead_row(each: Forecast) -> list[str]:
    return [
        format_flops(each.flops),
        f"{each.extrapolation:.4g}x",
        f"{each.median:.4f}",
        "{:.4f} to {:.4f}".format(*each.interval()),
        format_count(each.active_params),
        format_count(each.tokens),
    ]


def _slider(
    ahead: Sequence[Forecast], result: FitResult, *, start: int, recipe: str, hardware: Mapping[str, float | None]
) -> Markdown:
    """Return the slider's element; it holds FLOPs, 5 %, 50 %, 95 %, parameters and tokens of each forecast.

    It also holds the recipe's plan of each budget, and speed and price of the hardware if they are known.
    """
    rows = [
        (each.flops, each.interval()[0], each.median, each.interval()[1], each.active_params, each.tokens) for each in ahead
    ]
    points = [[float(f"{value:.9g}") for value in row] for row in rows]
    document: dict[str, Any] = {
        "largest": result.largest_flops,
        "start": min(start, len(points) - 1),
        "points": points,
        **hardware,
    }
    document |= {"recipe": recipe, "settings": _settings(ahead, recipe)} if recipe else {}
    return Markdown(f'<div data-law="{html.escape(json.dumps(document))}"></div>')


def _training_of(root: Path, name: str) -> dict[str, Any]:
    """Return the recipe and the hardware of a ladder by its file; without one, the recipe that has the ladder's name."""
    path = root / "ladders" / f"{name}.yaml"
    try:
        file = read_ladder_file(path) if is_present(path) else None
    except MarinScalingError:
        file = None  # `marin-scale ladder` says why
    if file is None:
        return {"recipe": name if name in RECIPES else "", "hardware": {}}
    speed = {"rate": file.hardware.sustained_flops_per_second, "price": file.hardware.cost_per_hour}
    return {"recipe": file.recipe, "hardware": speed}


def _settings(ahead: Sequence[Forecast], recipe: str) -> list[str]:
    """Return the recipe's settings for each budget at the best size; empty for an impossible run."""
    settings = []
    for each in ahead:
        try:
            plan = plan_at(find_recipe(recipe), budget_flops=each.flops, params=each.active_params)
        except MarinScalingError:
            settings.append("")
            continue
        shape, rate = plan.shape, plan.hyperparameters.learning_rate
        batch = f"batches of {plan.batch_size} x {shape.seq_len} tokens, {plan.train_steps:,} steps"
        settings.append(f"width {shape.hidden_dim}, {shape.num_layers} layers, {batch}, learning rate {rate:.3g}")
    return settings


def signed_forecast(folder: Path, *, flops: float) -> Forecast:
    """Return the forecast of the target as it was signed; the one nearest to the target's FLOPs if there are several."""
    predictions = json.loads(read_bytes(folder / "forecast.json"))["predictions"]
    prediction = min(predictions, key=lambda each: abs(each["flops"] - flops))
    names = ("flops", "params", "tokens", "median", "bands", "extrapolation")
    return Forecast(
        quantiles={float(level): value for level, value in prediction["quantiles"].items()},
        active_params=prediction.get("active_params", prediction["params"]),
        band_notes=prediction.get("band_notes", {}),
        optimal=prediction.get("optimal", True),
        params_interval=None,
        mis_sizing=None,
        **{name: prediction[name] for name in names},
    )
