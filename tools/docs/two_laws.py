"""Draw `site/assets/two-laws.svg`: Delphi's optima, the two laws of the forecast, their mean, and what was measured."""

from __future__ import annotations

from pathlib import Path

import altair as alt
import numpy as np
import pandas as pd

from marin_scaling.fitting.fit import fit
from marin_scaling.forecast.forecast import forecast_runs, optimal_target
from marin_scaling.publish.figures import LAW_COLOUR, OUTCOME_COLOUR, POINT_COLOUR, figure, save_chart
from marin_scaling.run.table import read_run_table

ROOT = Path(__file__).parents[2]
_NAMES = {"mean": "mean, with 90 % interval", "coupled-surface": "coupled surface", "all-runs-frontier": "frontier"}
_COLOURS = [LAW_COLOUR, "#009E73", "#CC79A7"]


def chart() -> alt.TopLevelMixin:
    """Return the chart, from the smallest budget to 1e24 FLOPs."""
    result = fit(read_run_table(ROOT / "runs" / "delphi"))
    budgets = np.geomspace(3e18, 1e24, 60)
    forecasts = forecast_runs(result, [optimal_target(result, flops) for flops in budgets])
    rows = [
        {"flops": each.flops, "law": _NAMES[name], "loss": loss}
        for each in forecasts
        for name, loss in {"mean": each.median, **each.by_law}.items()
    ]
    interval = pd.DataFrame(
        [{"flops": each.flops, "low": each.interval()[0], "high": each.interval()[1]} for each in forecasts]
    )
    optima = pd.DataFrame([{"flops": point.flops, "loss": point.loss} for point in result.points])
    later = pd.read_csv(ROOT / "runs" / "delphi" / "heldout.csv")[["flops", "loss"]]
    x = alt.X("flops:Q", scale=alt.Scale(type="log"), axis=alt.Axis(format=".0e", title="training FLOPs", tickCount=6))
    y = alt.Y("loss:Q", scale=alt.Scale(zero=False), title="loss, nats per token")
    colour = alt.Color("law:N", scale=alt.Scale(domain=list(_NAMES.values()), range=_COLOURS), title=None)
    layers = (
        alt.Chart(interval).mark_area(opacity=0.2, color=LAW_COLOUR).encode(x=x, y=alt.Y("low:Q", title=""), y2="high:Q"),
        alt.Chart(pd.DataFrame(rows)).mark_line(strokeWidth=1.5).encode(x=x, y=y, color=colour),
        alt.Chart(optima).mark_circle(size=35, color=POINT_COLOUR, opacity=1).encode(x=x, y=y),
        alt.Chart(later).mark_point(size=45, color=OUTCOME_COLOUR, shape="diamond", filled=True, opacity=1).encode(x=x, y=y),
    )
    return figure(alt.layer(*layers).properties(width=620, height=320), "Loss by training compute: two laws and their mean")


if __name__ == "__main__":
    save_chart(chart(), ROOT / "site" / "assets" / "two-laws.svg")
