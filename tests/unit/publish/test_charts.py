"""Figures of a fit."""

import json
import re
from dataclasses import replace
from pathlib import Path

import altair as alt
import pytest

from marin_scaling.errors import StorageError, UsageError
from marin_scaling.fitting.fit import fit
from marin_scaling.forecast.forecast import forecast
from marin_scaling.laws import SurfaceLaw
from marin_scaling.publish.charts import MeasuredOutcome, law_chart
from marin_scaling.publish.figures import save_chart
from marin_scaling.run.table import read_run_table, simulate_ladder

DELPHI = Path(__file__).parents[3] / "runs" / "delphi"


@pytest.fixture(scope="module")
def chart():
    result = fit(read_run_table(DELPHI))
    return law_chart(result, [forecast(result, flops=1e23)], outcomes=[MeasuredOutcome(flops=1e23, loss=2.3546)])


def test_every_format_is_written_and_is_what_its_suffix_says(chart, tmp_path):
    """Told by their first bytes."""
    beginnings = {"svg": b"<svg", "png": b"\x89PNG", "json": b"{", "html": b"<!DOCTYPE html>"}
    for suffix, beginning in beginnings.items():
        save_chart(chart, tmp_path / f"figure.{suffix}")
        assert (tmp_path / f"figure.{suffix}").read_bytes().lstrip().startswith(beginning)


def test_the_page_needs_no_network(chart, tmp_path):
    """No script, style or picture is loaded from elsewhere."""
    save_chart(chart, tmp_path / "figure.html")
    page = (tmp_path / "figure.html").read_text()
    assert re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=.?https?:", page) == []
    assert re.findall(r"\bimport\b[^;]{0,80}https?:", page) == []


def test_the_figure_carries_the_runs_the_band_the_forecast_and_the_outcome(chart):
    """81 points by seven budgets on the left; band, forecast and outcome on the right; axes with units."""
    spec = chart.to_dict()
    text = json.dumps(spec)
    sizes = sorted(len(rows) for rows in spec["datasets"].values())
    assert sizes[-1] == 7 * 60  # the curves of seven bowls
    assert 81 in sizes
    for phrase in ("trained tokens", "training compute (FLOPs)", "paloma macro loss (nats/token)", '"low"', '"outcome"'):
        assert phrase in text
    assert spec["background"] == "white"


def test_equal_fits_give_equal_figures(chart):
    """So that a page built twice does not change."""
    result = fit(read_run_table(DELPHI))
    again = law_chart(result, [forecast(result, flops=1e23)], outcomes=[MeasuredOutcome(flops=1e23, loss=2.3546)])
    assert again.to_dict() == chart.to_dict()


def test_many_budgets_without_bowls_are_drawn_too():
    """A ladder of one run a budget has points and a law, and no bowls."""
    law = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
    budgets = [1e18 * 1.5**n for n in range(16)]
    result = fit(simulate_ladder(law, budgets_flops=budgets, sizes_per_budget=1, noise=0.001, seed=0))
    spec = law_chart(result, []).to_dict()
    assert all(len(rows) != 16 * 60 for rows in spec["datasets"].values())


def test_a_budget_of_two_runs_has_no_bowl_and_the_others_are_drawn():
    """A site with such a ladder is built, too."""
    law = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
    table = simulate_ladder(law, budgets_flops=[1e18, 1e19, 1e20, 1e21], sizes_per_budget=4, noise=0.001, seed=0)
    few = table.frame[table.frame["budget_flops"] == 1e18].index[2:]
    result = fit(replace(table, frame=table.frame.drop(few)))
    assert len(result.bowls) == 3
    assert "1e18" in json.dumps(law_chart(result, [forecast(result, flops=1e22)]).to_dict())


def test_a_table_of_many_runs_is_drawn(tmp_path):
    """More than the 5,000 rows at which Altair stops by itself; its limit for others stays as it was."""
    law = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
    budgets = [1e18 * 2**n for n in range(5)]
    result = fit(simulate_ladder(law, budgets_flops=budgets, sizes_per_budget=1215, noise=0.001, seed=0))
    assert len(result.frame) == 6075
    before = alt.data_transformers.active, dict(alt.data_transformers.options)
    save_chart(law_chart(result, []), tmp_path / "figure.json")
    spec = json.loads((tmp_path / "figure.json").read_bytes())
    assert 6075 in {len(rows) for rows in spec["datasets"].values()}
    assert (alt.data_transformers.active, dict(alt.data_transformers.options)) == before


@pytest.mark.parametrize("name", ["figure.pdf", "figure"])
def test_an_unknown_format_is_refused(chart, tmp_path, name):
    """With those that are known."""
    with pytest.raises(UsageError) as refusal:
        save_chart(chart, tmp_path / name)
    assert ".svg" in refusal.value.fix


def test_a_place_that_cannot_be_written_is_said_to_be_so(chart, tmp_path):
    """A file stands where a folder should."""
    (tmp_path / "taken").write_text("")
    with pytest.raises(StorageError, match="taken"):
        save_chart(chart, tmp_path / "taken" / "figure.json")


def test_numbers_that_would_cover_each_other_are_not_written():
    """Of forecasts at 1e22, 3e22 and 1e23 the middle one has a point and no number; three outcomes at one budget have one."""
    result = fit(read_run_table(DELPHI))
    forecasts = [forecast(result, flops=flops) for flops in (1e22, 3e22, 1e23)]
    outcomes = [MeasuredOutcome(flops=1e22, loss=loss) for loss in (2.53, 2.5305, 2.531)]
    document = json.dumps(law_chart(result, forecasts, outcomes=outcomes).to_dict())
    drawn = json.loads(document)["hconcat"][1]["layer"]
    datasets = json.loads(document)["datasets"]
    texts = [
        row[layer["encoding"]["text"]["field"]]
        for layer in drawn
        if layer["mark"]["type"] == "text" and layer["encoding"]["text"]["field"] != "words"
        for row in datasets[layer["data"]["name"]]
    ]
    assert sorted(texts) == sorted(
        [f"forecast {forecasts[0].median:.4f}", f"forecast {forecasts[2].median:.4f}", "observed 2.5300"]
    )
