"""A forecast as JSON document and as text."""

from __future__ import annotations

import io
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from marin_scaling import __version__
from marin_scaling.fitting.combined_law import WEIGHT_BY_LAW
from marin_scaling.fitting.coupled_law import Prior
from marin_scaling.fitting.fit import FitResult, FitStatus
from marin_scaling.fitting.optima import FrontierPoint, has_bowl, size_column
from marin_scaling.forecast.backtest import LEAST_FACTOR, Backtest, backtest_doubts, backtest_scores, tested_text
from marin_scaling.forecast.forecast import Forecast, SensitivityRow
from marin_scaling.forecast.targets import above_optimum, flops_as_in_runs
from marin_scaling.laws import FARTHEST_CHECKED, REPETITIONS
from marin_scaling.printable import TABLE_WIDTH, joined, wrapped
from marin_scaling.run.audit import MOST_EPOCHS, Exclusion, exclusion_text
from marin_scaling.run.cells import repeats_data
from marin_scaling.run.table import BUDGET_SPAN
from marin_scaling.units import counted, format_count, format_flops, format_number, unit_of

if TYPE_CHECKING:
    import pandas as pd


_LISTED_EXCLUSIONS = _LISTED_POINTS = 12  # more are counted; the JSON document lists all

WIDEST_SIZE, LARGEST_GAIN, FARTHEST_USED = 100.0, 0.03, 1e6
"""Bounds beyond which a forecast is not usable: the ends of N*'s interval, what another size gains, and the extrapolation."""
_NOTED_GAIN = 0.005  # ten times the noise of a run's seed

_FARTHEST_RATIO = 10.0
"""Factor beyond the runs' tokens per parameter at which a size is no longer near theirs."""
_SAME_SPARSITY = 1.2
"""Ratio of total / active parameters within which a forecast is of a model as sparse as the runs."""
_SAME_COST = 0.01
"""Relative difference within which FLOPs are counted as in the runs."""
_MOST_BLOCKS, _NAME_WIDTH, _NAME_WIDTH_ALONE = 3, 14, 38  # of tables with and without observed losses

_ASSUMES = {
    True: "The interval assumes that the recipe still holds there, as it did in the ladders that calibrated it.",
    False: "The interval assumes that this form of law, and the recipe behind the runs, still hold there.",
}
_MEDIANS = {
    True: "A forecast is the median over all drawn laws, with what the runs show beyond the formula; it differs from the "
    "formula at the estimates.",
    False: "A forecast is the median over laws refitted to resampled runs; it differs from the formula at the estimates.",
}


def forecast_document(
    result: FitResult,
    forecasts: Sequence[Forecast],
    *,
    sensitivities: Sequence[Sequence[SensitivityRow]] = (),
    tested: Backtest | None = None,
) -> dict[str, Any]:
    """Return the document of `marin-scale fit --json`, which a preregistration carries.

    `sensitivities` are the rows of each forecast in order, or empty. `tested` is the table's back-test, whose scores and
    warnings are included.
    """
    above = above_optimum(result, forecasts)
    predictions = [_prediction(*each, result) for each in zip(forecasts, above, strict=True)]
    for prediction, rows in zip(predictions, sensitivities, strict=False):
        prediction["sensitivity"] = [asdict(row) for row in rows]
    return {
        "law": f"{result.law.name}: {result.law.formula}",
        "why_this_law": result.why_this_law,
        "parameters": dict(result.law.parameters),
        "parameter_intervals": {name: list(ends) for name, ends in result.law.intervals().items()},
        "prior": prior_document(result.law.prior) if result.law.prior else None,
        "allocation": {
            "params_exponent": result.allocation.params_exponent,
            "tokens_exponent": result.allocation.tokens_exponent,
            "read_off": result.allocation.origin,
            "identified": result.allocation.identified,
        },
        "optima": [_optimum(flops, point) for flops, point in _optima(result).items()],
        "status": status_of(result, forecasts, tested).value,
        "may_be_used": status_of(result, forecasts, tested).may_be_used,
        **({"findings": [asdict(each) for each in result.findings]} if result.findings else {}),
        "metric": result.metric,
        "predictions": predictions,
        "excluded": [{"run": each.run, "why": each.why} for each in result.excluded],
        "warnings": [*result.warnings, *_warnings(result, forecasts, tested)],
        **({"backtest": backtest_scores(tested)} if tested else {}),
        **({"effective_tokens": _effective_tokens(result)} if result.has_effective_tokens else {}),
        "column_mapping": dict(result.column_mapping),
        "runs_used": len(result.frame),
        "seed": result.seed,
        "tool": f"marin-scaling {__version__}",
    }


