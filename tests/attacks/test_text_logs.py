"""Forged and swapped text logs of an outside run: each is refused before anything is signed, or found by its digest."""

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from forgery import said_by
from made_once import made_once
from outside_factory import LOSS, PRINCIPAL, RUN, register_outside
from text_log_factory import (
    RULER,
    TIME,
    maxtext_log,
    megatron_evaluation,
    megatron_log,
    megatron_settings,
    megatron_step,
    write,
)

from marin_scaling.canonical_json import sha256_hex
from marin_scaling.errors import MarinScalingError, RunTableError, VerificationError
from marin_scaling.preregistration.outcome import State
from marin_scaling.preregistration.outside import record_outcome

KEY = "validation lm loss"
BETTER = f"{LOSS - 0.1:.6E}"


def make(root: Path) -> None:
    """A repository with a forecast whose log will be the text of Megatron-LM."""
    root.mkdir()
    register_outside(root, outcome={"tracker": "megatron", "project": "lab/hero", "run": RUN, "key": KEY})


@pytest.fixture
def root(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(made_once("text", make, factory=tmp_path_factory), tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.fixture
def folder(root: Path) -> Path:
    """The folder of the forecast."""
    return next((root / "preregistrations").glob("*-hero"))


def record(folder: Path, log: Path, **choices):
    """The verdict that follows from a log."""
    key = folder.parent.parent / "key"
    return record_outcome(
        folder, str(log), registry=folder.parent, key=key, signer=PRINCIPAL, on_message=lambda _: None, **choices
    )


def replaced(old: str, new: str) -> list[str]:
    """The whole log with other text in every line that has it."""
    return [line.replace(old, new) for line in megatron_log()]


def inserted(*lines: str, at: int) -> list[str]:
    """The whole log with further lines."""
    log = megatron_log()
    return [*log[:at], *lines, *log[at:]]


def cut(*, after: int) -> list[str]:
    """The settings and the first lines, with an evaluation of the end behind them."""
    return [*megatron_log(until=after), *megatron_evaluation(1000, BETTER)]


FORGERIES: dict[str, tuple[Callable[[], list[str]], type[MarinScalingError], str]] = {
    "the log of another run": (lambda: megatron_log(run="hero-2"), VerificationError, "hero-2"),
    "the log of another trainer": (maxtext_log, VerificationError, KEY),
    "another metric under other words": (lambda: replaced("lm loss value", "lm loss PPL"), RunTableError, "PPL"),
    "without the promised metric": (lambda: replaced("lm loss value", "train loss value"), VerificationError, KEY),
    "a cut log": (lambda: megatron_log(until=700), VerificationError, "stopped at step 700 of 1000"),
    "a cut log with an evaluation of the end": (lambda: cut(after=700), VerificationError, "stopped at step 700 of 1000"),
    "a cut log with fewer steps": (
        lambda: [line.replace("/    1000", "/     700") for line in cut(after=700)],
        RunTableError,
        "700",
    ),
    "a cut log with fewer steps and settings": (
        lambda: [line.replace("1000", " 700") for line in megatron_log(until=700)],
        VerificationError,
        "14.0B",
    ),
    "an evaluation twice": (lambda: inserted(*megatron_evaluation(1000, BETTER), at=999), RunTableError, "step 1000"),
    "an evaluation of the end too early": (
        lambda: inserted(*megatron_evaluation(1000, BETTER), at=12),
        RunTableError,
        "step 500 follows step 1000",
    ),
    "steps of two runs": (lambda: inserted(megatron_step(300, "2.0E+00"), at=15), RunTableError, "step 300"),
    "a second end after a restart": (
        lambda: [*megatron_log(), *megatron_settings(run=RUN), *megatron_log(loss=LOSS - 0.1)[12:]],
        RunTableError,
        "step 1000",
    ),
    "a run begun before": (lambda: replaced(TIME[:5], "2020-"), VerificationError, "2020"),
    "half of the tokens": (
        lambda: replaced("seq_length ...................................... 2000", "seq_length .... 1000"),
        VerificationError,
        "10.0B",
    ),
    "a hidden value": (lambda: replaced("lm loss value: ", f"lm loss value: {BETTER}\b\b\b\b"), RunTableError, "hidden"),
    "a value behind a carriage return": (
        lambda: inserted("\r".join(megatron_evaluation(1000, BETTER)), at=999),
        RunTableError,
        "step 1000",
    ),
    "a line that a vertical tab begins": (
        lambda: inserted(f"{RULER}\v validation loss at iteration 1000 | lm loss value: {BETTER} |", at=999),
        RunTableError,
        "step 1000",
    ),
    "no number": (lambda: replaced("lm loss value: ", "lm loss value: about "), VerificationError, "about"),
    "no number at the end": (lambda: replaced(f"value: {LOSS:.6E}", "value: NAN"), VerificationError, "--diverged"),
    "infinite at the end": (lambda: replaced(f"value: {LOSS:.6E}", "value: INF"), VerificationError, "--diverged"),
    "a value of another metric": (lambda: replaced(f"value: {LOSS:.6E}", "value: 5.1E+01"), VerificationError, "51"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_log_is_refused(root: Path, folder: Path, name: str) -> None:
    """With the fact; nothing is written."""
    lines, error, named = FORGERIES[name]
    before = sorted(folder.rglob("*"))
    with pytest.raises(error) as refusal:
        record(folder, write(root / "slurm.out", *lines()))
    assert named in str(refusal.value)
    assert sorted(folder.rglob("*")) == before


def test_the_unchanged_log_is_an_outcome(root: Path, folder: Path) -> None:
    """So that every refusal above is of its forgery."""
    assert record(folder, write(root / "slurm.out", *megatron_log())).state is State.HELD


def test_a_log_that_is_edited_after_signing_differs_from_its_digest(root: Path, folder: Path) -> None:
    """The outcome stays that of the signed reading, and is read once."""
    log = write(root / "slurm.out", *megatron_log())
    value = record(folder, log).outcome["value"]
    write(log, *megatron_log(loss=LOSS - 0.1))
    with pytest.raises(MarinScalingError, match="no log was read"):
        record(folder, log)
    document = json.loads((folder / "observed" / "observed.json").read_bytes())
    assert document["value"] == value
    assert document["files"][0]["sha256"] != sha256_hex(log.read_bytes())


def test_a_finished_run_did_not_diverge(root: Path, folder: Path) -> None:
    """A forecast cannot be made a miss by a word."""
    with pytest.raises(VerificationError, match="did not diverge"):
        record(folder, write(root / "slurm.out", *megatron_log()), diverged=True)


def test_a_run_that_diverged_is_a_miss_once_that_is_stated(root: Path, folder: Path) -> None:
    """Its log ends early with a loss that is no number."""
    log = write(root / "slurm.out", *megatron_log(until=600), *megatron_evaluation(600, "NAN"))
    assert record(folder, log, diverged=True).state is State.MISSED
    assert said_by("verify", root)[0] == 0


@pytest.mark.parametrize(
    "content", [b"\x00" * 10_000, b"\xff\xfe" * 10_000, b"iteration 1/1 |" * 100_000, b"\x1b]0;x\x07" * 1000]
)
def test_a_file_that_is_no_log_is_refused_without_a_traceback(root: Path, folder: Path, content: bytes) -> None:
    """Binary content, huge lines and terminal commands."""
    (root / "slurm.out").write_bytes(content)
    with contextlib.chdir(root), pytest.raises(MarinScalingError) as refusal:
        record(folder, root / "slurm.out")
    assert "\x1b" not in str(refusal.value)
