"""What training commands share: time limits, and progress that takes events in any order."""

import io
import signal
import time

import pytest
from rich.console import Console
from run_factory import rung_spec

from marin_scaling.train.progress import RunProgress, WorkerEvent
from marin_scaling.train.session import TimeIsUp, at_most


def test_a_block_ends_when_its_time_is_up_and_later_alarms_are_nobodys() -> None:
    """What handled the signal before handles it again."""
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(TimeIsUp), at_most("0.05s"):
        time.sleep(60)
    with at_most("1h"):
        pass
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_no_limit_is_no_limit() -> None:
    """An empty text, as where the option is not given."""
    with at_most(""):
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_run_whose_worker_died_before_a_word_and_one_that_starts_twice_are_shown() -> None:
    """As on a cluster that starts a task again."""
    first, second = rung_spec(), rung_spec(seed=1)
    console = Console(file=io.StringIO(), width=200)
    with RunProgress([first, second], label="ladder", console=console) as progress:
        progress.see(WorkerEvent(kind="failed", run=first.directory_name, message="its Ray task ended"))
        for kind in ("started", "stepped", "started", "stepped"):
            progress.see(WorkerEvent(kind=kind, run=second.directory_name, step=3, loss=4.0))
        progress.see(WorkerEvent(kind="finished", run=second.directory_name, step=10, loss=3.0))
    shown = console.file.getvalue()
    assert "failed" in shown
    assert "3.0000 bits/byte" in shown
