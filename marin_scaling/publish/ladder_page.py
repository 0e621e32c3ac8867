"""The page of one ladder, and the runs promised from it."""

from __future__ import annotations

import html
import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marin_scaling.errors import FitRefused, MarinScalingError
from marin_scaling.files import read_bytes
from marin_scaling.fitting.result import FitResult
from marin_scaling.forecast.forecast import Forecast, forecast_runs, optimal_target
from marin_scaling.limits import LISTED, RUNS_LISTED, TITLE_CHARACTERS
from marin_scaling.markdown import cell, escape, link, page, page_name, preformatted, table, without_root
from marin_scaling.speedrun.entry import RUNS_PREFIX
from marin_scaling.units import format_count, format_flops
from marin_scaling.untrusted_files import is_present

if TYPE_CHECKING:
    import pandas as pd

    from marin_scaling.publish.charts import MeasuredOutcome
    from marin_scaling.run.audit import Exclusion
    from marin_scaling.run.table import RunTable

HELD_OUT_NAME = "heldout.csv"


@dataclass(frozen=True, kw_only=True)
class PublishedPage:
    """A page and the files that it shows, by path from the root of the generated pages; and its line in the index."""

    files: dict[str, bytes]
    index_row: tuple[str, ...]


def ladder_names(root: Path) -> list[str]:
    """Every ladder that has runs or a file, by name."""
    trained = [path.name for path in (root / "runs").glob("*/") if path.is_dir() and not path.name.startswith(RUNS_PREFIX)]
    planned = [path.stem for path in (root / "ladders").glob("*.yaml")]
    return sorted({name for name in [*trained, *planned] if not name.startswith(".")})


def ladder_page(root: Path, name: str, *, promised: Sequence[PromisedRun] = ()) -> PublishedPage:
    """The page of one ladder; its index row says how many runs it has and whether its law may be used.

    `promised` are the forecasts that were registered from it.
    """
    if not (root / "runs" / name).is_dir():
        return _plain_page(name, "planned; no runs yet", _plan_text(root, name), run_count="0")
    try:
        return _fitted_page(root, name, promised)
    except MarinScalingError as error:
        state = f"no law: {without_root(error.what, root).rstrip('.')}"
        body = preformatted(without_root(str(error), root))
        return _plain_page(name, state, body, run_count=_run_count(root / "runs" / name))


def ladders_index(pages: Sequence[PublishedPage]) -> bytes:
    """The index of all ladders."""
    rows = table(["ladder", "runs", "budgets (FLOPs)", "metric", "state"], [each.index_row for each in pages], right=[1])
    words = "Each ladder is a set of small runs from one recipe. Its page shows the runs, the law, and what was left out."
    return page("Ladders", words, rows if pages else "There is no ladder yet: write one into `ladders/`.").encode()


def _plain_page(name: str, state: str, body: str, *, run_count: str) -> PublishedPage:
    files = {f"ladders/{page_name(name)}.md": page(f"Ladder {name}", escape(state) + ".", body).encode()}
    return PublishedPage(files=files, index_row=(link(name, f"{page_name(name)}.md"), run_count, "", "", escape(state)))


def _run_count(folder: Path) -> str:
    """How many runs a ladder has whose law cannot be had; of a table that cannot be read, "unknown"."""
    from marin_scaling.run.store import run_folders
    from marin_scaling.run.table import read_run_table

    try:
        runs = read_run_table(folder)
    except MarinScalingError:
        return "unknown" if is_present(folder / "runs.csv") else str(len(run_folders(folder)))
    return str(len(runs.frame) + len(runs.excluded))


def _plan_text(root: Path, name: str) -> str:
    from marin_scaling.ladder.config import read_ladder_file
    from marin_scaling.ladder.plan import plan_ladder
    from marin_scaling.ladder.report import ladder_table

    try:
        return preformatted(ladder_table(plan_ladder(read_ladder_file(root / "ladders" / f"{name}.yaml"))))
    except MarinScalingError as error:
        return preformatted(without_root(str(error), root))


