"""A ladder's sweep: which runs it has, what tells them apart, and what cannot be swept."""

import pytest
from tiny_ladder import LADDER

from marin_scaling.errors import UsageError
from marin_scaling.run.plan import LoadedLadder, load_ladder


@pytest.fixture
def loaded(tmp_path) -> LoadedLadder:
    path = tmp_path / "tiny.yaml"
    path.write_text(LADDER)
    return load_ladder(path)


def test_each_rung_is_trained_at_every_multiple_of_its_own_rate(loaded):
    """Nothing else of a rung changes, and its sweep is stored apart from the ladder."""
    swept = loaded.swept(learning_rate=[0.5, 1, 2])
    assert swept.ladder.file.name == "tiny-sweep"
    frame, own = swept.plan().frame, loaded.plan().frame
    assert len(frame) == 3 * len(own)
    for (budget, width), runs in frame.groupby(["budget_flops", "hidden_dim"]):
        (rung,) = own[(own["budget_flops"] == budget) & (own["hidden_dim"] == width)].to_dict("records")
        assert sorted(runs["learning_rate"] / rung["learning_rate"]) == pytest.approx([0.5, 1, 2])
        assert runs["train_steps"].unique().tolist() == [rung["train_steps"]]


def test_a_batch_size_keeps_the_budget(loaded):
    """So the number of steps follows; the recipe gives the rate for the batch."""
    frame = loaded.swept(batch_size=[8, 16, 32]).plan().frame
    assert set(frame["batch_size"]) == {8, 16, 32}
    assert ((frame["flops"] / frame["budget_flops"] - 1).abs() < 0.01).all()
    by_batch = frame.groupby("batch_size")["learning_rate"].mean()
    assert by_batch[8] < by_batch[16] < by_batch[32]


def test_every_run_of_a_sweep_is_told_apart(loaded):
    """By rate and batch size, so that a recorded one does not count for the others."""
    rungs = loaded.swept(learning_rate=[0.5, 1, 2], batch_size=[8, 16, 32]).plan().rungs
    assert len({rung.key for rung in rungs}) == len(rungs) == 4 * 9


@pytest.mark.parametrize("sweep", [{"learning_rate": [1, 2]}, {"learning_rate": [0, 1, 2]}, {"batch_size": [8, 8, 8]}])
def test_a_sweep_needs_three_values_above_zero(loaded, sweep):
    with pytest.raises(UsageError):
        loaded.swept(**sweep)


def test_rungs_with_a_shared_trunk_are_not_swept(tmp_path):
    """Their rates are those of the largest budget."""
    path = tmp_path / "tiny.yaml"
    path.write_text(LADDER + "shared_trunk: true\n")
    with pytest.raises(UsageError):
        load_ladder(path).swept(learning_rate=[0.5, 1, 2])
