"""A run counts the time in which its device waits for data."""

import dataclasses
import time
from pathlib import Path
from typing import Any

import pytest
from run_factory import corpus, rung_spec

pytest.importorskip("levanter", reason="the train extra is not installed")
pytestmark = [pytest.mark.train, pytest.mark.filterwarnings("ignore")]

PAUSE, STEPS = 0.3, 24


class SlowTokens:
    """The tokens of a corpus, each read of which takes a while."""

    def __init__(self, tokens: Any) -> None:
        self._tokens = tokens

    def __len__(self) -> int:
        return len(self._tokens)

    def __getitem__(self, index: Any) -> Any:
        time.sleep(PAUSE)
        return self._tokens[index]


def train(work_dir: Path, *, is_slow: bool) -> tuple[Any, list[str]]:
    """Result of a run, and its notes."""
    from marin_scaling.train.train import train

    text = corpus()
    read = dataclasses.replace(text, train=SlowTokens(text.train)) if is_slow else text
    notes: list[str] = []
    spec = rung_spec(train_steps=STEPS)
    return train(spec, corpus=read, work_dir=work_dir, on_step=lambda _step, _loss: None, on_note=notes.append), notes


def test_waiting_for_slow_data_is_counted_and_named(tmp_path: Path) -> None:
    """Batches that take far longer than steps; the losses are those of quick data."""
    slow, notes = train(tmp_path / "slow", is_slow=True)
    assert slow.idle_seconds > 0
    assert any("waited for batches" in note for note in notes)
    quick, _notes = train(tmp_path / "quick", is_slow=False)
    assert slow.bits_per_byte == quick.bits_per_byte
    assert quick.idle_seconds < slow.idle_seconds