def _fitted_page(root: Path, name: str, promised: Sequence[PromisedRun]) -> PublishedPage:
    from marin_scaling.fitting.fit import fit
    from marin_scaling.publish.charts import figure_files, law_chart, law_charts, residual_chart, show_figure
    from marin_scaling.run.table import read_run_table

    folder = root / "runs" / name
    runs, held_out = read_run_table(folder), _held_out(folder)
    result = fit(runs)
    forecasts = _forecasts(result, held_out)
    stem = f"ladders/{page_name(name)}"
    latest = promised[-1:]  # of several for much the same run, labels would lie over each other
    shown, outcomes = [*forecasts, *(each.forecast for each in latest)], [*_outcomes(held_out), *_observed(latest)]
    panels, whole = (draw(result, shown, outcomes=outcomes) for draw in (law_charts, law_chart))
    captions = {"runs": f"The runs of the ladder {name}", "law": "The law through the best of each budget"}
    if (residuals := residual_chart(result)) is not None:
        panels["residuals"], captions["residuals"] = residuals, "By how much each run lies off the law"
    figures = figure_files(panels, whole, page_stem=stem)
    text = page(
        f"Ladder {name}",
        f"{len(result.frame)} runs at {_budgets(result)} FLOPs; {escape(result.metric)}. {escape(result.status.value)}",
        show_figure(page_name(name), captions),
        law_section(result),
        _promised_section(promised),
        _law_section(result, name, root=root),
        _backtest_section(result, root=root),
        _held_out_section(held_out, forecasts),
        _runs_section(result),
        _source_section(folder),
    )
    row = (
        link(name, f"{page_name(name)}.md"),
        str(len(result.frame)),
        _budgets(result),
        escape(result.metric),
        escape(result.status.value),
    )
    return PublishedPage(files={f"{stem}.md": text.encode(), **figures}, index_row=row)


def _budgets(result: FitResult) -> str:
    flops = [point.flops for point in result.points]
    return f"{format_flops(min(flops))} to {format_flops(max(flops))}"


def _law_section(result: FitResult, name: str, *, root: Path) -> str:
    from dataclasses import replace

    from marin_scaling.forecast.report import forecast_text

    shown = replace(result, source=without_root(result.source, root))
    return f"## The law\n\n`marin-scale fit runs/{escape(name)}` prints:\n\n{preformatted(forecast_text(shown, []))}"


def _backtest_section(result: FitResult, *, root: Path) -> str:
    """How the smaller budgets would have forecast the larger ones; the reason where they are too few."""
    from marin_scaling.forecast.backtest import backtest_of_fit, backtest_text

    try:
        said = backtest_text(backtest_of_fit(result))
    except MarinScalingError as error:
        said = error.what
    return f"## What its smaller budgets would have forecast\n\n{preformatted(without_root(said, root))}"


def _held_out(folder: Path) -> RunTable | None:
    from marin_scaling.run.table import read_run_table

    return read_run_table(folder / HELD_OUT_NAME) if is_present(folder / HELD_OUT_NAME) else None


def _forecasts(result: FitResult, held_out: RunTable | None) -> list[Forecast]:
    """A forecast of every size and length that was held out."""
    from marin_scaling.fitting.optima import size_column
    from marin_scaling.forecast.forecast import forecast_runs, targets_of

    if held_out is None or not result.status.may_be_used:
        return []
    frame = held_out.frame.assign(active_params=size_column(held_out.frame))
    sizes = frame[["flops", "params", "tokens", "active_params"]].drop_duplicates().sort_values("flops")
    return forecast_runs(result, targets_of(sizes))


def _outcomes(held_out: RunTable | None) -> list[MeasuredOutcome]:
    from marin_scaling.publish.charts import MeasuredOutcome

    if held_out is None:
        return []
    means = held_out.frame.groupby("flops")["loss"].mean()
    return [MeasuredOutcome(flops=float(flops), loss=float(loss)) for flops, loss in means.items()]  # type: ignore[arg-type]


