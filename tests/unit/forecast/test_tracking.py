"""Where a run under way will end: an interval that holds what it says, and the verdict beside the forecast."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from marin_scaling.errors import FitRefused
from marin_scaling.forecast.tracking import (
    Curve,
    EarlierForecast,
    FinishedCurve,
    Tracked,
    finished_curves,
    track,
    track_losses,
    tracked_text,
)
from marin_scaling.run.store import StoredRun, read_runs

ROOT = Path(__file__).parents[3]


def flat(level: float, *, flops: float) -> Curve:
    """A hundred steps at one loss: at every fraction the training loss is that one."""
    return Curve(losses=np.full(100, level), train_steps=100, flops=flops)


def test_the_interval_holds_the_end_as_often_as_it_says() -> None:
    """Ends drawn about a plane in log FLOPs and log training loss: 90 % intervals of 1,000 draws hold 88 to 92 %."""
    random, held = np.random.default_rng(0), 0
    for _ in range(1_000):
        flops, losses = np.exp(random.normal(20, 2, 9)), np.exp(random.normal(1, 0.2, 9))
        ends = np.exp(0.3 - 0.02 * np.log(flops) + 0.9 * np.log(losses) + random.normal(0, 0.01, 9))
        curves = [
            FinishedCurve(curve=flat(loss, flops=each), loss=end) for loss, each, end in zip(losses, flops, ends, strict=True)
        ]
        low, high = track(flat(losses[8], flops=flops[8]), curves[:8]).interval
        held += low <= ends[8] <= high
    assert 0.88 <= held / 1_000 <= 0.92


def test_curves_that_are_one_another_s_copies_say_exactly_where_they_end() -> None:
    """Budgets all alike leave the slope in FLOPs open; the answer does not depend on it."""
    curves = [FinishedCurve(curve=flat(2.0 + place / 10, flops=1e10), loss=1.0 + place / 20) for place in range(8)]
    found = track(flat(2.35, flops=1e10), curves)
    assert found.quantiles[0.5] == pytest.approx(1.175, rel=1e-12)


def recorded(ladder: str) -> tuple[list[StoredRun], StoredRun, EarlierForecast]:
    """The runs of a ladder, its target of 22 November 2026, and what was forecast of that, as the public record has it."""
    digest, ends = {
        "bytes-dense": ("fb9b95eb", (1.9800, 2.0605, 2.1512)),
        "bytes-moe": ("e73388f0", (2.2308, 2.3181, 2.4155)),
    }[ladder]
    stored = read_runs(ROOT / "runs" / ladder)
    (target,) = [run for run in stored if run.spec.digest.startswith(digest)]
    return stored, target, EarlierForecast(quantiles=dict(zip((0.05, 0.5, 0.95), ends, strict=True)), by="signed")


@pytest.mark.parametrize(
    ("ladder", "steps", "said"),
    [
        ("bytes-dense", 400, "on forecast"),
        ("bytes-dense", 1_000, "on forecast"),
        ("bytes-moe", 500, "may end below its forecast"),
        ("bytes-moe", 2_800, "off forecast: below"),
    ],
)
def test_recorded_targets_are_tracked_to_their_ends(ladder: str, steps: int, said: str) -> None:
    """The dense target held and the mixture's missed; each interval holds what was measured."""
    stored, target, forecast = recorded(ladder)
    losses = [row.train_loss_nats_per_token for row in target.history().rows][:steps]
    found = track_losses(losses, target.spec, finished_curves(stored, without=target.spec.digest), forecast=forecast)
    assert found.verdict == said
    assert found.tracking is not None
    low, high = found.tracking.interval
    assert low < (target.record.loss or 0) < high
    assert found.faults == []
    assert said in tracked_text(found)


def tracked_dense_target(steps: int, *, more_nats: float) -> Tracked:
    """The recorded target of `bytes-dense` after so many steps, with so much added to each of its losses."""
    stored, target, forecast = recorded("bytes-dense")
    losses = [(row.train_loss_nats_per_token or 0.0) + more_nats for row in target.history().rows][:steps]
    return track_losses(losses, target.spec, finished_curves(stored, without=target.spec.digest), forecast=forecast)


@pytest.mark.parametrize(
    ("steps", "more_nats"), [*itertools.product([200, 400, 800], [0.5, 1.0, 2.0]), (400, -0.8), (800, -0.8)]
)
def test_a_curve_that_the_ladder_s_runs_do_not_have_is_told_and_on_no_forecast(steps: int, more_nats: float) -> None:
    """Half a nat too high to two, or much too low: with what the finished curves have there, and no promise of the end."""
    found = tracked_dense_target(steps, more_nats=more_nats)
    assert found.verdict == "unlike the ladder's curves: no prediction"
    assert any("the curves of 16 finished runs have" in fault for fault in found.faults)
    assert "it would end at" in tracked_text(found)


@pytest.mark.parametrize("more_nats", [0.0, 0.5, 1.0])
def test_whether_a_run_is_on_forecast_is_too_early_to_say_at_its_beginning(more_nats: float) -> None:
    """Six per cent of the steps: the curve is not compared with the others' yet, and none is called on forecast."""
    found = tracked_dense_target(65, more_nats=more_nats)
    assert found.verdict == "too early to say"
    assert found.faults == []


def test_too_early_and_too_few_are_refused_with_the_numbers() -> None:
    """Nineteen steps; four per cent; five curves."""
    curves = [FinishedCurve(curve=flat(2.0, flops=1e10), loss=1.0)] * 6
    begun = Curve(losses=np.full(19, 2.0), train_steps=100, flops=1e10)
    slow = Curve(losses=np.full(40, 2.0), train_steps=1_000, flops=1e10)
    for run in (begun, slow):
        with pytest.raises(FitRefused, match=r"steps are done; .* 20 steps and 5% of them"):
            track(run, curves)
    with pytest.raises(FitRefused, match="5 finished runs have a loss curve"):
        track(flat(2.0, flops=1e10), curves[:5])


def test_a_run_whose_loss_is_no_number_ends_nowhere() -> None:
    """It is said at which step, and no interval is given."""
    stored = read_runs(ROOT / "runs" / "bytes-dense")
    losses = [*[3.0] * 200, None, None]
    curves = finished_curves(stored, without="")
    found = track_losses(losses, stored[-1].spec, curves, forecast=EarlierForecast(quantiles=None, by="nothing was signed"))
    assert found.tracking is None
    assert found.faults == ["the loss is not finite at step 200"]
    said = tracked_text(found)
    assert "its loss is not finite" in said
    assert "no forecast to compare with: nothing was signed" in said
