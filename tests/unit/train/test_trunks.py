"""A run that continues the trunk of a shorter one has, bit for bit, the curve and loss of a run trained from the beginning."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from real_training import losses_of, stop_at, trained
from run_factory import MOE_SHAPE, rung_spec

from marin_scaling.recipe.base import fraction_of_steps
from marin_scaling.run.spec import MoeModelSpec, RunSpec

pytest.importorskip("levanter", reason="the train extra is not installed")
pytestmark = [pytest.mark.train, pytest.mark.filterwarnings("ignore")]


def spec_of(steps: int, **changes: Any) -> RunSpec:
    """A run of so many steps, of which one warms up and the last two fifths decay."""
    optimizer = rung_spec().optimizer.model_copy(update={"warmup_fraction": fraction_of_steps(1, steps)})
    return rung_spec(train_steps=steps, optimizer=optimizer, shared_trunk=True, **changes)


@settings(deadline=None, max_examples=20)
@given(st.integers(5, 5000), st.integers(1, 5000))
def test_rates_are_equal_up_to_the_decay_of_the_shorter_run(short: int, more: int) -> None:
    from marin_scaling.train.step import rates_of_steps

    shorter, longer = spec_of(short), spec_of(short + more)
    count = shorter.steps_before_decay
    assert np.array_equal(rates_of_steps(shorter)[:count], rates_of_steps(longer)[:count])


@pytest.mark.parametrize("model", [{}, {"model": MoeModelSpec(**MOE_SHAPE)}], ids=["dense", "moe"])
def test_a_continued_run_equals_one_trained_from_the_beginning(tmp_path: Path, model: dict[str, Any]) -> None:
    short, middle, long = (spec_of(steps, **model) for steps in (5, 10, 20))
    alone = losses_of(trained(long, tmp_path / "alone"))
    first, second, third = (trained(spec, tmp_path / spec.digest, trunk=tmp_path / "trunk") for spec in (short, middle, long))
    assert first.trunk is None
    assert (second.trunk.spec_digest, second.trunk.steps) == (short.digest, short.steps_before_decay)
    assert (third.trunk.spec_digest, third.trunk.steps) == (middle.digest, middle.steps_before_decay)
    assert losses_of(third) == alone


def test_a_run_stopped_after_its_trunk_resumes_with_the_same_curve(tmp_path: Path) -> None:
    short, long = spec_of(10), spec_of(20)
    alone = losses_of(trained(long, tmp_path / "alone"))
    stop_at(8, short, tmp_path / "short", trunk=tmp_path / "trunk")
    stop_at(9, long, tmp_path / "long", trunk=tmp_path / "trunk")
    result = trained(long, tmp_path / "long", trunk=tmp_path / "trunk")
    assert losses_of(result) == alone
    assert result.trunk.steps == short.steps_before_decay


def test_a_run_that_resumes_from_its_own_trunk_names_only_steps_of_others(tmp_path: Path) -> None:
    """Stopped before any checkpoint of its own, it goes on from the state that it left for longer runs."""
    short, long = spec_of(10), spec_of(20)
    trained(short, tmp_path / "short", trunk=tmp_path / "trunk")
    stop_at(15, long, tmp_path / "long", trunk=tmp_path / "trunk")
    shutil.rmtree(tmp_path / "long")
    for spec, taken in ((long, short.steps_before_decay), (short, None)):
        told: list[str] = []
        result = trained(spec, tmp_path / "again" / spec.digest, trunk=tmp_path / "trunk", on_note=told.append)
        assert f"step {spec.steps_before_decay} of" in told[0]
        assert (result.trunk and result.trunk.steps) == taken


def test_a_damaged_trunk_costs_time_but_no_loss(tmp_path: Path) -> None:
    """The run trains all its steps, and does not claim to have taken some."""
    short, long = spec_of(10), spec_of(20)
    alone = losses_of(trained(long, tmp_path / "alone"))
    trained(short, tmp_path / "short", trunk=tmp_path / "trunk")
    largest = max((tmp_path / "trunk").rglob("*"), key=lambda path: path.stat().st_size if path.is_file() else 0)
    largest.write_bytes(b"\0" * largest.stat().st_size)
    result = trained(long, tmp_path / "long", trunk=tmp_path / "trunk")
    assert result.trunk is None
    assert losses_of(result) == alone


def test_a_run_takes_no_step_of_its_own_decay_from_a_longer_one(tmp_path: Path) -> None:
    short, long = spec_of(10), spec_of(20)
    trained(long, tmp_path / "long", trunk=tmp_path / "trunk")
    assert trained(short, tmp_path / "short", trunk=tmp_path / "trunk").trunk is None
