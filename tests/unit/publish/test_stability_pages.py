"""Pages show gradient norms and loads of experts where records have them; the page on balancing shows what was measured."""

import json
import shutil
from pathlib import Path

import pytest
from one_page import page

from marin_scaling.canonical_json import dump_canonical, sha256_hex
from marin_scaling.publish.charts import loads_chart, norms_chart
from marin_scaling.publish.figures import chart_bytes, chart_spec
from marin_scaling.publish.ladder_page import ladder_page, stability_section
from marin_scaling.run.stability import stability_findings, stability_lines, stability_of_rows
from marin_scaling.run.store import HistoryRow, read_history, read_runs

ROOT = Path(__file__).parents[3]
DATA = ROOT / "site" / "assets" / "quantile-balancing.json"


@pytest.fixture(scope="module")
def measured() -> dict[str, tuple[HistoryRow, ...]]:
    """The committed rows, with balancing and without it."""
    runs = json.loads(DATA.read_bytes())["runs"]
    return {name: read_history(json.dumps(run["history"]).encode(), name=name).rows for name, run in runs.items()}


@pytest.fixture
def root(tmp_path: Path, measured: dict[str, tuple[HistoryRow, ...]]) -> Path:
    """The ladder `bytes-moe`, one of whose runs has norms and routing."""
    shutil.copytree(ROOT / "runs" / "bytes-moe", tmp_path / "runs" / "bytes-moe")
    folder = next(run.folder for run in read_runs(tmp_path / "runs" / "bytes-moe") if run.spec.rung_name == "6e10/16")
    document = json.loads((folder / "history.json").read_bytes())
    for row in measured["without balancing"]:
        document["rows"][row.step] |= row.model_dump(mode="json", exclude={"step", "train_loss_nats_per_token"})
    raw = dump_canonical(document)
    (folder / "history.json").write_bytes(raw)
    record = json.loads((folder / "record.json").read_bytes()) | {"history_sha256": sha256_hex(raw)}
    (folder / "record.json").write_bytes(dump_canonical(record))
    return tmp_path


def test_the_page_of_a_ladder_has_its_norms_and_loads(root: Path) -> None:
    made = ladder_page(root, "bytes-moe")
    text, figures = made.files["ladders/bytes-moe.md"].decode(), made.files
    assert "## Stability" in text
    for name in ("norms", "loads"):
        assert f"bytes-moe.figures/{name}.svg" in text
        assert b"<title>" in figures[f"ladders/bytes-moe.figures/{name}.svg"]
    (row,) = (line for line in text.splitlines() if line.startswith("| 6e10/16"))
    assert all(fact in row for fact in ("45%", "0.00 to 3.71", "0.00%"))


def test_the_page_of_older_runs_has_no_such_section() -> None:
    assert "## Stability" not in page(ROOT, "ladders/bytes-moe.md")


def test_a_curve_that_is_not_the_records_is_not_drawn(root: Path) -> None:
    for path in (root / "runs" / "bytes-moe").glob("*/history.json"):
        path.write_bytes(path.read_bytes() + b"\n")
    assert stability_section(read_runs(root / "runs" / "bytes-moe"), stem="ladders/x") == (None, {})


def test_many_steps_layers_and_experts_are_thinned_and_a_spike_stays() -> None:
    layers = [[1 / 64] * 64] * 48
    rows = [
        HistoryRow(
            step=step,
            train_loss_nats_per_token=2.0,
            gradient_norm=50.0 if step == 777 else 1.0,
            router_entropy_nats=[4.0] * 48 if step % 10 == 0 else [],
            expert_shares=layers if step % 10 == 0 else [],
        )
        for step in range(2000)
    ]
    drawn = chart_spec(norms_chart({"run": rows}, tokens_per_step={"run": 10}))
    points = next(iter(drawn["datasets"].values()))
    assert len(points) <= 300
    assert max(point["norm"] for point in points) == 50.0
    loads = next(iter(chart_spec(loads_chart({"run": rows}))["datasets"].values()))
    assert len({point["layer"] for point in loads}) == 6
    assert len({point["expert"] for point in loads}) == 16


def test_the_figure_of_balancing_has_a_panel_for_each_run_and_layer(measured: dict[str, tuple[HistoryRow, ...]]) -> None:
    """The committed picture is the one that the committed numbers give."""
    drawn = chart_bytes(loads_chart(measured), suffix=".svg")
    assert drawn.count(b'aria-roledescription="line mark"') == 2 * 2 * 8
    assert drawn == (ROOT / "site" / "assets" / "quantile-balancing.svg").read_bytes()


def test_balancing_keeps_loads_near_an_even_share(measured: dict[str, tuple[HistoryRow, ...]]) -> None:
    balanced, free = (measured[name][-1].expert_shares for name in ("with quantile balancing", "without balancing"))
    assert all(0.7 < 8 * share < 1.3 for layer in balanced for share in layer)
    assert min(share for layer in free for share in layer) == 0.0
    assert max(8 * share for layer in free for share in layer) > 3.5


def test_the_how_to_shows_what_the_run_without_balancing_has(measured: dict[str, tuple[HistoryRow, ...]]) -> None:
    found = stability_of_rows(measured["without balancing"])
    words = " ".join((ROOT / "site" / "how-to" / "follow-a-run.md").read_text().split())
    for line in (*stability_lines(found), *stability_findings(found)):
        assert " ".join(line.split()) in words
    assert stability_findings(stability_of_rows(measured["with quantile balancing"])) == []
