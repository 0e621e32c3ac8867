"""Use of one GPU by width: our loop, Levanter's and plain JAX, several runs that share the GPU, and one real ladder.

Each measurement has processes of its own, which compile side by side and are timed one at a time. Batches are the recipe's at
20 tokens per parameter, cut to `MOST_BATCH_TOKENS`, of random tokens: a step costs the same on any text. The ladder is
trained, forecast, signed, its target trained and checked with the commands of `marin-scale`. With `--out`, each result is
written as it is found. Without a GPU the processor is measured, for which there is no peak, and no ladder by default.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

from report import parser, publish
from timed_steps import MEMORY_SHARE, PRODUCT, Job, Loop, Measurement, gpu_bytes, time_all
from whole_ladder import train_ladder

from marin_scaling.accelerators import accelerator
from marin_scaling.train.launcher import visible_gpus

PRODUCT_CASE = f"{PRODUCT}:8192"
CASES = (
    "delphi:512",
    "quickstart:128",
    "delphi:1024",
    "quickstart:64",
    "delphi:1536",
    "quickstart-moe:128",
    "grug-moe:512",
    "quickstart-moe:64",
)
"""Dense and mixtures, most important first: for want of time the last ones are left out."""
LADDER = Path(__file__).with_name("gpu-bytes.yaml")
WIDEST_PACKED = 512  # of wider models only runs alone are measured, for want of time
CORE_BEGINS, CORE_ENDS, LADDER_ENDS = 0.4, 0.5, 0.85  # shares of the time; what is left of it goes to the other measurements


def row(name: str, how: str, found: Sequence[Mapping[str, object]]) -> list[object]:
    """Return one line of the table; rates of processes that were measured together are added up."""
    first, rates = found[0], [float(str(each["steps_per_second"])) for each in found]
    speed = sum(rates) * float(str(first["flops_per_step"]))
    kind = accelerator(str(first["device"]))
    utilisation = f"{speed / kind.peak_flops_per_second:.1%}" if kind else ""
    milliseconds = f"{1000 * len(rates) / sum(rates):.1f}"
    params = f"{first['params']:,}" if "params" in first else ""
    peaks = [float(str(each["peak_bytes"])) for each in found if each["peak_bytes"]]
    peak = f"{max(peaks) / 2**30:.2f}" if peaks else ""
    return [name, params, first.get("batch", ""), how, milliseconds, f"{speed / 1e12:.4g}", utilisation, peak]


def options_of() -> argparse.Namespace:
    """Return the options of the command line."""
    found = parser(__doc__ or "")
    found.add_argument("--cases", nargs="+", metavar="RECIPE:WIDTH", help="default: all, with a large matrix product on a GPU")
    found.add_argument("--packed", type=int, default=3, help="processes that share the GPU")
    found.add_argument("--seconds", type=float, default=3.0, help="how long each measurement does steps")
    found.add_argument("--minutes", type=float, default=8.0, help="end everything after this")
    found.add_argument("--ladder", type=Path, help="ladder file to train; default: gpu-bytes.yaml on a GPU, else none")
    found.add_argument("--at-once", type=int, help="processes in preparation side by side; default: three for four cores")
    found.add_argument("--no-ladder", action="store_true", help="train no ladder")
    found.add_argument("--out", type=Path, metavar="FOLDER", help="write each result here as it is found")
    return found.parse_args()


def ways(recipe: str, hidden_dim: int, packed: int) -> list[tuple[Loop, int, str]]:
    """Return whose loop, in how many processes, and its name in the table."""
    if recipe == PRODUCT:
        return [("product", 1, "JAX")]
    found: list[tuple[Loop, int, str]] = [("ours", 1, "ours"), ("levanter", 1, "Levanter's Trainer")]
    if "moe" not in recipe:
        found.append(("plain", 1, "plain JAX"))
    return found + ([("ours", packed, f"ours, {packed} at once")] if hidden_dim <= WIDEST_PACKED else [])


def jobs_of(options: argparse.Namespace, *, on_gpu: bool) -> list[Job]:
    """Return all measurements in the order of the table, without packed runs that the memory cannot hold."""
    most_bytes = MEMORY_SHARE * gpu_bytes()
    cases = options.cases or ((PRODUCT_CASE,) if on_gpu else ()) + CASES
    jobs = []
    for name in cases:
        recipe, _, width = name.partition(":")
        for loop, processes, how in ways(recipe, int(width), options.packed):
            measurement = Measurement(recipe, int(width), loop, processes, options.seconds, on_gpu)
            if processes == 1 or measurement.estimated_bytes <= most_bytes:
                jobs.append(Job(name=name, how=how, measurement=measurement))
    return jobs


class Results:
    """What was found so far: rows of the table, and JSON lines in the folder of `--out`."""

    def __init__(self, out: Path | None) -> None:
        self.rows: dict[str, list[object]] = {}
        self.devices: set[str] = set()
        self.again: list[Job] = []
        self._out, self._began = out, time.monotonic()
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)

    def tell(self, fact: Mapping[str, object]) -> None:
        """Write a fact with the seconds since the beginning."""
        line = json.dumps({"at": round(time.monotonic() - self._began, 1), **fact})
        print(line[:400], file=sys.stderr, flush=True)
        if self._out is not None:
            with (self._out / "results.jsonl").open("a") as file:
                print(line, file=file)
                file.flush()
                os.fsync(file.fileno())

    def see(self, job: Job, found: list[dict[str, object]] | None) -> None:
        """Take in what a job found; one that failed is tried once more, plain JAX then without cuDNN's attention."""
        about = {"kind": "measurement", "case": job.name, "how": job.how}
        if found is not None:
            line = row(job.name, job.how, found)
            self.rows[job.label] = line
            self.devices |= {str(each["device"]) for each in found}
            estimated = job.measurement.estimated_bytes / job.measurement.processes
            self.tell(about | {"ms": line[4], "mfu": line[6], "found": found, "estimated_bytes": estimated})
            return
        error = job.error()
        print(error, file=sys.stderr)
        self.tell(about | {"failed": True, "second_try": job.is_second_try, "error": error})
        self.rows[job.label] = [job.name, "", "", job.how, "failed", "", "", ""]
        if not job.is_second_try:
            loop: Loop = "plain-unfused" if job.measurement.loop == "plain" else job.measurement.loop
            once_more = Measurement(**{**job.measurement.__dict__, "loop": loop})
            self.again.append(Job(name=job.name, how=job.how, measurement=once_more, is_second_try=True))


