"""What the tutorial and README show of the quickstart is what it prints."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from marin_scaling.fitting.fit import fit
from marin_scaling.forecast.backtest import backtest_of_fit
from marin_scaling.forecast.forecast import forecast_runs, optimal_target
from marin_scaling.forecast.report import forecast_text
from marin_scaling.run.table import read_run_table

ROOT = Path(__file__).parents[2]
TRANSCRIPT = (ROOT / "site" / "tutorial" / "quickstart-transcript.txt").read_text(encoding="utf-8")


def marin_scale(*arguments: str, cwd: Path = ROOT) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "marin_scaling.cli", *arguments], cwd=cwd, capture_output=True, text=True, check=True
    )
    return [line for line in done.stdout.splitlines() if line.strip()]


def test_the_planned_ladder_is_the_one_of_today(tmp_path: Path) -> None:
    """Every line that the dry run prints stands in the transcript, in a folder without recorded runs."""
    ladder = shutil.copy(ROOT / "ladders" / "quickstart.yaml", tmp_path)
    missing = [line for line in marin_scale("ladder", ladder, "--dry-run", cwd=tmp_path) if line not in TRANSCRIPT]
    assert not missing


def without_numbers(text: str) -> str:
    """Numbers, the space before them and the ends of wrapped lines as one space each."""
    return " ".join(re.sub(r"[-+±]?\d[\d.]*(e\d+)?[kMB%]?", " # ", text).split())


def test_the_fit_is_printed_as_today() -> None:
    """Word for word; the numbers are those of another machine, whose losses differ by parts in a thousand."""
    result = fit(read_run_table(ROOT / "runs" / "quickstart"))
    printed = forecast_text(result, forecast_runs(result, [optimal_target(result, 2.5e12)]), backtest_of_fit(result))
    shown = without_numbers(TRANSCRIPT)
    missing = [line for line in map(without_numbers, printed.splitlines()[2:]) if line not in shown]
    assert not missing


def test_the_forecast_is_nearly_the_one_of_the_stored_runs() -> None:
    """Trained on another machine: within half of the interval."""
    result = fit(read_run_table(ROOT / "runs" / "quickstart"))
    found = re.search(r"loss ([\d.]+) bits/byte, 90 % interval \[([\d.]+), ([\d.]+)\]", TRANSCRIPT)
    assert found
    stated, low, high = map(float, found.groups())
    (again,) = forecast_runs(result, [optimal_target(result, 2.5e12)])
    assert abs(again.median - stated) < (high - low) / 4


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
