"""How long `marin-scale fit runs/delphi --predict 1e23` takes, as a whole process and by its parts.

Whole processes, with their back-test: wall and processor time, and peak memory. Parts: wall time in one fresh process, in the
order in which the command does them. Wanted: at most 1.5 s, and 3 s for the complete forecast of a process that has started.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from statistics import median

from report import ROOT, parser, publish

REPETITIONS = 5
STEPS = (
    "import",
    "read 81 runs",
    "fit",
    "forecast with 23 quantiles",
    "back-test of five cuts",
    "sensitivity: each law, 10 refits",
)
PARTS = """\
import json, time
clock = [time.perf_counter()]
from pathlib import Path
from marin_scaling.run.table import read_run_table
from marin_scaling.fitting.fit import fit
from marin_scaling.forecast.forecast import forecast
from marin_scaling.forecast.backtest import backtest
from marin_scaling.forecast.forecast import sensitivity
import pandas, scipy.optimize, scipy.special
clock.append(time.perf_counter())
table = read_run_table(Path("runs/delphi"))
clock.append(time.perf_counter())
result = fit(table)
clock.append(time.perf_counter())
ahead = forecast(result, flops=1e23)
clock.append(time.perf_counter())
backtest(table)
clock.append(time.perf_counter())
sensitivity(result, ahead)
clock.append(time.perf_counter())
print(json.dumps([after - before for before, after in zip(clock, clock[1:])]))
"""


def whole() -> tuple[float, float, int]:
    """Wall seconds, processor seconds and peak kilobytes of one process."""
    command = [sys.executable, "-P", "-m", "marin_scaling.cli", "fit", "runs/delphi", "--predict", "1e23"]
    began = time.perf_counter()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    elapsed = time.perf_counter() - began
    if status != 0:
        raise SystemExit("marin-scale fit failed")
    return elapsed, usage.ru_utime + usage.ru_stime, usage.ru_maxrss


def parts() -> list[float]:
    """Seconds of import, read, fit and forecast."""
    done = subprocess.run([sys.executable, "-P", "-c", PARTS], cwd=ROOT, capture_output=True, text=True, check=True)
    found: list[float] = json.loads(done.stdout)
    return found


def main() -> None:
    options = parser(__doc__ or "").parse_args()
    whole()  # compiles modules and fills the disk cache
    runs = [whole() for _ in range(REPETITIONS)]
    by_part = list(zip(*[parts() for _ in range(REPETITIONS)], strict=True))
    complete = median(sum(seconds[2:]) for seconds in zip(*by_part, strict=True))
    rows: list[list[object]] = [
        [
            "whole process, with its back-test",
            *(f"{median(run[part] for run in runs):.2f}" for part in (0, 1)),
            f"{max(run[2] for run in runs) / 1024:.0f}",
        ],
        *([name, f"{median(seconds):.2f}", "", ""] for name, seconds in zip(STEPS, by_part, strict=True)),
        ["fit, forecast, back-test and sensitivity (each law alone, ten refits)", f"{complete:.2f}", "", ""],
    ]
    publish(
        "marin-scale fit runs/delphi --predict 1e23",
        columns=("what", "median seconds", "processor seconds", "peak MiB"),
        rows=rows,
        packages=("numpy", "pandas", "pyarrow"),
        notes=[f"Median of {REPETITIONS} processes each; wanted: at most 1.5 s for the whole, 3 s for the complete forecast."],
        write=options.write,
    )


if __name__ == "__main__":
    main()