def forecast_text(result: FitResult, forecasts: Sequence[Forecast], tested: Backtest | None = None) -> str:
    """Format runs, exclusions, optima, law, forecasts, the back-test in a line, and warnings as text."""
    parts = [
        _runs_text(result),
        _left_out_text(result.excluded),
        _points_text(result),
        _law_text(result),
        *_forecasts_text(forecasts, result),
        tested_text(tested),
        _warnings_text(result, forecasts, tested),
    ]
    return "\n\n".join(part for part in parts if part)


def prior_document(prior: Prior) -> dict[str, Any]:
    """Return middle and width of each prior; all are normal but those of `coupled_law.HEAVY_TAILED`."""
    return {field.name: asdict(getattr(prior, field.name)) for field in fields(Prior)}


def _optimum(flops: float, point: FrontierPoint) -> dict[str, Any]:
    numbers = {"params": point.params, "tokens": point.tokens, "loss": point.loss, "runs": point.run_count}
    return {"flops": flops, **numbers, "note": point.note or None}


def _prediction(forecast: Forecast, above: float | None, result: FitResult) -> dict[str, Any]:
    return {
        **({"run": forecast.run} if forecast.run else {}),
        "flops": forecast.flops,
        "params": forecast.params,
        "active_params": forecast.active_params,
        "tokens": forecast.tokens,
        **_repetition(forecast),
        "tokens_per_param": forecast.tokens_per_param,
        "optimal": forecast.optimal,
        "params_interval": None if forecast.params_interval is None else list(forecast.params_interval),
        **({} if above is None else {"optimal_params": _optimal_params(result, forecast), "above_optimum": above}),
        "mis_sizing": None if forecast.mis_sizing is None else dict(zip(("half", "double"), forecast.mis_sizing, strict=True)),
        "median": forecast.median,
        "quantiles": {f"{level:g}": value for level, value in forecast.quantiles.items()},
        "bands": dict(forecast.bands),
        "band_notes": dict(forecast.band_notes),
        **({"by_law": dict(forecast.by_law)} if forecast.by_law else {}),
        **({"by_formula": forecast.by_formula} if forecast.by_formula is not None else {}),
        **forecast.measured,
        "extrapolation": forecast.extrapolation,
    }


def _repetition(forecast: Forecast) -> dict[str, float]:
    unique = forecast.unique_tokens
    return {} if unique is None else {"unique_tokens": unique, "effective_tokens": forecast.effective_tokens}


def _effective_tokens(result: FitResult) -> dict[str, Any]:
    """Return how the repeated tokens of the runs were counted."""
    share = result.frame["tokens"] / result.frame["trained_tokens"]
    return {
        "formula": "Muennighoff et al. 2023, eq. 5",
        "repetitions": REPETITIONS,
        "runs": int((share < 1).sum()),
        "least_share": float(share.min()),
    }


def _runs_text(result: FitResult) -> str:
    lines = [f"{result.source}: {len(result.frame)} runs used, {len(result.excluded)} left out; metric {result.metric}"]
    renamed = [f"{theirs} as {ours}" for ours, theirs in result.column_mapping.items() if ours != theirs]
    if result.has_effective_tokens:
        counted_as = _effective_tokens(result)
        lines.append(
            wrapped(
                f"effective tokens: {counted_as['runs']} runs repeat data; their tokens and FLOPs count by what they are worth "
                f"in new tokens, {counted_as['least_share']:.2%} or more of those trained ({counted_as['formula']})"
            )
        )
    return "\n".join([*lines, *([wrapped("columns: " + ", ".join(renamed))] if renamed else [])])


