"""The loss curve survives a kill, and steps that are trained again replace what stood there."""

import os
from pathlib import Path

import pytest
from run_factory import curve_lines

from marin_scaling.errors import StorageError
from marin_scaling.run.curves import LossCurve


def losses(curve: LossCurve) -> list[float | None]:
    return [row.train_loss_nats_per_token for row in curve.history(spec_digest="d").rows]


def test_a_curve_goes_on_where_the_checkpoint_was(tmp_path: Path) -> None:
    """Steps after the checkpoint are forgotten and written anew."""
    with LossCurve(tmp_path / "curve") as curve:
        assert [curve.add(loss) for loss in (5.0, 4.0, 3.0)] == [0, 1, 2]
    with LossCurve(tmp_path / "curve") as curve:
        curve.truncate(2)
        assert curve.add(3.5) == 2
        assert losses(curve) == [5.0, 4.0, 3.5]
    with LossCurve(tmp_path / "curve") as curve:
        assert losses(curve) == [5.0, 4.0, 3.5]


def test_a_torn_last_line_is_dropped(tmp_path: Path) -> None:
    """A kill in the middle of a line costs that step only."""
    (tmp_path / "curve").write_text(curve_lines(5.0, 4.125)[:-4])
    with LossCurve(tmp_path / "curve") as curve:
        assert curve.steps_done == 1
        curve.truncate(1)
        curve.add(None)
        assert losses(curve) == [5.0, None]
        assert curve.last_finite() == 5.0


@pytest.mark.parametrize("tail", [bytes(30), bytes(30) + b"\n", b"\xff\xfe{}\n", b"NaN\n3.0\n", b'{"step": 3}\n'])
def test_what_a_power_cut_leaves_ends_the_curve(tmp_path: Path, tail: bytes) -> None:
    """Zeros, no text, or no number: the curve is what stands before, and goes on from there."""
    (tmp_path / "curve").write_bytes(curve_lines(5.0, None).encode() + tail)
    with LossCurve(tmp_path / "curve") as curve:
        assert losses(curve) == [5.0, None]
        curve.truncate(2)
        curve.add(3.0)
        curve.sync()
        assert (tmp_path / "curve").read_text() == curve_lines(5.0, None, 3.0)


def test_a_curve_is_not_cut_to_more_steps_than_it_has(tmp_path: Path) -> None:
    """The steps between would be missing in the history, and those after them wrongly numbered."""
    with LossCurve(tmp_path / "curve") as curve:
        curve.add(5.0)
        with pytest.raises(ValueError, match="holds 1 steps, not 3"):
            curve.truncate(3)


def test_a_failure_while_the_curve_is_cut_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shorter file takes the place of the longer one in one step, or not at all."""
    (tmp_path / "curve").write_text(curve_lines(5.0, 4.0, 3.0))

    def full_disk(_file: int) -> None:
        raise OSError(28, "No space left on device")

    with LossCurve(tmp_path / "curve") as curve:
        monkeypatch.setattr(os, "fsync", full_disk)
        with pytest.raises(StorageError, match="no space left"):
            curve.truncate(1)
    assert (tmp_path / "curve").read_text() == curve_lines(5.0, 4.0, 3.0)


def test_norms_and_routing_are_kept_beside_the_loss(tmp_path: Path) -> None:
    """As far as they were measured."""
    with LossCurve(tmp_path / "curve") as curve:
        curve.add(5.0)
        curve.add(4.0, gradient_norm=0.0)
        curve.add(None, gradient_norm=None, router_entropy_nats=[0.6], expert_shares=[[0.25, 0.75]])
        curve.add(3.0)
        rows = curve.history(spec_digest="d").rows
    with LossCurve(tmp_path / "curve") as curve:
        assert curve.history(spec_digest="d").rows == rows
        assert [row.gradient_norm for row in rows] == [None, 0.0, None, None]
        assert rows[2].expert_shares == ((0.25, 0.75),)
        curve.truncate(3)
        assert curve.history(spec_digest="d").rows == rows[:3]


@pytest.mark.parametrize(
    "more",
    [
        '"gradient_norm": -1.0',
        '"gradient_norm": NaN',
        '"gradient_norm": "1"',
        '"router_entropy_nats": [0.5]',
        '"expert_shares": [[]]',
        '"other": 1',
    ],
)
def test_a_malformed_norm_or_routing_ends_the_curve(more: str, tmp_path: Path) -> None:
    first, second, third = curve_lines(5.0, 4.0, 3.0).splitlines()
    (tmp_path / "curve").write_text("\n".join([first, f"{second[:-1]}, {more}}}", third, ""]))
    with LossCurve(tmp_path / "curve") as curve:
        assert curve.steps_done == 1
