"""How far losses of a run differ if it is trained again with other instruction sets of a processor."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

from report import ROOT, parser, publish

INSTRUCTION_SETS = ("AVX512", "AVX2", "SSE4_2")
TRACK = ROOT / "speedruns" / "cpu"
_DIFFERENCE = re.compile(r"^ *seed \d+: .* difference ([+-][\d.]+)", re.MULTILINE)


def differences(submission: Path, *, instructions: str) -> list[float]:
    """Return the absolute difference of each seed in bits per byte, recorded and trained again with these instructions."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "marin_scaling.cli", "speedrun", "confirm", str(submission.relative_to(ROOT))],
        cwd=ROOT,
        env=os.environ | {"XLA_FLAGS": f"--xla_cpu_max_isa={instructions}"},
        capture_output=True,
        text=True,
        check=False,
    )
    found = [abs(float(each)) for each in _DIFFERENCE.findall(done.stdout)]
    if not found:
        raise SystemExit(f"{submission} was not trained again:\n{done.stdout}{done.stderr}")
    return found


def main() -> None:
    options = parser(__doc__ or "").parse_args()
    rows, every = [], list[float]()
    for submission in sorted(TRACK.glob("*/submission.json")):
        for instructions in INSTRUCTION_SETS:
            found = differences(submission, instructions=instructions)
            every += found
            rows.append([f"cpu/{submission.parent.name}", instructions, *(f"{each:.6f}" for each in found)])
            print(rows[-1], flush=True)
    square = statistics.fmean(each**2 for each in every) ** 0.5
    publish(
        "Losses of runs that are trained again",
        columns=["submission", "instructions", "seed 0", "seed 1", "seed 2"],
        rows=rows,
        packages=["jax", "jaxlib", "numpy", "marin-levanter"],
        notes=[
            "Absolute differences from the recorded loss, in bits per byte. The records come from another machine.",
            f"Root mean square of {len(every)}: {square:.4f}; median {statistics.median(every):.4f}; largest {max(every):.4f}.",
        ],
        write=options.write,
    )


if __name__ == "__main__":
    main()