def _left_out_text(excluded: Sequence[Exclusion]) -> str:
    if not excluded:
        return ""
    by_reason = defaultdict[str, list[str]](list)
    for each in excluded:
        by_reason[each.why].append(each.run[:16] if len(each.run) == 64 else each.run)
    lines = [wrapped(exclusion_text(why, runs), "  ") for why, runs in list(by_reason.items())[:_LISTED_EXCLUSIONS]]
    more = sum(map(len, list(by_reason.values())[_LISTED_EXCLUSIONS:]))
    return "\n".join(["left out:", *lines, *([f"  and {more} more: see --json"] if more else [])])


def _points_text(result: FitResult) -> str:
    star = "*" if result.bowls else ""
    params = "active" if "active_params" in result.frame else "params"
    names = (f"tokens D{star}", f"{params} N{star}", f"D{star}/N{star}", f"loss L{star}")
    head = "{:>8} {:>5} {:>10} {:>10} {:>7} {:>9}".format("budget", "runs", *names)
    optima = _optima(result)
    shown = list(optima.items())[-_LISTED_POINTS:]
    rows = [
        f"{format_flops(flops):>8} {point.run_count:>5} {format_count(point.tokens):>10} "
        f"{format_count(point.params):>10} {point.tokens / point.params:>7.3g} {point.loss:>9.5f}{'  *' if point.note else ''}"
        for flops, point in shown
    ]
    shapes = dict.fromkeys(point.note for point in result.points if point.note)
    title = "optimum of each budget" if result.bowls else "runs that no cheaper run beats"
    if len(shown) < len(optima):
        title += f", the largest {len(shown)} of {len(optima)}; all: see --json"
    notes = [*(f"* {shape}" for shape in shapes), *_budgets_without_optimum(result)]
    return "\n".join([f"{title} (FLOPs):", head, *rows, *(wrapped(note, "  ") for note in notes)])


def _optima(result: FitResult) -> dict[float, FrontierPoint]:
    """Return the best point of each nominal budget, or of each point's FLOPs if the table has no budgets."""
    budgets = result.frame["budget_flops"].unique() if result.bowls or "budget_flops" in result.column_mapping else None
    found: dict[float, FrontierPoint] = {}
    for point in result.points:
        flops = point.flops if budgets is None else float(min(budgets, key=lambda each: abs(math.log(each / point.flops))))
        if flops not in found or point.loss < found[flops].loss:
            found[flops] = point
    return found


def _budgets_without_optimum(result: FitResult) -> list[str]:
    """Name the budgets without an optimum, whose runs the law still uses."""
    budgets = [runs for _, runs in result.frame.groupby("budget_flops") if not has_bowl(runs)] if result.bowls else []
    if not budgets:
        return []
    named = [f"{format_flops(runs['budget_flops'].iloc[0])} ({counted(len(runs), 'run')})" for runs in budgets]
    return [f"none at {joined(named)}: a bowl needs three sizes at one cost; the law uses these runs too"]


def _law_text(result: FitResult) -> str:
    law, sizes = result.law, result.allocation
    formula, *definitions = law.formula.split("; ")
    grows = f"C^{sizes.params_exponent:.3f}"
    return "\n".join(
        [
            wrapped(f"law: {law.name} ({result.why_this_law})"),
            wrapped(f"loss = {formula}", "  "),
            *(wrapped(each, "    ") for each in definitions),
            table_text(law.summary().reset_index()),
            *([law.report()] if law.report() else []),
            wrapped(
                f"N* grows as {grows} (read off {sizes.origin})"
                if sizes.identified
                else f"N grows as {grows}, as in {sizes.origin}; sizes and tokens lie on one curve, so N* is not identified",
                "  ",
            ),
        ]
    )


def _forecasts_text(forecasts: Sequence[Forecast], result: FitResult) -> list[str]:
    """Return a block for each forecast; more than `_MOST_BLOCKS` of a table's runs are one table."""
    of_table = [each for each in forecasts if each.run]
    as_table = of_table if len(of_table) > _MOST_BLOCKS else []
    blocks = [_forecast_text(each, result) for each in forecasts if not (as_table and each.run)]
    return [*blocks, *([_runs_table(as_table)] if as_table else []), *_measured_text(of_table)]


