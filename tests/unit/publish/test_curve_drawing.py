"""The curves on a submission's page are those that it states, or those of the records that it names by their digest."""

import json
import shutil
from pathlib import Path

from submission_factory import seed_document, submission

from marin_scaling.publish.charts import curve_chart
from marin_scaling.publish.figures import chart_bytes
from marin_scaling.publish.submission_page import curves_of, recorded_curves
from marin_scaling.speedrun.submission import read_submission

ROOT = Path(__file__).parents[3]
OWN = ROOT / "speedruns" / "cpu" / "dense-24-batch-8"


def test_the_curves_of_own_runs_are_found_by_their_digest() -> None:
    """One for each seed, thinned to means: their mean is that of all steps."""
    one = read_submission(OWN)
    metric, curves = curves_of(one, recorded_curves(ROOT / "runs"))
    assert list(curves) == [f"seed {seed.seed}" for seed in one.seeds]
    folders = recorded_curves(ROOT / "runs")
    rows = json.loads((folders[one.seeds[0].log_sha256 or ""] / "history.json").read_bytes())["rows"]
    losses = [row["train_loss_nats_per_token"] for row in rows]
    drawn = [loss for _, loss in next(iter(curves.values()))]
    assert len(drawn) == 200
    assert abs(sum(drawn) / len(drawn) - sum(losses) / len(losses)) < 0.005
    assert chart_bytes(curve_chart(curves, metric=metric), suffix=".svg").count(b'aria-roledescription="line mark"') == len(
        one.seeds
    )


def test_a_curve_that_is_stated_comes_first() -> None:
    """In bits per byte of the held-out text."""
    points = [{"step": 0, "bits_per_byte": 8.0}, {"step": 100, "bits_per_byte": 2.0}]
    metric, curves = curves_of(submission(seeds=[seed_document(seed=3, curve=points)]), {})
    assert curves == {"seed 3": [(0, 8.0), (100, 2.0)]}
    assert metric == "bits per byte of the held-out text"


def test_a_record_that_was_changed_gives_no_curve(tmp_path: Path) -> None:
    """Nor do runs that are not here; the page stays."""
    one = read_submission(OWN)
    shutil.copytree(ROOT / "runs" / "speedrun-cpu-dense-24-batch-8", tmp_path / "runs" / "cpu")
    for path in (tmp_path / "runs" / "cpu").glob("*/history.json"):
        path.write_bytes(path.read_bytes() + b"\n")
    assert not curves_of(one, recorded_curves(tmp_path / "runs"))[1]
    assert not curves_of(one, {})[1]
    assert curve_chart({}, metric="loss") is None