def _observed(promised: Sequence[PromisedRun]) -> list[MeasuredOutcome]:
    from marin_scaling.publish.charts import MeasuredOutcome

    return [
        MeasuredOutcome(flops=each.forecast.flops, loss=each.observed, label=each.name)
        for each in promised
        if each.observed is not None
    ]


def _promised_section(promised: Sequence[PromisedRun]) -> str:
    if not promised:
        return ""
    rows = [
        [
            link(each.name, f"../preregistrations/{page_name(each.name)}.md"),
            format_flops(each.forecast.flops),
            f"{each.forecast.median:.4f}",
            "{:.4f} to {:.4f}".format(*each.forecast.interval()),
            "" if each.observed is None else f"{each.observed:.4f}",
            each.state,
        ]
        for each in promised
    ]
    header = ["preregistration", "target FLOPs", "forecast", "90 % interval", "observed", "state"]
    words = "The figure shows the last of these, as it was signed, beside the law through all runs that are here now."
    shown = table(header, rows, right=[1, 2, 3, 4], most=LISTED, rest_in="preregistrations")
    return f"## What was forecast from it\n\n{shown}\n\n{words}"


def _held_out_section(held_out: RunTable | None, forecasts: Sequence[Forecast]) -> str:
    if held_out is None:
        return ""
    by_run = {(each.flops, each.params, each.tokens): each for each in forecasts}
    runs = held_out.frame.to_dict("records")
    rows = [_held_out_row(run, by_run.get((run["flops"], run["params"], run["tokens"]))) for run in runs]
    words = (
        "These runs were not fitted. The forecasts beside them were computed after the runs were published, so they test the "
        "method; they are not preregistrations. In the figure, seeds of one run are shown by their mean."
    )
    header = ["run", "FLOPs", "measured", "forecast", "90 % interval", "error", "inside"]
    parts = [f"## Larger runs, held out\n\n{words}", _runs_table(header, rows, HELD_OUT_NAME) if rows else ""]
    if held_out.excluded:
        parts.append(f"Left out of these:\n\n{_left_out_table(held_out.excluded)}")
    return "\n\n".join(part for part in parts if part)


def _held_out_row(run: Mapping[Hashable, Any], forecast: Forecast | None) -> list[str]:
    loss, flops = float(run["loss"]), float(run["flops"])
    measured = [cell(run["run"], TITLE_CHARACTERS), format_flops(flops), f"{loss:.4f}"]
    if forecast is None:
        return [*measured, "none", "", "", ""]
    low, high = forecast.interval()
    return [
        *measured,
        f"{forecast.median:.4f}",
        f"{low:.4f} to {high:.4f}",
        f"{forecast.median / loss - 1:+.2%}",
        "yes" if low <= loss <= high else "no",
    ]


def _runs_section(result: FitResult) -> str:
    frame: pd.DataFrame = result.frame.sort_values(["budget_flops", "params", "run"])
    rows = [
        [
            f"`{run['run'][:16]}`" if _is_digest(run["run"]) else cell(run["run"], TITLE_CHARACTERS),
            format_flops(run["flops"]),
            format_count(run["params"]),
            format_count(run["tokens"]),
            f"{run['tokens'] / run['params']:.3g}",
            f"{run['loss']:.4f}",
        ]
        for run in frame.to_dict("records")
    ]
    header = ["run", "FLOPs", "parameters", "tokens", "tokens per parameter", "loss"]
    return "\n\n".join(
        [
            f"## Runs\n\n{_runs_table(header, rows, 'the table of runs')}",
            f"### Left out\n\n{_left_out_table(result.excluded) if result.excluded else 'No run was left out.'}",
        ]
    )


def _runs_table(header: Sequence[str], rows: Sequence[Sequence[str]], rest_in: str) -> str:
    return table(header, rows, right=[1, 2, 3, 4, 5], most=RUNS_LISTED, rest_in=rest_in)


