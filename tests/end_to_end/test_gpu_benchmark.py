"""The benchmark of a GPU measures what it says also where there is none, so that it works on the day there is one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("levanter", reason="the train extra is not installed")
pytestmark = pytest.mark.train

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "gpu_ladder.py"


@pytest.mark.nightly
def test_a_run_alone_two_at_once_and_levanters_loop_are_measured() -> None:
    """Each does steps and is in the table; a processor has no peak, so that its share is left empty."""
    options = ["--cases", "quickstart-moe:8", "--packed", "2", "--seconds", "0.2"]
    done = subprocess.run([sys.executable, str(BENCHMARK), *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line.startswith("| quickstart-moe:8")]
    assert [row[3] for row in rows] == ["ours", "Levanter's Trainer", "ours, 2 at once"], done.stderr
    assert all(float(row[4]) > 0 and float(row[5]) > 0 for row in rows)


@pytest.mark.nightly
def test_plain_jax_is_measured_and_each_result_is_written_as_it_is_found(tmp_path: Path) -> None:
    options = ["--cases", "quickstart:8", "--packed", "2", "--seconds", "0.2", "--at-once", "4", "--out", str(tmp_path)]
    done = subprocess.run([sys.executable, str(BENCHMARK), *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    facts = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    found = {fact["how"]: fact["found"] for fact in facts if fact["kind"] == "measurement"}
    assert set(found) == {"ours", "Levanter's Trainer", "plain JAX", "ours, 2 at once"}, done.stderr
    assert [len(found["plain JAX"]), len(found["ours, 2 at once"])] == [1, 2]
    assert all(each["steps_per_second"] > 0 for results in found.values() for each in results)
    assert found["plain JAX"][0]["flops_per_step"] == found["ours"][0]["flops_per_step"]


def test_what_there_was_no_time_for_is_named() -> None:
    """A table that stops in the middle of its cases does not look like a whole one."""
    options = ["--cases", "quickstart:16", "--minutes", "0"]
    done = subprocess.run([sys.executable, str(BENCHMARK), *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "There was no time for quickstart:16 (ours), quickstart:16 (Levanter's Trainer)" in done.stdout