def _runs_table(forecasts: Sequence[Forecast]) -> str:
    import pandas as pd

    rows, is_observed = [], any(each.observed is not None for each in forecasts)
    for each in forecasts:
        low, high = each.interval()
        row = {
            "run": _within(each.run, _NAME_WIDTH if is_observed else _NAME_WIDTH_ALONE),
            "N": format_count(each.active_params),
            "D": format_count(each.tokens),
        }
        row |= {"forecast": f"{each.median:.4f}", "90 %": f"{low:.3f}-{high:.3f}"}
        if is_observed:
            known = each.observed is not None
            row |= {"observed": f"{each.observed:.4f}" if known else "", "off": f"{each.error:+.2%}" if known else ""}
            row["inside"] = ("yes" if each.inside_90 else "no") if known else ""
        rows.append(row)
    return f"forecasts of {len(rows)} runs:\n{table_text(pd.DataFrame(rows))}"


def _within(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most // 2]}…{name[len(name) - most + most // 2 + 1 :]}"


def _measured_text(forecasts: Sequence[Forecast]) -> list[str]:
    errors = [abs(each.error) for each in forecasts if each.error is not None]
    if len(errors) < 2:
        return []
    inside = sum(bool(each.inside_90) for each in forecasts)
    return [f"observed: {inside} of {len(errors)} runs in their 90 % intervals, median error {np.median(errors):.2%}"]


def _forecast_text(forecast: Forecast, result: FitResult) -> str:
    low, high = forecast.interval()
    unit, smallest = unit_of(result.metric), float(result.frame["flops"].min())
    bands = [f"{name} ±{half:.4f}" for name, half in forecast.bands.items() if half is not None]
    unknown = [name for name, half in forecast.bands.items() if half is None]
    by_law = [f"{name} {median:.4f} (weight {WEIGHT_BY_LAW[name]:.0%})" for name, median in forecast.by_law.items()]
    left_open = f"; not estimated: {', '.join(unknown)}" if unknown else ""
    unchecked = f"; no forecast beyond {FARTHEST_CHECKED:.0f}x has been checked publicly"
    far = unchecked if forecast.extrapolation > FARTHEST_CHECKED else ""
    return "\n".join(
        [
            wrapped(
                f"forecast {f'of {forecast.run} ' if forecast.run else ''}at {format_number(forecast.flops, 5)} FLOPs "
                f"({_times(forecast.extrapolation)} the largest budget{far}):"
            ),
            f"  loss {forecast.median:.4f}{' ' + unit if unit else ''}, 90 % interval [{low:.4f}, {high:.4f}]",
            *([_observed_line(forecast)] if forecast.observed is not None else []),
            *_size_lines(forecast, result),
            wrapped(f"half-widths: {', '.join(bands)}{left_open}", "  "),
            *([wrapped(f"by law: {', '.join(by_law)}", "  ")] if by_law else []),
            *([f"  formula at the estimates above: {forecast.by_formula:.4f}"] if forecast.by_formula is not None else []),
            *([_below_text(forecast.flops, smallest)] if forecast.flops < smallest / BUDGET_SPAN else []),
        ]
    )


def _observed_line(forecast: Forecast) -> str:
    where = f"{'inside' if forecast.inside_90 else 'outside of'} the interval"
    return f"  observed {forecast.observed:.4f}, {where}; the forecast is off by {forecast.error:+.2%}"


def _below_text(flops: float, smallest: float) -> str:
    shown, least = format_number(flops, 5), format_number(smallest, 5)
    return wrapped(f"warning: {shown} FLOPs is below the smallest run, {least} FLOPs; intervals there are not tested", "  ")


def _size_lines(forecast: Forecast, result: FitResult) -> list[str]:
    star = "*" if forecast.optimal else ""
    total = "" if forecast.active_params == forecast.params else f" active of {format_count(forecast.params)}"
    size = f"N{star} {format_count(forecast.active_params)}{total} parameters"
    if forecast.params_interval:
        size += " [{}, {}]".format(*map(format_count, forecast.params_interval))
    size += f", D{star} {format_count(forecast.tokens)} tokens, {forecast.tokens_per_param:.3g} tokens per parameter"
    sizes = [size]
    if forecast.unique_tokens is not None and forecast.tokens > forecast.unique_tokens:
        epochs, worth = forecast.tokens / forecast.unique_tokens, format_count(forecast.effective_tokens)
        sizes.append(f"{epochs:.3g} epochs of {format_count(forecast.unique_tokens)} unique tokens, worth {worth} new ones")
    if not forecast.optimal:
        sizes.append(_price_text(forecast, result))
    elif forecast.mis_sizing:
        half, double = forecast.mis_sizing
        sizes.append(f"at the same compute half N* would cost {half:.1%} of the loss, twice N* {double:.1%}")
    return [wrapped(each, "  ") for each in sizes]


def _price_text(forecast: Forecast, result: FitResult) -> str:
    """Say where the FLOPs of a given size come from, and how far the size is from the optimum."""
    counted, of_runs = forecast.flops, flops_as_in_runs(result, forecast)
    each = forecast.active_params * forecast.tokens
    same = math.isclose(counted, of_runs, rel_tol=_SAME_COST)
    other = f"in the runs {of_runs / each:.3g} N D, by which this run costs {format_flops(of_runs)}"
    said = f"FLOPs are {counted / each:.3g} N D, {'as in the runs' if same else other}"
    if not result.allocation.identified:
        return f"{said}; the runs do not show the optimum N*"
    [above] = above_optimum(result, [forecast])
    side = "" if above is None else f"{abs(above):.2%} {'above' if above > 0 else 'below'}"
    compared = side and f". This forecast is {side} that of N*"
    return f"{said}; the optimum for these FLOPs is N* {format_count(_optimal_params(result, forecast))}{compared}"


def _optimal_params(result: FitResult, forecast: Forecast) -> float:
    return result.allocation.params_at(flops_as_in_runs(result, forecast))


def status_of(result: FitResult, forecasts: Sequence[Forecast], tested: Backtest | None = None) -> FitStatus:
    """Return the worst status of a fit, its forecasts and its back-test."""
    found = {result.status}
    far = [each for each in forecasts if _far_ratio(result, each)]
    if any(map(_implausible, forecasts)) or any(each.optimal for each in far):
        found.add(FitStatus.IMPLAUSIBLE)
    if far:
        found.add(FitStatus.FAR_SIZE)
    if any(map(_laws_disagree, forecasts)):
        found.add(FitStatus.LAWS_DISAGREE)
    if tested is not None and backtest_doubts(tested):
        found.add(FitStatus.BACKTEST_MISSED)
    return next(each for each in FitStatus if each in found)


def _warnings(result: FitResult, forecasts: Sequence[Forecast], tested: Backtest | None) -> list[str]:
    found = [
        each
        for forecast in forecasts
        for each in (
            *_implausible(forecast),
            _better_size(forecast),
            _far_ratio(result, forecast),
            _laws_disagree(forecast),
            _other_sparsity(result, forecast),
            _repeated_data(result, forecast),
        )
    ]
    if tested is not None:
        found += [*backtest_doubts(tested), _beyond_the_test(forecasts, tested)]
    if result.status not in (FitStatus.USABLE, status_of(result, forecasts, tested)):
        found.append(result.status.value)
    return [each for each in dict.fromkeys(found) if each]


def _implausible(forecast: Forecast) -> list[str]:
    """Return what cannot be meant by a forecast: each is a sentence, and makes the forecast unusable."""
    at = f"forecast at {format_flops(forecast.flops)} FLOPs"
    found = []
    if forecast.params_interval and forecast.params_interval[1] > WIDEST_SIZE * forecast.params_interval[0]:
        low, high = forecast.params_interval
        found.append(f"{at}: N* is only known to lie between {low:.3g} and {high:.3g}, a factor of {high / low:.1g}")
    for name, cost in zip(("half", "twice"), forecast.mis_sizing or (), strict=False):
        if cost < -LARGEST_GAIN:
            found.append(f"{at}: by the law {name} N* would lose {-cost:.1%} less, so N* is not its optimum")
    if forecast.extrapolation > FARTHEST_USED:
        found.append(
            f"{at}: {format_number(forecast.extrapolation, 1)}x the largest budget; forecasts are used up to "
            f"{format_number(FARTHEST_USED)}x"
        )
    return found


def _better_size(forecast: Forecast) -> str:
    """Return the warning that the law prefers half or twice N*, by less than is implausible, or ""."""
    cost, name = min(zip(forecast.mis_sizing or (0.0, 0.0), ("half", "twice"), strict=True))
    told = f"by the law {name} N* would lose {-cost:.1%} less; N*, read off the runs' best sizes, is uncertain"
    return f"forecast at {format_flops(forecast.flops)} FLOPs: {told}" if -LARGEST_GAIN <= cost < -_NOTED_GAIN else ""


def _far_ratio(result: FitResult, forecast: Forecast) -> str:
    """Return the warning that the forecast has many times more or fewer tokens per parameter than any run, or ""."""
    ratios = result.frame["tokens"].to_numpy() / size_column(result.frame)
    low, high, own = float(ratios.min()), float(ratios.max()), forecast.tokens_per_param
    if low / _FARTHEST_RATIO <= own <= high * _FARTHEST_RATIO:
        return ""
    what = "N* would have" if forecast.optimal else "this size has"
    return (
        f"forecast at {format_flops(forecast.flops)} FLOPs: {what} {own:.3g} tokens per parameter, and the runs have "
        f"{low:.3g} to {high:.3g}: no run is near it"
    )


def _laws_disagree(forecast: Forecast) -> str:
    """Return the warning that the laws' medians are outside of the 90 % interval of their mean, or ""."""
    low, high = forecast.interval()
    if all(low <= median <= high for median in forecast.by_law.values()):
        return ""
    medians = ", ".join(f"{name} {median:.4f}" for name, median in forecast.by_law.items())
    return f"forecast at {format_flops(forecast.flops)} FLOPs: the laws disagree by more than its 90 % interval: {medians}"


def _other_sparsity(result: FitResult, forecast: Forecast) -> str:
    """Return the warning that no run has the ratio of total to active parameters of a forecast, or ""."""
    if "active_params" not in result.frame:
        return ""
    of_runs = result.frame["params"].to_numpy() / size_column(result.frame)
    low, high, own = float(of_runs.min()), float(of_runs.max()), forecast.params / forecast.active_params
    if low / _SAME_SPARSITY <= own <= high * _SAME_SPARSITY:
        return ""
    return (
        f"forecast at {format_flops(forecast.flops)} FLOPs: its total / active parameters are {own:.3g}, those of the runs "
        f"{low:.3g} to {high:.3g}; the law extrapolates"
    )


def _repeated_data(result: FitResult, forecast: Forecast) -> str:
    """Return the warning that a forecast takes tokens for new that the runs repeat, or repeats them very often, or ""."""
    at, unique = f"forecast at {format_flops(forecast.flops)} FLOPs", forecast.unique_tokens
    if unique is not None:
        epochs = forecast.tokens / unique
        rough = f"beyond {MOST_EPOCHS:g} the count of effective tokens is rough, and the loss can rise"
        return f"{at}: {epochs:.3g} epochs of {format_number(unique, 3)} unique tokens; {rough}" if epochs > MOST_EPOCHS else ""
    if not repeats_data(result.frame):
        return ""
    known = float((result.frame["trained_tokens"] / result.frame["epochs"]).max())
    if forecast.tokens <= known:
        return ""
    return (
        f"{at}: its {format_number(forecast.tokens, 3)} tokens are taken as new; for {forecast.tokens / known:.3g} epochs of "
        f"the {format_number(known, 3)} unique ones of the runs: --unique-tokens {format_number(known, 3)}"
    )


def _beyond_the_test(forecasts: Sequence[Forecast], tested: Backtest) -> str:
    """Return the warning that a forecast reaches farther beyond the runs than the back-test did, or ""."""
    reach = max((point.extrapolation for point in tested.points), default=1.0)
    farthest = max(forecasts, key=lambda each: each.extrapolation, default=None)
    if farthest is None or farthest.extrapolation <= max(reach, LEAST_FACTOR):
        return ""
    used = f"forecast at {format_flops(farthest.flops)} FLOPs: {_times(farthest.extrapolation)} the compute of the largest run"
    if not tested.points:
        return f"{used}, and no back-test: budgets are too few, or too near each other, to forecast one from smaller ones"
    return f"{used}; the back-test of this table reached {_times(reach)}"


def _times(factor: float) -> str:
    """Format a ratio of compute.

    >>> _times(3333.3), _times(16.66)
    ('3,333x', '16.7x')
    """
    return f"{factor:,.0f}x" if 1e3 <= factor < 1e7 else f"{format_number(factor, 3)}x"


def _warnings_text(result: FitResult, forecasts: Sequence[Forecast], tested: Backtest | None) -> str:
    severity = {each.message: each.severity.value for each in result.findings}
    warnings = [*result.warnings, *_warnings(result, forecasts, tested)]
    lines = [
        wrapped(f"status: {status_of(result, forecasts, tested).value}"),
        *(wrapped(f"{severity.get(each, 'warning')}: {each}", "  ") for each in warnings),
    ]
    if forecasts:
        lines.append(wrapped(_ASSUMES[result.law.is_calibrated]))
        if any(each.by_formula is not None for each in forecasts):
            lines.append(wrapped(_MEDIANS[result.law.is_calibrated]))
    return "\n".join(lines)


def table_text(frame: pd.DataFrame, *, indent: int = 2) -> str:
    """Format a table with a header; numbers align right, and long cells wrap within 80 columns.

    Floats have five significant digits; NaN and None are empty cells.

    >>> import pandas as pd
    >>> print(table_text(pd.DataFrame({"law": ["E", "gamma"], "estimate": [1.70001, 0.1]}), indent=0))
    law    estimate
    E           1.7
    gamma       0.1
    """
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    columns = [[str(name), *map(_cell, frame[name])] for name in frame.columns]
    widths = _column_widths(columns, width=TABLE_WIDTH - indent - 2 * (len(columns) - 1))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), collapse_padding=True)
    for name, column_width in zip(frame.columns, widths, strict=True):
        is_text = frame[name].map(lambda cell: isinstance(cell, str) and not _is_number(cell)).any()
        table.add_column(
            Text(str(name)),
            justify="left" if is_text else "right",
            overflow="fold",
            no_wrap=not is_text and column_width is None,  # a heading of several words is wrapped
            width=column_width,
        )
    for row in frame.itertuples(index=False, name=None):
        table.add_row(*(Text(_cell(cell)) for cell in row))
    buffer = io.StringIO()
    Console(file=buffer, width=TABLE_WIDTH, color_system=None, legacy_windows=False).print(Padding(table, (0, 0, 0, indent)))
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines())


