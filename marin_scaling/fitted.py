"""Python interface to fits, with the numbers of `marin-scale fit`: runs in; estimates, forecasts, tables and figures out."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

import numpy as np

from marin_scaling.errors import FitRefused, RunTableError, UsageError, missing_extra
from marin_scaling.fitting.fit import FitResult, FitStatus
from marin_scaling.fitting.fit import fit as fit_table
from marin_scaling.fitting.law import DEFAULT_LAW, LawKind
from marin_scaling.forecast.backtest import Backtest, backtest_of_fit
from marin_scaling.forecast.backtest import backtest as backtest_table
from marin_scaling.forecast.forecast import Forecast, SensitivityRow, forecast, forecast_runs, samples, sensitivity
from marin_scaling.forecast.next_runs import SizeForInference, size_for_inference
from marin_scaling.forecast.report import forecast_text, sensitivity_text, status_of
from marin_scaling.forecast.speedup_chain import SpeedupChain, chain_of_tables, names_of
from marin_scaling.forecast.targets import WantedRun, target_runs, targets_of_frame
from marin_scaling.forecast.tuning import TunedTarget, Tuning
from marin_scaling.forecast.tuning import tune as tune_table
from marin_scaling.laws import Array
from marin_scaling.run.table import ReadingChoices, RunTable, read_run_table, table_of_frame
from marin_scaling.run.tuning_runs import SweepChoices
from marin_scaling.units import format_flops, format_number, parse_flops

if TYPE_CHECKING:
    import pandas as pd


_SAME_FLOPS = 1.25
"""Largest ratio of stated FLOPs to those of params and tokens."""


def load_runs(
    runs: pd.DataFrame | RunTable | Path | str,
    *,
    columns: Mapping[str, str] | None = None,
    units: Mapping[str, str] | None = None,
    where: Mapping[str, str] | None = None,
    keep: str | Collection[str] = (),
    drop: str | Collection[str] = (),
    allow: str | Collection[str] = (),
    skip_incomplete: bool = False,
) -> RunTable:
    """Read and audit runs: a CSV, Parquet or JSON file, a suite, a ladder's folder, or a DataFrame.

    The table needs FLOPs, parameters, tokens and loss of each run (floats). `columns` maps our names to the table's, as in
    `{"loss": "eval/loss"}`, or to a formula (`{"flops": "6ND"}`); `units` states units, as in `{"flops": "GFLOPs"}`. `where`
    chooses runs by a column of the table, as in `{"dataset": "web"}`; `keep` and `drop` name runs that stay or go whatever the
    audit finds; `skip_incomplete` leaves out runs with an empty cell. Errors of the audit whose code is in `allow` are
    warnings. The result has `frame`, `excluded`, `warnings` and `findings`. `RunTableError` names file, line and column of a
    bad cell; `StorageError` for a missing file.
    """
    if isinstance(runs, RunTable):
        return runs
    choices = ReadingChoices(
        columns=columns or {},
        units=units or {},
        where=where or {},
        keep=_listed(keep),
        drop=_listed(drop),
        allow=_listed(allow),
        skip_incomplete=skip_incomplete,
    )
    if isinstance(runs, str | Path):
        return read_run_table(Path(runs), **choices)
    if not (hasattr(runs, "columns") and hasattr(runs, "rename")):
        raise RunTableError(
            f"Cannot read runs from {type(runs).__name__}.",
            fix="Give a path, a pandas DataFrame, or the result of load_runs.",
        )
    return table_of_frame(runs, **choices)


def _listed(names: str | Collection[str]) -> Collection[str]:
    return (names,) if isinstance(names, str) else names


def fit(
    runs: pd.DataFrame | RunTable | Path | str,
    *,
    law: str | LawKind = DEFAULT_LAW,
    swept: str = "auto",
    seed: int = 0,
    **choices: Unpack[ReadingChoices],
) -> Fit:
    """Fit a scaling law to runs; `choices` are the table's arguments of `load_runs`.

    `law` is a name as in `marin-scale fit --law`, or your own law (`custom_law`). `FitRefused` for runs that determine no
    law, `UsageError` for an unknown law.

    >>> import pandas as pd
    >>> budgets = [1e18] * 3 + [1e19] * 3 + [1e20] * 3
    >>> params = [5e7, 1e8, 2e8, 1.6e8, 3.2e8, 6.3e8, 5e8, 1e9, 2e9]
    >>> losses = [3.91, 3.84, 3.9, 3.37, 3.32, 3.36, 2.98, 2.94, 2.97]
    >>> frame = pd.DataFrame({"flops": budgets, "params": params, "loss": losses})
    >>> found = fit(frame.assign(tokens=frame["flops"] / 6 / frame["params"]))
    >>> low, high = found.forecast(1e21).interval(0.9)
    >>> bool(2.5 < low < high < 2.8)
    True
    """
    table = load_runs(runs, **choices)
    return Fit(table=table, result=fit_table(table, law=law, swept=swept, seed=seed))


def backtest(
    runs: pd.DataFrame | RunTable | Path | str,
    *,
    law: str | LawKind = DEFAULT_LAW,
    swept: str = "auto",
    seed: int = 0,
    **choices: Unpack[ReadingChoices],
) -> Backtest:
    """Forecast each budget of a table from the smaller ones and score the forecasts; `.frame` has one row per run.

    The arguments are those of `fit`.
    """
    return backtest_table(load_runs(runs, **choices), law=law, swept=swept, seed=seed)


def speedup_chain(
    recipes: Mapping[str, pd.DataFrame | RunTable | Path | str] | Sequence[pd.DataFrame | RunTable | Path | str],
    *,
    convention: str = "own",
    at_flops: float | str | None = None,
    allow: str | Collection[str] = (),
    seed: int = 0,
) -> SpeedupChain:
    """Compare a chain of recipes, the baseline first: each against the one before it and against the first.

    `recipes` maps names to runs, or lists runs, as `load_runs` reads them. The result has the speedups in model FLOPs and in
    wall-clock time, with joint 90 % intervals: `.frame`, `.stages`, `.cumulative`, and `print(chain)`.

    All recipes are compared at one loss: that of the baseline at `at_flops`, or the lowest that every recipe reaches within its
    budgets. `convention` is own (a law of each recipe) or marin (pinned E and alpha, one budget). `allow` lowers errors of the
    audit, such as flop-count, to warnings. `RunTableError` lists all differences of the tables, `FitRefused` all without a law.

    >>> chain = speedup_chain({"all": "runs/delphi", "again": "runs/delphi"})
    >>> chain.frame[["speedup", "q05", "q95"]].values.tolist()
    [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    """
    given = list(recipes.values()) if isinstance(recipes, Mapping) else recipes
    tables = [load_runs(each, allow=allow) for each in given]
    names = list(recipes) if isinstance(recipes, Mapping) else names_of(tables)
    return chain_of_tables(
        list(zip(names, tables, strict=True)),
        convention=convention,
        at_flops=None if at_flops is None else _flops(at_flops),
        seed=seed,
        allow=_listed(allow),
    )


class PlottedTuning(Tuning):
    """Tuning with a figure."""

    def plot(self, *targets: TunedTarget) -> Any:
        """Draw the swept runs, their optima and the laws as an Altair chart, as `marin-scale tune --plot` does.

        `targets` are results of `predict`; `UsageError` for anything else.
        """
        if others := [each for each in targets if not isinstance(each, TunedTarget)]:
            raise UsageError(
                f"{others[0]!r} is not a target of the laws.",
                fix="Give results of predict(width=..., tokens=...); a chart is written by plot().save(FILE).",
            )
        from marin_scaling.publish.tuning_chart import tuning_chart

        return tuning_chart(self, targets)


def tune(runs: pd.DataFrame | Path | str, *, seed: int = 0, **choices: Unpack[SweepChoices]) -> PlottedTuning:
    """Fit laws of the optimal learning rate, weight decay and batch size to a sweep; print the result to see all of it.

    `runs` is a table, or the folder of a swept ladder, with a size (`width`, `active_params` or `params`), tokens, loss and the
    hyperparameters of each run. `columns` gives the table's name of one of ours, as in {"learning_rate": "adam_lr"}. `where`
    chooses rows, `drop` names runs to leave out, and `skip_incomplete` leaves out runs with an empty cell. `size` names the
    column of sizes; the default is the first that varies. With `are_optima`, each row holds the optimum of a cell, and needs
    no loss.

    `RunTableError` lists missing columns and cells without a number, or names a column that sets kinds of runs apart.
    `FitRefused` if no cell was swept, or fewer than three optima lie inside of the swept values.

    >>> import pandas as pd
    >>> cells = [(64, 1e7), (64, 4e7), (128, 1e7), (128, 4e7), (256, 4e7), (256, 8e7)]
    >>> swept = [(*cell, rate) for cell in cells for rate in (0.01, 0.02, 0.04, 0.08)]
    >>> frame = pd.DataFrame(swept, columns=["width", "D", "lr"])
    >>> best = 0.5 * frame["width"] ** -0.5 * (frame["D"] / 1e7) ** -0.3
    >>> found = tune(frame.assign(loss=3 * (1 + 0.02 * np.log(frame["lr"] / best) ** 2)))
    >>> target = found.predict(width=512, tokens=8e7)
    >>> round(target["learning_rate"].value, 3), type(found.plot(target)).__name__
    (0.012, 'VConcatChart')
    """
    return PlottedTuning(**vars(tune_table(runs, seed=seed, **choices)))


@dataclass(frozen=True, kw_only=True, repr=False)
class Forecasts:
    """Forecasts of several runs, in order; `forecasts[1e23]` is the one at that number of FLOPs."""

    forecasts: tuple[Forecast, ...]

    @property
    def frame(self) -> pd.DataFrame:
        """One row per run: FLOPs, sizes, extrapolation, median, q05, q95, and half-widths by source of uncertainty."""
        import pandas as pd

        return pd.DataFrame([each.row for each in self.forecasts])

    def __getitem__(self, flops: float | str) -> Forecast:
        wanted = _flops(flops)
        found = [each for each in self.forecasts if math.isclose(each.flops, wanted, rel_tol=1e-9)]
        if not found:
            raise UsageError(
                f"No forecast at {format_number(wanted)} FLOPs.",
                fix=f"Choose one of {', '.join(format_number(each.flops) for each in self.forecasts)}.",
            )
        return found[0]

    def __iter__(self) -> Iterator[Forecast]:
        return iter(self.forecasts)

    def __len__(self) -> int:
        return len(self.forecasts)

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.forecasts))


@dataclass(frozen=True, kw_only=True, repr=False)
class Sensitivity:
    """Medians of one forecast under other choices: other laws, budgets left out, outliers at full weight."""

    forecast: Forecast
    rows: tuple[SensitivityRow, ...]

    def __repr__(self) -> str:
        return sensitivity_text(self.rows, flops=self.forecast.flops)

    @property
    def frame(self) -> pd.DataFrame:
        """One row per choice: its median (NaN if missing), the change of the forecast, and why a median is missing."""
        import pandas as pd

        medians = [math.nan if row.median is None else row.median for row in self.rows]
        return pd.DataFrame(
            {
                "choice": [row.choice for row in self.rows],
                "median": medians,
                "change": [each / self.forecast.median - 1 for each in medians],
                "why_none": [row.why_none for row in self.rows],
            }
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class Fit:
    """A fitted table of runs; a notebook shows the text of `marin-scale fit`."""

    table: RunTable
    result: FitResult

    @property
    def status(self) -> FitStatus:
        """Status of the fit alone; `status.value` is a sentence to quote. `status_of` judges forecasts, too."""
        return self.result.status

    def status_of(self, forecast: Forecast | Forecasts, backtest: Backtest | None = None) -> FitStatus:
        """Return the worst status of fit, forecasts and back-test, as `marin-scale fit --predict` prints it."""
        return status_of(self.result, _each(forecast), backtest)

    def summary(self) -> pd.DataFrame:
        """Return one row per parameter of the law: estimate and 90 % interval (q05, q95; NaN for a law without intervals)."""
        return self.result.law.summary()

    @overload
    def forecast(  # type: ignore[overload-overlap]
        self,
        flops: float | str,
        *,
        params: float | None = None,
        tokens: float | None = None,
        unique_tokens: float | None = None,
    ) -> Forecast: ...  # one run

    @overload
    def forecast(self, flops: Iterable[float | str], *, unique_tokens: float | None = None) -> Forecasts: ...  # several

    def forecast(
        self,
        flops: float | str | Iterable[float | str],
        *,
        params: float | None = None,
        tokens: float | None = None,
        unique_tokens: float | None = None,
    ) -> Forecast | Forecasts:
        """Forecast compute-optimal runs of one or many budgets (numbers, or texts such as "1e23"), or one run of a given size.

        With `unique_tokens`, a run repeats these where it needs more: repeated tokens count less, and the optimum is larger.
        `FitRefused` if no law was fitted; `UsageError` for invalid FLOPs, or for params and tokens that cost other FLOPs than
        stated.
        """
        if isinstance(flops, str) or np.ndim(flops) == 0:  # type: ignore[arg-type]
            return self._forecast_one(_flops(flops), params=params, tokens=tokens, unique_tokens=unique_tokens)
        if params is not None or tokens is not None:
            raise UsageError(
                "A list of FLOPs cannot be combined with params and tokens, which describe one run.",
                fix="Give one number of FLOPs, or a table of runs: fit.predict(frame).",
            )
        budgets = [_flops(each) for each in flops]  # type: ignore[union-attr]
        return Forecasts(forecasts=tuple(self._forecast_one(each, unique_tokens=unique_tokens) for each in budgets))

    def _forecast_one(
        self,
        flops: float,
        *,
        params: float | None = None,
        tokens: float | None = None,
        unique_tokens: float | None = None,
    ) -> Forecast:
        if params is not None and tokens is not None:
            self._require_same_flops(flops, params=_number(params, "params"), tokens=_number(tokens, "tokens"))
        unique = None if unique_tokens is None else _number(unique_tokens, "unique tokens")
        return forecast(self.result, flops=flops, params=params, tokens=tokens, unique_tokens=unique)

    def _require_same_flops(self, flops: float, *, params: float, tokens: float) -> None:
        [target] = target_runs(self.result, _wanted([(params, tokens)]))
        if not 1 / _SAME_FLOPS <= flops / target.flops <= _SAME_FLOPS:
            raise UsageError(
                f"{format_number(params)} parameters on {format_number(tokens)} tokens cost {format_flops(target.flops)} "
                f"FLOPs, but {format_flops(flops)} were given.",
                why="FLOPs follow from params and tokens by the convention of the fitted table.",
                fix="Leave one out: fit.predict takes params and tokens, fit.forecast takes FLOPs.",
            )

    def predict(self, runs: pd.DataFrame) -> pd.DataFrame:
        """Forecast each row of a table with `params` and `tokens` (or `flops` for the compute-optimal run).

        Columns are read as in the fitted table; `epochs` or `unique_tokens` marks runs that repeat data. Return the columns of
        `Forecasts.frame` with the index of `runs`, and the name of each run. Where the loss is given, add `observed`, `error`
        (median / observed - 1) and `inside_90`. `RunTableError` names row and column of an invalid number; `FitRefused` for a
        law that cannot forecast these sizes.
        """
        import pandas as pd

        if not isinstance(runs, pd.DataFrame):
            raise RunTableError(
                f"Cannot read runs to forecast from {type(runs).__name__}.",
                fix='Give a DataFrame: pd.DataFrame({"params": [7e9], "tokens": [1e12]}).',
            )
        found = forecast_runs(self.result, target_runs(self.result, targets_of_frame(runs, like=self.table)))
        return pd.DataFrame([each.row for each in found], index=runs.index)

    def loss(self, *, params: Any, tokens: Any, active_params: Any = None) -> Any:
        """Return the median loss of runs of these sizes: a float for numbers, an array for arrays (broadcast).

        `active_params` are by default the same as `params`; a fit of sparse models needs them.
        """
        named = {"params": params, "tokens": tokens, **({} if active_params is None else {"active_params": active_params})}
        sizes = np.broadcast_arrays(*(_numbers(each, name) for name, each in named.items()))
        wanted = _wanted(zip(*(each.ravel().tolist() for each in sizes), strict=True))
        medians = [each.median for each in forecast_runs(self.result, target_runs(self.result, wanted))]
        return medians[0] if sizes[0].ndim == 0 else np.reshape(medians, sizes[0].shape)

    def size_for_inference(
        self, flops: float | str, *, inference_tokens: float, unique_tokens: float | None = None
    ) -> SizeForInference:
        """Return the size with the fewest FLOPs of training and inference at the loss of a compute-optimal run of `flops`."""
        unique = None if unique_tokens is None else _number(unique_tokens, "unique tokens")
        wanted = _number(inference_tokens, "inference tokens")
        return size_for_inference(self.result, flops=_flops(flops), inference_tokens=wanted, unique_tokens=unique)

    def samples(self, flops: float | str) -> Array:
        """Return equally likely losses of a compute-optimal run: (draw,)."""
        return samples(self.result, flops=_flops(flops))

    def sensitivity(self, flops: float | str | None = None) -> Sensitivity:
        """Forecast one target under other choices; by default the compute-optimal run of 10 times the largest budget."""
        found = forecast(self.result, flops=10 * self.result.largest_flops if flops is None else _flops(flops))
        return Sensitivity(forecast=found, rows=tuple(sensitivity(self.result, found)))

    def backtest(self) -> Backtest:
        """Forecast each budget from the smaller ones, with the same law, prior and seed."""
        return backtest_of_fit(self.result)

    def plot(self, forecast: Forecast | Forecasts | None = None) -> Any:
        """Draw runs, law and forecasts as an Altair chart, as `marin-scale fit --plot` does."""
        from marin_scaling.publish.charts import law_chart, outcomes_of

        found = _each(forecast)
        return law_chart(self.result, found, outcomes=outcomes_of(found))

    def to_arviz(self) -> Any:
        """Return the posterior as ArviZ's InferenceData: one chain of E, K, a, b, w, g, gamma, E_f, K_f and gamma_f.

        `MissingExtra` without the extra `arviz`; `FitRefused` for a law without a posterior.
        """
        if self.result.law.prior is None:
            raise FitRefused(
                f"{self.result.source}: the law {self.result.law.name} has no posterior to export.",
                fix="Fit the default law.",
            )
        try:
            import arviz
        except ImportError as error:
            raise missing_extra("arviz", needed_for="to_arviz") from error
        return arviz.from_dict(posterior={name: draws[None] for name, draws in self.result.law.parameter_draws().items()})

    def report(self, forecast: Forecast | Forecasts | None = None, backtest: Backtest | None = None) -> str:
        """Return the text of `marin-scale fit`: law, runs, exclusions, forecasts, back-test, status and warnings."""
        return forecast_text(self.result, _each(forecast), backtest)

    __str__ = report

    def __repr__(self) -> str:
        return f"Fit({self.result.law.name}, {len(self.result.frame)} runs of {self.result.source}: {self.status.name})"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.report())}</pre>"


def _each(forecast: Forecast | Forecasts | None) -> list[Forecast]:
    return [] if forecast is None else [forecast] if isinstance(forecast, Forecast) else list(forecast)


def _wanted(sizes: Iterable[tuple[float, ...]]) -> tuple[WantedRun, ...]:
    """Return runs of params, tokens and perhaps active params."""
    runs = (WantedRun(params=params, tokens=tokens, active_params=more[0] if more else None) for params, tokens, *more in sizes)
    return tuple(runs)


def _flops(value: Any) -> float:
    return parse_flops(value if isinstance(value, str) else f"{_number(value, 'FLOPs')!r}")


def _number(value: Any, name: str) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise UsageError(f"{value!r} is not a positive, finite number of {name}.", fix="Write it like 1e23.")
    return number


def _numbers(value: Any, name: str) -> Array:
    try:
        numbers = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        numbers = np.asarray(math.nan)
    if not (np.isfinite(numbers) & (numbers > 0)).all():
        raise UsageError(f"{name} must be positive, finite numbers.", fix="Give a number or an array of numbers.")
    return numbers
