"""`marin-scale` in this process or in one of its own, the form of a refusal, and a repository with finished rungs."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TextIO
from unittest import mock

import numpy as np
from run_factory import record_of

from marin_scaling.canonical_json import sha256_hex
from marin_scaling.data.documents import standard_library_corpus
from marin_scaling.ladder.config import read_ladder_file
from marin_scaling.ladder.plan import plan_ladder
from marin_scaling.run.plan import rung_specs
from marin_scaling.run.store import History, HistoryRow, add_run

LADDER = """\
name: tiny
recipe: quickstart
rungs:
  - {budget_flops: 3e10, hidden_dims: [8, 12, 16, 24]}
  - {budget_flops: 6e10, hidden_dims: [8, 12, 16, 24]}
  - {budget_flops: 1.2e11, hidden_dims: [12, 16, 24, 32]}
  - {budget_flops: 2.4e11, hidden_dims: [12, 16, 24, 32]}
target: {budget_flops: 1.2e12}
"""

SMALL_LADDER = """\
name: tiny
recipe: quickstart
rungs:
  - {budget_flops: 5e9, hidden_dims: [8, 12, 16]}
  - {budget_flops: 1e10, hidden_dims: [8, 12, 16]}
  - {budget_flops: 2e10, hidden_dims: [8, 12, 16]}
  - {budget_flops: 4e10, hidden_dims: [8, 12, 16]}
target: {budget_flops: 1.6e11}
evaluation: {windows: 64}
"""
"""Its target trains in seconds."""

_CAPABILITIES_THAT_IGNORE_MODES = (1, 2)  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH: linux/capability.h
_DROP_FROM_BOUNDING_SET = 24  # PR_CAPBSET_DROP: linux/prctl.h


def marin_scale(
    *arguments: object, cwd: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `marin-scale` in `cwd`, in this process: what it prints goes to files, as in a process of its own."""
    from marin_scaling.cli import main

    words, status = ["marin-scale", *map(str, arguments)], 0
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as out,
        tempfile.TemporaryFile("w+", encoding="utf-8") as err,
        contextlib.chdir(cwd),
        mock.patch.dict(os.environ, _environment(cwd, environment)),
        mock.patch.object(sys, "argv", words),
        open(os.devnull) as nothing,
        mock.patch.object(sys, "stdin", nothing),
    ):
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main()
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else int(end.code is not None)
        return subprocess.CompletedProcess(words, status, *map(_content, (out, err)))


def marin_scale_process(
    *arguments: object, cwd: Path, environment: Mapping[str, str] | None = None, before: Callable[[], None] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `marin-scale` in `cwd`, in a process of its own, in which `before` runs first."""
    return subprocess.run(
        [sys.executable, "-m", "marin_scaling.cli", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **_environment(cwd, environment)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=before,  # no threads here
        timeout=300,
    )


def _environment(cwd: Path, more: Mapping[str, str] | None) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(cwd / ".config"), **(more or {})}


def _content(file: TextIO) -> str:
    file.flush()
    file.seek(0)
    return file.read()


def obey_file_modes() -> None:
    """In a process about to start: let file modes bind root, too, as they bind everybody else."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        for capability in _CAPABILITIES_THAT_IGNORE_MODES:
            if libc.prctl(_DROP_FROM_BOUNDING_SET, capability, 0, 0, 0) != 0:
                raise OSError(ctypes.get_errno(), "this root may not give up its capabilities")


def listing(folder: Path) -> dict[str, bytes | None]:
    """Every file below `folder` with its content, and every folder (None)."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def assert_refused(done: subprocess.CompletedProcess[str], *fragments: str) -> None:
    """Assert status 2, nothing on standard output, and one message with a fix that holds all `fragments`."""
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout == ""
    assert_message(done, *fragments)


def assert_message(done: subprocess.CompletedProcess[str], *fragments: str) -> None:
    """Assert one message with a fix on standard error, without a traceback, that holds all `fragments`."""
    assert "Traceback" not in done.stdout + done.stderr
    lines = done.stderr.splitlines()
    assert lines[0].startswith("error: ")
    assert [line[:7] for line in lines if line.startswith(("  why: ", "  fix: "))][-1:] == ["  fix: "], done.stderr
    for fragment in fragments:
        assert fragment in done.stderr, done.stderr


def make_repository(root: Path, *, ladder: str = LADDER) -> Path:
    """A repository whose ladder is trained, as far as its records say: losses fall on a known bowl and frontier."""
    path = root / "ladders" / "tiny.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(ladder)
    planned, corpus = plan_ladder(read_ladder_file(path)), standard_library_corpus()
    for number, spec in enumerate(rung_specs(planned, corpus=corpus)):
        size = np.log(spec.model.shape().params_total / (spec.flops / 600) ** 0.5)
        loss = float(1.2 + 20 * spec.flops**-0.1 + 0.05 * size**2 + 0.002 * (-1) ** number)
        history = History(spec_digest=spec.digest, rows=(HistoryRow(step=0, train_loss_nats_per_token=5.5),))
        record = record_of(spec, loss=loss, history=history)
        assert record.history_sha256 == sha256_hex(history.to_bytes())
        add_run(root / "runs", spec=spec, record=record, history=history)
    return root
