"""The commands for Python and notebooks: tables in, numbers, tables and figures out.

    from marin_scaling.api import fit
    fitted = fit("runs/delphi")
    fitted.forecast(1e23).interval
    fitted.chart(1e23)

A thin door: reading, auditing, fitting and drawing are done by the modules that the commands use, and every object here holds
theirs (`fitted.result`, `fitted.table`). User-written laws with lmfit's parameters: `marin_scaling.fitting.custom_law`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marin_scaling.fitting.fit import fit as fit_table
from marin_scaling.fitting.result import FitResult
from marin_scaling.forecast.backtest import Backtest, backtest
from marin_scaling.forecast.forecast import Forecast, forecast, samples
from marin_scaling.forecast.report import forecast_text
from marin_scaling.run.table import RunTable, read_run_table, table_of_frame

if TYPE_CHECKING:
    import pandas as pd

    from marin_scaling.laws import Array


def fit(
    runs: pd.DataFrame | RunTable | Path | str,
    *,
    law: str = "coupled-surface",
    columns: Mapping[str, str] | None = None,
    keep: Collection[str] = (),
    drop: Collection[str] = (),
    swept: str = "best",
    seed: int = 0,
) -> Fitted:
    """Fit runs: a DataFrame, a file or folder as `marin-scale fit` takes, or a table that was read before.

    FLOPs, parameters, tokens and loss of each run (floats; loss in any unit); options and errors as in `marin-scale fit`.

    >>> import pandas as pd
    >>> budgets = [1e18] * 3 + [1e19] * 3 + [1e20] * 3
    >>> params = [5e7, 1e8, 2e8, 1.6e8, 3.2e8, 6.3e8, 5e8, 1e9, 2e9]
    >>> losses = [3.91, 3.84, 3.9, 3.37, 3.32, 3.36, 2.98, 2.94, 2.97]
    >>> frame = pd.DataFrame({"flops": budgets, "params": params, "loss": losses})
    >>> fitted = fit(frame.assign(tokens=frame["flops"] / 6 / frame["params"]))
    >>> low, high = fitted.forecast(1e21).interval
    >>> bool(2.5 < low < high < 2.8)
    True
    """
    table = _table(runs, columns=columns, keep=keep, drop=drop)
    return Fitted(table=table, result=fit_table(table, law=law, swept=swept, seed=seed))


def _table(
    runs: pd.DataFrame | RunTable | Path | str,
    *,
    columns: Mapping[str, str] | None,
    keep: Collection[str],
    drop: Collection[str],
) -> RunTable:
    if isinstance(runs, RunTable):
        return runs
    if isinstance(runs, str | Path):
        return read_run_table(Path(runs), columns=columns, keep=keep, drop=drop)
    return table_of_frame(runs, columns=columns, keep=keep, drop=drop)


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """A fit of a table; shown as the text of `marin-scale fit` in a notebook."""

    table: RunTable
    result: FitResult

    def forecast(self, flops: float, *, params: float | None = None, tokens: float | None = None) -> Forecast:
        """The forecast of the compute-optimal run of `flops`, or of one with `params` and `tokens`."""
        return forecast(self.result, flops=flops, params=params, tokens=tokens)

    def forecasts(self, *flops: float) -> pd.DataFrame:
        """Forecasts of compute-optimal runs as a table: a row a budget, a column a quantile (q0.05), sizes and distance."""
        import pandas as pd

        return pd.DataFrame([_row(self.forecast(each)) for each in flops])

    def samples(self, flops: float) -> Array:
        """Losses that a compute-optimal run of `flops` could show, all equally likely: (draw,)."""
        return samples(self.result, flops=flops)

    def backtest(self) -> Backtest:
        """Each budget forecast from the smaller ones, with the same law."""
        return backtest(self.table, law=self.result.law_name, seed=self.result.seed)

    def chart(self, *flops: float) -> Any:
        """The figure of `marin-scale fit --plot`, as an Altair chart: runs, law, and forecasts at `flops`."""
        from marin_scaling.publish.charts import law_chart

        return law_chart(self.result, [self.forecast(each) for each in flops])

    def fit_report(self) -> str:
        """What was fitted, what was left out, how sure it is: the text of `marin-scale fit`."""
        return forecast_text(self.result, [])

    def __str__(self) -> str:
        return self.fit_report()

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(self.fit_report())}</pre>"


def _row(prediction: Forecast) -> dict[str, float]:
    sizes = {name: getattr(prediction, name) for name in ("flops", "params", "tokens", "extrapolation", "median")}
    return sizes | {f"q{level:g}": value for level, value in prediction.quantiles.items()}