def _turn(job: Job) -> int:
    """Return when a job has its turn after the ladder: packed dense runs, dense runs alone, mixtures."""
    return 2 if "moe" in job.name else int(job.measurement.processes == 1)


def measure(options: argparse.Namespace, jobs: Sequence[Job], results: Results, place: Path) -> list[str]:
    """Time the core measurements, train the ladder, time the others; return notes for the table."""
    began, total = time.monotonic(), 60 * options.minutes
    limits = {
        "place": place / "jobs",
        "most_processes": options.at_once or max(1, 3 * len(os.sched_getaffinity(0)) // 4),
        "most_bytes": MEMORY_SHARE * gpu_bytes(),
        "on_done": results.see,
    }
    limits["place"].mkdir()
    ladder = None if options.no_ladder else options.ladder or (LADDER if visible_gpus() else None)
    core = [job for job in jobs if job.measurement.processes == 1 and "moe" not in job.name]
    others = [job for job in jobs if job not in core]
    notes = []
    shares = (CORE_BEGINS, CORE_ENDS) if ladder else (1.0, 1.0)
    left = time_all(core, begin_until=began + shares[0] * total, until=began + shares[1] * total, **limits)
    if ladder and time.monotonic() < began + LADDER_ENDS * total:
        until = began + LADDER_ENDS * total
        try:
            notes.append(train_ladder(ladder, folder=place / "ladder", out=options.out, until=until, tell=results.tell))
        except Exception as error:  # the other measurements are worth having
            traceback.print_exc()
            results.tell({"kind": "ladder", "failed": True, "error": repr(error)})
            notes.append("The ladder failed.")
    elif ladder:
        notes.append("There was no time for the ladder.")
    rest = sorted([*left, *others], key=_turn)
    left = time_all(rest, begin_until=began + total, until=began + total, **limits)
    again = [job for job in results.again if job.label not in {each.label for each in left}]
    time_all(again, begin_until=began + total, until=began + total, **limits)
    for job in left:
        if job.processes:
            results.tell({"kind": "unfinished", "case": job.name, "how": job.how, "error": job.error()})
    labels = {job.label for job in left}
    left_out = [job.label for job in jobs if job.label in labels]
    return [*notes, *([f"There was no time for {', '.join(left_out)}."] if left_out else [])]


def main() -> None:
    options = options_of()
    on_gpu = bool(visible_gpus())
    jobs, results = jobs_of(options, on_gpu=on_gpu), Results(options.out)
    labels = [job.label for job in jobs]
    results.tell({"kind": "begin", "minutes": options.minutes, "gpu_bytes": str(gpu_bytes()), "jobs": labels})
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        notes = measure(options, jobs, results, Path(place))
    results.tell({"kind": "end", "notes": notes})
    publish(
        "Use of a GPU by width",
        columns=("recipe and width", "active parameters", "batch", "how", "ms a step", "model TFLOP/s", "MFU", "peak GiB"),
        rows=[results.rows[job.label] for job in jobs if job.label in results.rows],
        packages=("jax", "jaxlib", "marin-levanter", "marin-haliax", "equinox", "optax"),
        notes=[
            f"Device: {', '.join(sorted(results.devices)) or 'none'}. "
            "Milliseconds are of one run's step, FLOP/s of all runs at once.",
            *notes,
        ],
        write=options.write,
    )


if __name__ == "__main__":
    main()
