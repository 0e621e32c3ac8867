"""Processes that train a ladder compile a step once, and not at the same time while other runs need no compiling."""

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from compiling import another_compiles
from run_factory import rung_spec

from marin_scaling.errors import Interrupted
from marin_scaling.run.spec import RunSpec
from marin_scaling.train.compiled_programs import compiling_once, in_turns

WIDE, NARROW, OTHER = (rung_spec(batch_size=size) for size in (8, 4, 2))


def no_wait(_seconds: float) -> bool:
    pytest.fail("nobody compiles it")


def at_the_third(act: Callable[[], object]) -> Callable[[float], bool]:
    """What waits, and lets `act` happen the third time; it fails at the hundredth."""
    waits = iter(range(100))

    def wait(_seconds: float) -> bool:
        if next(waits) == 2:
            act()
        return False

    return wait


def compiling(
    spec: RunSpec, compiled: Path, *, wait: Callable[[float], bool] = no_wait, on_note: Callable[[str], None] = pytest.fail
) -> contextlib.AbstractContextManager[Callable[[], None]]:
    return compiling_once(spec, compiled, wait=wait, on_note=on_note)


def compiled_before(spec: RunSpec, compiled: Path) -> None:
    with compiling(spec, compiled) as tell_compiled:
        tell_compiled()


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
    assert list(in_turns([WIDE, NARROW, OTHER], tmp_path)) == [WIDE, NARROW, OTHER]


def test_while_another_compiles_runs_that_need_no_compiling_come_first(tmp_path: Path) -> None:
    """Then those of a new shape, and last the one that is being compiled; when that process is killed, it is free at once."""
    compiled_before(OTHER, tmp_path)
    runs = [WIDE, NARROW, OTHER]
    with another_compiles(WIDE, tmp_path):
        assert list(in_turns(runs, tmp_path)) == [OTHER, NARROW, WIDE]
    assert list(in_turns(runs, tmp_path)) == runs


def test_a_shape_whose_first_compilation_failed_is_no_compiled_one(tmp_path: Path) -> None:
    """The next process compiles it, and has it for itself meanwhile."""
    with contextlib.suppress(MemoryError), compiling(NARROW, tmp_path):
        raise MemoryError
    with another_compiles(WIDE, tmp_path):
        assert list(in_turns([WIDE, OTHER, NARROW], tmp_path)) == [OTHER, NARROW, WIDE]
    with another_compiles(NARROW, tmp_path), pytest.raises(Interrupted), compiling(NARROW, tmp_path, wait=lambda _: True):
        pass


def test_what_a_dead_process_compiled_is_compiled_by_the_next(tmp_path: Path) -> None:
    """The kernel unlocks it; other shapes are not waited for at all."""
    with another_compiles(WIDE, tmp_path) as process:
        with compiling(NARROW, tmp_path):
            pass

        def kill() -> None:
            process.kill()
            process.wait()

        with compiling(WIDE, tmp_path, wait=at_the_third(kill)):
            assert list(in_turns([WIDE, OTHER], tmp_path)) == [OTHER, WIDE]


def test_all_who_wait_go_on_together_when_it_is_compiled(tmp_path: Path) -> None:
    """None keeps the others from loading it, and neither does a later run of that shape."""
    with another_compiles(WIDE, tmp_path) as process:
        assert process.stdin is not None
        process_input = process.stdin

        def end_compiling() -> None:
            process_input.write("\n")
            process_input.flush()
            while list(in_turns([WIDE, OTHER], tmp_path)) != [WIDE, OTHER]:
                pass

        with compiling(WIDE, tmp_path, wait=at_the_third(end_compiling)), compiling(WIDE, tmp_path), compiling(WIDE, tmp_path):
            assert list(in_turns([WIDE, OTHER], tmp_path)) == [WIDE, OTHER]


def test_waiting_is_told_once_and_ends_at_last(tmp_path: Path) -> None:
    """A process that hangs costs others minutes, not the run; one that is asked to end meanwhile ends."""
    notes: list[str] = []
    with another_compiles(WIDE, tmp_path):
        with pytest.raises(Interrupted), compiling(WIDE, tmp_path, wait=lambda _seconds: True):
            pass
        with compiling(WIDE, tmp_path, wait=lambda _seconds: False, on_note=notes.append) as tell_compiled:
            tell_compiled()
    assert notes == ["another process compiles the same step; waiting for it."]


def test_where_nothing_can_be_locked_runs_go_on_in_their_order(tmp_path: Path) -> None:
    """A folder that is none stands for one that cannot be written."""
    (tmp_path / "compiled").write_bytes(b"")
    with compiling(WIDE, tmp_path / "compiled") as tell_compiled:
        tell_compiled()
        assert list(in_turns([WIDE, OTHER], tmp_path / "compiled")) == [WIDE, OTHER]
