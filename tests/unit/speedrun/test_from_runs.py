"""Submissions from runs of the store: all figures are those of the records, and what these do not keep says why."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from registration_factory import run_spec, store_run, target_spec

from marin_scaling.errors import Severity, UsageError
from marin_scaling.recipe.model_shape import WITH_LM_HEAD, training_flops
from marin_scaling.run.store import Hardware, StoredRun, read_run
from marin_scaling.speedrun.checks import validate
from marin_scaling.speedrun.from_runs import submission_from_runs
from marin_scaling.speedrun.submission import Author, Submission, parse_submission, to_bytes
from marin_scaling.units import format_flops

ROOT = Path(__file__).parents[3]
H100 = Hardware(platform="Linux x86_64, gpu", device_kind="NVIDIA H100 80GB HBM3", device_count=8, cpu_count=64)
TIMES: dict[str, Any] = {"started_at": "2026-11-19T10:00:00Z", "finished_at": "2026-11-19T10:00:05Z", "wall_seconds": 4.0}


def stored(folder: Path, *, seed: int = 0, loss: float | None = 2.5, width: int = 32, **changes: Any) -> StoredRun:
    """A run in a store."""
    spec = run_spec(hidden_dim=width).model_copy(update={"seed": seed, "data_order_seed": seed})
    return read_run(store_run(folder, spec=spec, loss=loss, **{**TIMES, "step_seconds": 3.0, **changes}))


def made(*runs: StoredRun, **changes: Any) -> Submission:
    """The submission of these."""
    said: dict[str, Any] = {"name": "tiny/32", "track": "cpu", "author": Author(name="Ada"), "description": "", "trials": 2}
    return submission_from_runs(runs, **{**said, **changes})


def test_its_figures_are_those_of_the_records(tmp_path: Path) -> None:
    """One entry a seed; FLOPs by the common formula, whatever convention the run's kind of model has."""
    found = made(stored(tmp_path), stored(tmp_path, seed=1, loss=2.7))
    assert [(each.seed, each.bits_per_byte, each.training_seconds) for each in found.seeds] == [(0, 2.5, 3.0), (1, 2.7, 3.0)]
    spec = run_spec()
    assert found.compute.model_flops == training_flops(spec.model.shape(), tokens=spec.trained_tokens, convention=WITH_LM_HEAD)
    assert found.data.trained_tokens == spec.trained_tokens
    assert parse_submission(to_bytes(found), name="x") == found


def test_what_was_trained_here_is_accepted(tmp_path: Path) -> None:
    """On a CPU, whose peak nobody states."""
    (judged,) = validate([made(stored(tmp_path))], at=datetime.now(UTC))
    assert {finding.severity for finding in judged.findings} <= {Severity.NOTE}
    assert judged.submission.mfu is None


def test_a_gpu_is_known_by_the_name_that_jax_gives_it(tmp_path: Path) -> None:
    """With its dense peak, so that MFU can be told."""
    found = made(stored(tmp_path, hardware=H100))
    assert found.compute.hardware is not None
    assert (found.compute.hardware.kind, found.compute.hardware.chips) == ("h100", 8)
    assert found.hardware_flops == 3.0 * 8 * 989.5e12


def test_the_time_of_a_run_that_was_interrupted_is_absent(tmp_path: Path) -> None:
    """Its record keeps that of the last part only."""
    found = made(stored(tmp_path, finished_at="2026-11-19T11:00:00Z"))
    assert found.training_seconds is None
    assert "interrupted" in found.absent["seeds.training_seconds"]


def test_runs_that_differ_in_more_than_seeds_are_not_one_submission(tmp_path: Path) -> None:
    """It says in what."""
    with pytest.raises(UsageError, match=r"differs from .* in model"):
        made(stored(tmp_path), stored(tmp_path, width=64))


def test_a_run_that_diverged_has_nothing_to_compare(tmp_path: Path) -> None:
    """It is refused, and the description has to say how many there were."""
    with pytest.raises(UsageError, match="diverged"):
        made(stored(tmp_path, loss=None))


def test_a_target_names_its_preregistration(tmp_path: Path) -> None:
    """That is what trains it again."""
    spec = target_spec().model_copy(update={"statement_sha256": "f" * 64})
    run = read_run(store_run(tmp_path, spec=spec, loss=2.5, **TIMES, step_seconds=3.0))
    assert made(run).absent["code.command"].endswith("f" * 64)


@pytest.mark.parametrize("ladder", ["quickstart", "bytes-dense", "bytes-moe"])
def test_every_finished_run_of_this_repository_can_be_submitted(ladder: str) -> None:
    """Dense and sparse; none is refused, and its FLOPs are at least those that its record counted."""
    runs = [read_run(path.parent) for path in sorted((ROOT / "runs" / ladder).glob("*/record.json"))]
    assert runs
    for run in runs:
        if run.record.loss is not None:
            found = made(run)
            (judged,) = validate([found], at=datetime.now(UTC))
            assert judged.accepted, judged.findings
            assert found.compute.model_flops >= run.record.flops, format_flops(run.record.flops)
