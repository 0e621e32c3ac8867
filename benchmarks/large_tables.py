"""What a table of a thousand to a million runs costs to read, audit, fit and forecast: processor time and memory.

Simulated runs on Hoffmann's rounded surface, 40 budgets, random sizes about the optimum of each, 0.3 % noise. Wanted: at
100,000 runs at most 15 s and 2 GiB, and a cost that is linear in runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from report import ROOT, parser, publish

from marin_scaling.laws import SurfaceLaw, surface_loss

COUNTS = (1_000, 10_000, 100_000, 1_000_000)
BUDGETS = np.geomspace(1e17, 1e21, 40)
LAW = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)


def table(count: int, file: Path) -> None:
    """Write `count` simulated runs."""
    generator = np.random.default_rng(count)
    flops = np.sort(generator.choice(BUDGETS, count))
    ratio = 20 * np.exp(generator.uniform(-1.5, 1.5, count))
    params = np.sqrt(flops / 6 / ratio)
    tokens = flops / 6 / params
    loss = surface_loss(LAW, params=params, tokens=tokens) * np.exp(0.003 * generator.standard_normal(count))
    pd.DataFrame({"flops": flops, "params": params, "tokens": tokens, "loss": loss}).to_csv(file, index=False)


def cost(file: Path) -> tuple[float, float, float]:
    """Processor seconds, wall seconds and GiB of `marin-scale fit FILE --predict 1e23`."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-P", "-m", "marin_scaling.cli", "fit", str(file), "--predict", "1e23", "--swept", "all"]
    before = os.times()
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    return usage.ru_utime + usage.ru_stime, os.times().elapsed - before.elapsed, usage.ru_maxrss / 2**20


def main() -> None:
    options = parser(__doc__ or "").parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for count in COUNTS:
            file = Path(folder) / f"{count}.csv"
            table(count, file)
            processor, wall, memory = cost(file)
            rows.append([f"{count:,}", f"{processor:.1f}", f"{wall:.1f}", f"{memory:.2f}", f"{1e6 * processor / count:.0f}"])
    publish(
        "Large tables",
        columns=("runs", "processor seconds", "wall seconds", "GiB", "processor microseconds a run"),
        rows=rows,
        packages=("numpy", "scipy", "pandas"),
        notes=["`marin-scale fit TABLE --predict 1e23 --swept all`, start-up included; the posterior takes 240 of the runs."],
        write=options.write,
    )


if __name__ == "__main__":
    main()
