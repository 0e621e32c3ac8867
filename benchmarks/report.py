"""What every benchmark prints: a title, where and when it was measured, one Markdown table; `--write` puts it into results/."""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
_LOAD_BEFORE = os.getloadavg()[
    0
]  # other work on the machine when the benchmark began; seconds measured under load are too many


def parser(doc: str) -> argparse.ArgumentParser:
    """The options that every benchmark has; the first line of its docstring is its help."""
    found = argparse.ArgumentParser(description=doc.splitlines()[0])
    found.add_argument("--write", action="store_true", help="also write benchmarks/results/NAME.md")
    return found


def publish(
    title: str,
    *,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    packages: Sequence[str],
    notes: Sequence[str] = (),
    write: bool,
) -> None:
    """Print the table, and write it to results/ under the name of the script when asked."""
    table = map(table_row, (columns, ["---"] * len(columns), *rows))
    lines = [f"# {title}", "", _where_and_when(packages), "", *table]
    for note in notes:
        lines += ["", note]
    text = "\n".join(lines) + "\n"
    print(text, end="")
    if write:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{Path(sys.argv[0]).stem}.md").write_text(text, encoding="utf-8")


def _where_and_when(packages: Sequence[str]) -> str:
    versions = ", ".join(f"{name} {_version(name)}" for name in packages)
    cores = len(os.sched_getaffinity(0))
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, commit {_commit()}, {cores} cores of {_processor()}, "
        f"load {_LOAD_BEFORE:.1f} before, {platform.system()}, Python {platform.python_version()}, {versions}."
    )


def table_row(cells: Sequence[object]) -> str:
    """A row of a Markdown table."""
    return "| " + " | ".join(map(str, cells)) + " |"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed)"


def _commit() -> str:
    if given := os.environ.get("BENCHMARK_COMMIT"):  # on a machine that got a copy of the files
        return given
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    try:
        answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # no git
        answer = ""
    return answer or "unknown"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