def _left_out_table(excluded: Sequence[Exclusion]) -> str:
    rows = [[cell(each.run, TITLE_CHARACTERS), cell(each.why)] for each in excluded]
    return table(["run", "why"], rows, most=LISTED, rest_in="marin-scale fit --json")


def _is_digest(run: str) -> bool:
    return len(run) == 64 and run.isalnum()


def _source_section(folder: Path) -> str:
    path = folder / "SOURCE.md"
    text = read_bytes(path).decode(errors="replace") if is_present(path) else ""
    return f"## Source\n\n{preformatted(text, rest_in='SOURCE.md')}" if text else ""


PROGRAM_NAME = "law.js"

_STEPS_A_DECADE = 8
_REACHES = (3, 2, 1)
"""Decades beyond the largest budget: as far as the law says something."""


def law_program() -> bytes:
    """The program of the slider."""
    return resources.files("marin_scaling.publish").joinpath("templates", "law", PROGRAM_NAME).read_bytes()


def law_section(result: FitResult) -> str:
    """The section; empty where the law may not be used."""
    ahead = _ahead(result) if result.status.may_be_used else []
    if not ahead:
        return ""
    start = max(number for number, each in enumerate(ahead) if each.extrapolation <= 1 + 1e-9)
    rows = [_row(each) for each in ahead[start::_STEPS_A_DECADE]]
    header = ["budget (FLOPs)", "beyond the largest", "loss", "90 % interval", "parameters N*", "tokens D*"]
    words = (
        "Of compute-optimal runs of this recipe, by the law through all runs that are here now. The interval assumes that "
        "recipe and law still hold there."
    )
    slider = f'<div data-law="{html.escape(_document(ahead, result, start=start + _STEPS_A_DECADE))}"></div>'
    listed = table(header, rows, right=[0, 1, 2, 3, 4, 5])
    return f'## What more compute would buy\n\n{slider}\n\n{listed}\n\n{words}\n\n<script src="{PROGRAM_NAME}"></script>'


def _ahead(result: FitResult) -> list[Forecast]:
    """Forecasts from the smallest budget on, in equal steps of the logarithm that meet the largest."""
    largest, smallest = result.largest_flops, min(point.flops for point in result.points)
    for decades in _REACHES:
        steps = range(-_STEPS_A_DECADE * 9, _STEPS_A_DECADE * decades + 1)
        budgets = [flops for step in steps if (flops := largest * 10 ** (step / _STEPS_A_DECADE)) >= 0.999 * smallest]
        try:
            return forecast_runs(result, [optimal_target(result, flops) for flops in budgets])
        except FitRefused:
            continue
    return []


def _row(each: Forecast) -> list[str]:
    low, high = each.interval()
    return [
        format_flops(each.flops),
        f"{each.extrapolation:.4g}x",
        f"{each.median:.4f}",
        f"{low:.4f} to {high:.4f}",
        format_count(each.active_params),
        format_count(each.tokens),
    ]


def _document(ahead: list[Forecast], result: FitResult, *, start: int) -> str:
    """The forecasts as the program reads them: flops, 5 %, 50 %, 95 %, parameters, tokens."""
    points = [
        [
            float(f"{value:.6g}")
            for value in (each.flops, each.interval()[0], each.median, each.interval()[1], each.active_params, each.tokens)
        ]
        for each in ahead
    ]
    return json.dumps({"largest": result.largest_flops, "start": min(start, len(points) - 1), "points": points})


@dataclass(frozen=True, kw_only=True)
class PromisedRun:
    """Name and state of a preregistration, the ladder that it rests on, its forecast, and the observed value if any."""

    name: str
    ladder: str
    forecast: Forecast
    observed: float | None
    state: str


def signed_forecast(folder: Path, *, flops: float) -> Forecast:
    """The forecast of the target as it was signed, not as it would be made today: of several, that at the target's FLOPs."""
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
