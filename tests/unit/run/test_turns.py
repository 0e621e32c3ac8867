"""Processes that train a ladder compile each program once, and not at the same time while other runs need none."""

import contextlib
import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from marin_scaling.errors import Interrupted
from marin_scaling.run.run_spec import RunSpec
from marin_scaling.run.turns import compiling_once, in_turns
from tests.run_factory import rung_spec

COMPILE = """
import sys, time
from pathlib import Path
from marin_scaling.run.run_spec import read_spec
from marin_scaling.run.turns import compiling_once
spec = read_spec(Path(sys.argv[1]).read_bytes(), name="spec")
with compiling_once(spec, Path(sys.argv[2]), wait=lambda seconds: False):
    print("compiling", flush=True)
    time.sleep(60)
"""

WIDE, NARROW, OTHER = (rung_spec(batch_size=size) for size in (8, 4, 2))


@contextlib.contextmanager
def another_compiles(spec: RunSpec, folder: Path) -> Iterator[subprocess.Popen[str]]:
    path = folder / "spec.json"
    path.write_bytes(spec.to_bytes())
    command = [sys.executable, "-c", COMPILE, str(path), str(folder / "compiled")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "compiling\n"
        yield process
        process.kill()


def compiled_before(spec: RunSpec, folder: Path) -> None:
    with compiling_once(spec, folder / "compiled", wait=lambda seconds: False) as has_compiled:
        has_compiled()


def test_runs_that_differ_in_rates_steps_and_seeds_share_their_programs() -> None:
    """And runs of another shape, batch, beta or precision do not."""
    spec = rung_spec()
    rates = spec.optimizer.model_copy(update={"learning_rate": 0.5, "adam_learning_rate": 0.25, "epsilon": 1e-3})
    assert rung_spec(optimizer=rates, train_steps=99, seed=5).program_digest == spec.program_digest
    changes = [
        {"batch_size": 8},
        {"model": spec.model.model_copy(update={"hidden_dim": 20})},
        {"optimizer": spec.optimizer.model_copy(update={"beta2": 0.98})},
        {"compute": spec.compute.model_copy(update={"precision": "bfloat16"})},
    ]
    assert len({spec.program_digest, *(rung_spec(**change).program_digest for change in changes)}) == 5


def test_without_others_the_order_is_kept(tmp_path: Path) -> None:
    """Whatever was compiled before."""
    compiled_before(NARROW, tmp_path)
    assert list(in_turns([WIDE, NARROW, OTHER], tmp_path / "compiled")) == [WIDE, NARROW, OTHER]


def test_while_another_compiles_runs_that_need_no_compiling_come_first(tmp_path: Path) -> None:
    """Then those of a new shape, and last the one that is being compiled; when that process is killed, it is free at once."""
    compiled_before(OTHER, tmp_path)
    runs = [WIDE, NARROW, OTHER]
    with another_compiles(WIDE, tmp_path):
        assert list(in_turns(runs, tmp_path / "compiled")) == [OTHER, NARROW, WIDE]
    assert list(in_turns(runs, tmp_path / "compiled")) == runs


def test_what_another_compiles_is_waited_for(tmp_path: Path) -> None:
    """Until it has, or is dead; a process that is asked to end meanwhile ends."""
    with another_compiles(WIDE, tmp_path) as process:
        waits = itertools.count()

        def kill_at_the_third(_seconds: float) -> bool:
            if next(waits) == 3:
                process.kill()
                process.wait()
            return False

        with compiling_once(NARROW, tmp_path / "compiled", wait=lambda seconds: pytest.fail("it is another shape")):
            pass
        with pytest.raises(Interrupted), compiling_once(WIDE, tmp_path / "compiled", wait=lambda seconds: True):
            pass
        with compiling_once(WIDE, tmp_path / "compiled", wait=kill_at_the_third):
            pass
    assert next(waits) == 4


def test_what_is_compiled_is_loaded_by_all_at_once(tmp_path: Path) -> None:
    """The second run of a shape neither waits nor lets others wait."""
    compiled_before(WIDE, tmp_path)
    with compiling_once(WIDE, tmp_path / "compiled", wait=lambda seconds: pytest.fail("it is compiled")):
        assert list(in_turns([WIDE, NARROW], tmp_path / "compiled")) == [WIDE, NARROW]
        with compiling_once(WIDE, tmp_path / "compiled", wait=lambda seconds: pytest.fail("it is compiled")):
            pass
