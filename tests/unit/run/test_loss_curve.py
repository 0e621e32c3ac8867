"""The loss curve survives a kill, and steps that are trained again replace what stood there."""

from pathlib import Path

from marin_scaling.run.loss_curve import LossCurve


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
    (tmp_path / "curve").write_text("5.0\n4.12")
    with LossCurve(tmp_path / "curve") as curve:
        assert curve.steps_done == 1
        curve.truncate(1)
        curve.add(None)
        assert losses(curve) == [5.0, None]
        assert curve.last_finite() == 5.0
