"""What `marin-scale quickstart` costs in an empty folder: wall time, memory, share of training steps; and what it forecast.

Nothing is cached: no compiled programs, no runs, no key. Memory is the sum over the tree of processes of their proportional set
sizes (shared pages are counted once), looked at each second. Wanted: 10 minutes, 3 GiB, a share of 70 %.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from report import parser, publish

SAMPLE_SECONDS = 1.0


def memory_of_tree(root: int) -> int:
    """Bytes of a process and all its descendants, now."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):  # it has ended since it was listed
            continue
    tree = {root}
    while grown := {child for child, parent in parents.items() if parent in tree} - tree:
        tree |= grown
    return sum(_proportional_set_size(process) for process in tree)


def _proportional_set_size(process: int) -> int:
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
    except OSError:
        return 0
    found = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def run_quickstart(folder: Path) -> tuple[str, float, int]:
    """What it printed, its seconds, and its peak memory in bytes."""
    environment = {**os.environ, "HOME": str(folder), "WANDB_MODE": "disabled"}
    environment.pop("XDG_CONFIG_HOME", None)  # the signing key is made in that home
    command = [sys.executable, "-P", "-m", "marin_scaling.cli", "quickstart"]
    began, peak = time.monotonic(), 0
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(_echoed(process)))
    reader.start()
    while process.poll() is None:
        peak = max(peak, memory_of_tree(process.pid))
        time.sleep(SAMPLE_SECONDS)
    reader.join()
    if process.returncode != 0:
        raise SystemExit(f"the quickstart ended with status {process.returncode}")
    return "".join(lines), time.monotonic() - began, peak


def _echoed(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    found = []
    for line in process.stdout:
        print(line, end="", file=sys.stderr, flush=True)
        found.append(line)
    return found


def main() -> None:
    options = parser(__doc__ or "").parse_args()
    with tempfile.TemporaryDirectory() as folder:
        printed, seconds, peak = run_quickstart(Path(folder))
    share = re.search(r"training steps: (\d+%) of the time", printed)
    forecast = re.search(r"^ *loss ([\d.]+ bits/byte, 90 % interval \[[\d., ]+\])", printed, re.MULTILINE)
    outcome = re.search(r"((?:held|missed): observed .*)", printed)
    rows = [
        ["wall time", f"{seconds / 60:.1f} min", "10 min"],
        ["peak memory of all its processes", f"{peak / 2**30:.2f} GiB", "3 GiB"],
        ["share of the time in which training steps were running", share[1] if share else "not printed", "70%"],
        ["forecast of the target", forecast[1] if forecast else "not printed", ""],
        ["outcome", outcome[1] if outcome else "not printed", ""],
    ]
    publish(
        "marin-scale quickstart in an empty folder",
        columns=("what", "measured", "wanted"),
        rows=rows,
        packages=("jax", "marin-levanter", "numpy"),
        write=options.write,
    )


if __name__ == "__main__":
    main()