def _column_widths(columns: Sequence[Sequence[str]], *, width: int) -> list[int] | list[None]:
    """Return widths of columns that break no word and share the rest; None for each column if `width` is too small.

    >>> _column_widths([["run", "a b c"], ["loss", "2.51"]], width=9), _column_widths([["abc"], ["de"]], width=4)
    ([5, 4], [None, None])
    """
    widths = [max((len(word) for cell in cells for word in cell.split()), default=0) for cells in columns]
    wanted = [max(map(len, cells)) - least for cells, least in zip(columns, widths, strict=True)]
    left = width - sum(widths)
    if left < 0:
        return [None] * len(columns)
    for served, number in enumerate(sorted(range(len(columns)), key=wanted.__getitem__)):
        more = min(wanted[number], left // (len(columns) - served))
        widths[number] += more
        left -= more
    return widths


def _cell(cell: Any) -> str:
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    return format_number(cell, 5) if isinstance(cell, float) else str(cell)


def _is_number(cell: str) -> bool:
    return not cell or cell[0].isdigit() or (cell[0] in "+-[" and cell[1:2].isdigit())


def sensitivity_text(rows: Sequence[SensitivityRow], *, flops: float) -> str:
    """Format each choice, its median, and its difference from the forecast at `flops`."""
    first, width = rows[0].median or 1.0, max(len(row.choice) for row in rows)
    lines = [f"sensitivity of the forecast at {format_number(flops, 5)} FLOPs (medians):"]
    for row in rows:
        value = f"{row.median:8.4f} {row.median / first - 1:+8.2%}" if row.median is not None else f"{'none':>8}"
        lines.append(f"  {row.choice:<{width}} {value}")
    lines += [wrapped(f"{row.choice} could not be fitted: {row.why_none}", "  ") for row in rows if row.median is None]
    lines.append(
        wrapped("A refitted surface is one least-squares fit; --law additive-surface prints the median of its bootstrap.", "  ")
    )
    return "\n".join(lines)
