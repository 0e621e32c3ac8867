"""Runs of `run_factory`'s specs, trained for real with Levanter, and what they come to."""

from pathlib import Path
from typing import Any

import pytest
from run_factory import corpus

from marin_scaling.run.spec import RunSpec


def trained(spec: RunSpec, work_dir: Path, **more: Any) -> Any:
    """What Levanter's training of this run comes to; `more` goes to `train`."""
    from marin_scaling.train.train import train

    return train(spec, corpus=corpus(), work_dir=work_dir, **({"on_step": lambda _step, _loss: None} | more))


def save_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on training in this process saves its state after every step."""
    monkeypatch.setattr("marin_scaling.train.train.CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr("marin_scaling.train.train.SAVING_SHARE", 1.0)


def stop_at(last: int, spec: RunSpec, work_dir: Path, **more: Any) -> None:
    """Train this run until it tells of step `last`, and stop it there, before that step is saved, as Ctrl-C does."""

    def on_step(step: int, _loss: float) -> None:
        if step == last:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(spec, work_dir, on_step=on_step, **more)


def losses_of(result: Any) -> list[float]:
    """The training loss of every step, and bits per byte at the end."""
    rows = result.loss_curve.history(spec_digest="").rows
    assert result.bits_per_byte is not None
    return [*(row.train_loss_nats_per_token or 0.0 for row in rows), result.bits_per_byte]
