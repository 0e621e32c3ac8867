"""What the tutorial and README show of the quickstart is what it prints."""

import re
import subprocess
import sys
from pathlib import Path

from marin_scaling.fitting.fit import fit
from marin_scaling.forecast.report import forecast_text
from marin_scaling.run.table import read_run_table

ROOT = Path(__file__).parents[2]
TRANSCRIPT = (ROOT / "site" / "tutorial" / "quickstart-transcript.txt").read_text(encoding="utf-8")


def marin_scale(*arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "marin_scaling.cli", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [line for line in done.stdout.splitlines() if line.strip()]


def test_the_planned_ladder_is_the_one_of_today() -> None:
    """Every line that the dry run prints stands in the transcript."""
    missing = [line for line in marin_scale("ladder", "ladders/quickstart.yaml", "--dry-run") if line not in TRANSCRIPT]
    assert not missing


def test_the_forecast_is_the_one_that_these_runs_give() -> None:
    """The ladder was trained on one machine for both; the law is equal to the digit."""
    result = fit(read_run_table(ROOT / "runs" / "quickstart"))
    missing = [line for line in forecast_text(result, []).splitlines()[2:] if line not in TRANSCRIPT]
    assert not missing


def test_the_six_steps_and_the_outcome_are_there() -> None:
    """In order, with the verdict between the last two."""
    steps = re.findall(r"^\[(\d)/6\]", TRANSCRIPT, re.MULTILINE)
    assert steps == list("123456")
    assert re.search(r"^\S+-quickstart  (held|missed): observed ", TRANSCRIPT, re.MULTILINE)


def test_readme_ends_like_the_transcript() -> None:
    """The part that README shows stands in the transcript word for word."""
    shown = re.search(r"It ends like this:\n\n```text\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert shown
    assert shown[1] in TRANSCRIPT
