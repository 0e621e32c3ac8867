"""How long `marin-scale` takes to start: help, version, and verification of a registry, beside a bare interpreter.

Wall time of whole processes, median of seven, with compiled modules and a warm disk cache. Wanted: at most 0.3 s.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from statistics import median

from report import ROOT, parser, publish

REPETITIONS = 7
GOLDEN = "tests/golden/preregistration-v1"
COMMANDS = {
    "bare interpreter": ["-c", "pass"],
    "marin-scale --help": ["-m", "marin_scaling.cli", "--help"],
    "marin-scale --version": ["-m", "marin_scaling.cli", "--version"],
    f"marin-scale verify --registry {GOLDEN}": ["-m", "marin_scaling.cli", "verify", "--registry", GOLDEN],
}


def seconds(arguments: list[str]) -> list[float]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    found = []
    for _ in range(REPETITIONS + 1):
        began = time.perf_counter()
        subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, check=True)
        found.append(time.perf_counter() - began)
    return found[1:]  # the first compiles modules and fills the disk cache


def main() -> None:
    options = parser(__doc__ or "").parse_args()
    measured = {name: seconds(arguments) for name, arguments in COMMANDS.items()}
    bare = median(measured["bare interpreter"])
    rows = [
        [f"`{name}`", f"{median(found) * 1000:.0f}", f"{min(found) * 1000:.0f}", f"{median(found) / bare:.1f}"]
        for name, found in measured.items()
    ]
    publish(
        "Start-up",
        columns=("command", "median ms", "least ms", "times a bare interpreter"),
        rows=rows,
        packages=("typer", "cryptography"),
        notes=[f"Median of {REPETITIONS} processes each; wanted: at most 300 ms."],
        write=options.write,
    )


if __name__ == "__main__":
    main()
