"""Figure of tuned hyperparameters: what is drawn of known sweeps, with and without optima at a border, and of targets."""

import json
import math

import numpy as np
import pandas as pd
import pytest

import marin_scaling as ms
from marin_scaling.errors import UsageError
from marin_scaling.publish.figures import chart_bytes, chart_spec


def best_rate(width, tokens):
    """A law in the range of published ones."""
    return 0.004 * (width / 512) ** -0.4 * (tokens / 4e9) ** -0.3


def sweep(factors=(0.25, 0.5, 1.0, 2.0, 4.0), *, cells=None, batches=(64,)):
    """Runs whose log loss is a parabola about each cell's optimum, and about a batch size of 128."""
    cells = cells or [(width, tokens) for width in (256, 512, 1024) for tokens in (1e9, 4e9, 1.6e10)]
    rows = [(*cell, batch, best_rate(*cell) * factor, factor) for cell in cells for batch in batches for factor in factors]
    frame = pd.DataFrame(rows, columns=["width", "tokens", "batch_size", "lr", "factor"])
    off = 0.02 * np.log(frame["factor"]) ** 2 + 0.01 * np.log(frame["batch_size"] / 128) ** 2
    loss = 3 * (frame["width"] / 512) ** -0.1 * (frame["tokens"] / 4e9) ** -0.08 * np.exp(off)
    return frame.assign(loss=loss).drop(columns="factor")


def layers(chart, kind):
    """Return the rows of data of every layer with this mark."""
    spec = chart_spec(chart)
    found = []

    def visit(part):
        for key in ("vconcat", "hconcat", "concat", "layer"):
            for each in part.get(key, []):
                visit(each)
        if part.get("mark", {}).get("type") == kind:
            found.append(spec["datasets"][part["data"]["name"]])

    visit(spec)
    return found


@pytest.fixture(scope="module")
def found():
    return ms.tune(sweep())


@pytest.fixture(scope="module")
def chart(found):
    return found.plot(found.predict(width=2048, tokens=6.4e10))


def test_every_run_is_drawn_once_and_every_optimum_twice(chart):
    runs = [row for rows in layers(chart, "circle") for row in rows]
    assert len(runs) == 45
    *of_panels, of_law, targets = [rows for rows in layers(chart, "point")]
    assert [len(rows) for rows in of_panels] == [3, 3, 3]
    drawn = sorted(row["value"] for rows in of_panels for row in rows)
    assert drawn == pytest.approx(sorted(row["value"] for row in of_law))
    assert drawn == pytest.approx(sorted(best_rate(w, t) for w in (256, 512, 1024) for t in (1e9, 4e9, 1.6e10)))
    assert [row["value"] for row in targets] == pytest.approx([best_rate(2048, 6.4e10)], rel=0.01)


def test_parabolas_go_through_the_runs_and_lines_through_the_optima(chart):
    *parabolas, law = layers(chart, "line")
    for row in (row for rows in parabolas for row in rows):
        ratios = [row["value"] / best_rate(width, row["tokens"]) for width in (256, 512, 1024)]
        losses = [
            3 * (width / 512) ** -0.1 * (row["tokens"] / 4e9) ** -0.08 * math.exp(0.02 * math.log(ratio) ** 2)
            for width, ratio in zip((256, 512, 1024), ratios, strict=True)
        ]
        assert min(abs(row["loss"] / loss / math.exp(0.01 * math.log(2) ** 2) - 1) for loss in losses) < 1e-6
    assert {row["size"] for row in law} == {256, 512, 1024, 2048}
    for row in law:
        assert row["low"] < row["value"] < row["high"]
        assert row["value"] == pytest.approx(best_rate(row["size"], row["x"]), rel=0.02)


def test_an_optimum_at_the_border_has_no_parabola_and_a_triangle():
    """The sweep of one cell ends at half of its optimum."""
    runs, cell = sweep(), (1024, 1.6e10)
    others = runs[(runs["width"] != cell[0]) | (runs["tokens"] != cell[1])]
    found = ms.tune(pd.concat([others, sweep((0.125, 0.25, 0.5), cells=[cell])]))
    chart = found.plot()
    beyond = [row for rows in layers(chart, "point") for row in rows if row["border"]]
    assert [row["border"] for row in beyond] == ["highest", "highest"]  # in its panel and in that of the law
    assert beyond[0]["value"] == pytest.approx(0.5 * best_rate(*cell))
    assert len({row["tokens"] for row in layers(chart, "line")[2]}) == 2  # the other cells of the width


def test_what_is_no_target_is_refused():
    """Such as the name of a file to write."""
    with pytest.raises(UsageError):
        ms.tune(sweep()).plot("figure.svg")


def test_each_hyperparameter_has_its_panels():
    found = ms.tune(sweep(batches=(32, 64, 128, 256, 512)))
    chart = found.plot()
    assert len(layers(chart, "line")) == 8  # three sizes and a law, for learning rate and batch size
    batches = [row for rows in layers(chart, "circle")[3:] for row in rows]
    assert {row["value"] for row in batches} == {32, 64, 128, 256, 512}


def test_a_table_of_optima_has_the_law_only_and_sizes_without_tokens_one_line():
    cells = [(width, 20.0 * width**2 * 100) for width in (256, 512, 768, 1024)]
    rows = [(width, tokens, best_rate(width, tokens)) for width, tokens in cells]
    found = ms.tune(pd.DataFrame(rows, columns=["width", "tokens", "lr"]), are_optima=True)
    (line,) = layers(found.plot(), "line")
    assert [line[0]["x"], line[-1]["x"]] == pytest.approx([256, 1024])


@pytest.mark.parametrize("suffix", [".svg", ".json"])
def test_the_figure_is_written(chart, suffix):
    content = chart_bytes(chart, suffix=suffix)
    assert content.startswith(b"<svg") if suffix == ".svg" else json.loads(content)["vconcat"]
    assert "<" not in json.dumps([each for each in chart_spec(chart)["vconcat"]])  # the page of a figure cannot hold it
