"""Mutated registrations before the verifier: how many it refuses, what it accepts and why, tracebacks, and the slowest.

The inputs are those of `tests/properties/test_mutated_registrations.py`, in greater number: one file changed, signed again
where its kind says so. What may be accepted is fixed in `tests/allowed_changes.py`. Only the last row's are fitted again: a
fit takes about a second, so of those there are few. Exit status 1 when there is a fault.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random

from report import ROOT, parser, publish

sys.path.insert(0, str(ROOT / "tests"))

from judged import Verdict, judge
from mutated_registry import MAX_INPUT_BYTES, draw, kinds_here, make_ground
from mutations import mutated_document, written

from marin_scaling.errors import MarinScalingError
from marin_scaling.preregistration.format import SUBJECT_FILES
from marin_scaling.preregistration.registry import read_registration
from marin_scaling.preregistration.statement import read_subject
from marin_scaling.preregistration.verify.refit import fit_step

FITTED = ROOT / "preregistrations" / "2026-11-26-quickstart"
Told = tuple[str, str, str, Verdict]
"""Kind of input, kind of change, its name, and what was said."""


def told(count: int, *, seed: int, folder: Path) -> Iterator[Told]:
    """Inputs of all kinds in turn, until there are `count`."""
    ground, rng, made = make_ground(folder), Random(seed), 0
    kinds = kinds_here(ground)
    while made < count:
        kind, own_seed = kinds[made % len(kinds)], rng.getrandbits(64)
        if drawn := draw(ground, kind, Random(own_seed)):
            made += 1
            verdict = judge(ground, drawn)
            if verdict.is_fault or verdict.seconds > 1:
                print(f"look at: {kind}, seed {own_seed}, {drawn.how}, {verdict}", file=sys.stderr, flush=True)
            if made % 10_000 == 0:
                print(f"{made:,} inputs", file=sys.stderr, flush=True)
            group, _, name = drawn.how.partition(": ")
            yield kind, group, name, verdict


def told_of_fits(count: int, *, seed: int) -> Iterator[Told]:
    """Ladders with other rows, fitted again with the law and seed of a real registration."""
    rng, statement = Random(seed), read_registration(FITTED)
    subjects = {name: json.loads((FITTED / name).read_bytes()) for name in SUBJECT_FILES}
    ladder = subjects["ladder.json"]
    fit_step(statement, subjects, name="unchanged")  # what is loaded at the first fit is no part of the time of any
    for _ in range(count):
        how, rows = mutated_document(ladder["rows"], rng)
        yield "ladder.json, fitted again", *how.split(": "), _fitted(written({**ladder, "rows": rows}), statement, subjects)


def _fitted(raw: bytes, statement, subjects) -> Verdict:
    began = time.perf_counter()
    try:
        ladder = read_subject(raw, name="ladder.json", path="ladder.json")
        step = fit_step(statement, {**subjects, "ladder.json": ladder}, name="statement.json")
        said, reason = "accepted", "no quantile moves by 1 % of the interval" if step.compared else None
    except MarinScalingError as error:
        said, reason = "refused", error.what
    except Exception as error:
        said, reason = "traceback", repr(error)
    return Verdict(said=said, reason=reason, seconds=time.perf_counter() - began)


def table(found: list[Told]) -> list[list[str]]:
    groups: dict[tuple[str, str], list[Verdict]] = defaultdict(list)
    for kind, group, _, verdict in found:
        groups[kind, group].append(verdict)
    rows = [[*names, *_cells(verdicts)] for names, verdicts in groups.items()]
    return [*sorted(rows), ["**all**", "", *_cells([verdict for *_, verdict in found])]]


def _cells(verdicts: list[Verdict]) -> list[str]:
    said = Counter(verdict.said for verdict in verdicts)
    faults = sum(verdict.is_fault for verdict in verdicts)
    times = sorted(verdict.seconds for verdict in verdicts)
    counts = [len(verdicts), said["refused"], said["accepted"], said["traceback"], faults]
    return [*(f"{count:,}" for count in counts), f"{1000 * times[len(times) // 2]:.1f}", f"{1000 * times[-1]:.0f}"]


def reasons(found: list[Told]) -> list[str]:
    """Why inputs were accepted, by kind."""
    counted: dict[str, Counter[str]] = defaultdict(Counter)
    for kind, _, _, verdict in found:
        if verdict.said == "accepted":
            counted[kind][verdict.reason or "FAULT"] += 1
    return [
        f"Accepted, {kind}: " + "; ".join(f"{reason} ({count:,})" for reason, count in counter.most_common()) + "."
        for kind, counter in sorted(counted.items())
    ]


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--count", type=int, default=100_000, help="how many inputs")
    options.add_argument("--fits", type=int, default=100, help="how many ladders are fitted again")
    options.add_argument("--seed", type=int, default=0)
    options = options.parse_args()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fits of numbers that no ladder has
        found = list(told(options.count, seed=options.seed, folder=Path(folder) / "ground"))
        seconds = time.perf_counter() - began
        fits = list(told_of_fits(options.fits, seed=options.seed))
    names = Counter(f"{group}, {name}" if name else group for _, group, name, _ in found)
    publish(
        f"{options.count:,} mutated registrations before the verifier",
        columns=("input", "changed in", "inputs", "refused", "accepted", "tracebacks", "faults", "median ms", "slowest ms"),
        rows=table(found) + table(fits)[:-1],
        packages=("cryptography", "rfc3161-client"),
        notes=[
            f"One process, {seconds:.0f} s; seed {options.seed}. Each input differs in bytes from the original and has at most "
            f"{MAX_INPUT_BYTES:,} bytes. A fault is a traceback, or an accepted input that `tests/allowed_changes.py` does not "
            "allow. The re-fit is left out of all but the last rows.",
            *reasons(found + fits),
            "By mutation: " + "; ".join(f"{name} {count:,}" for name, count in sorted(names.items())) + ".",
        ],
        write=options.write,
    )
    sys.exit(any(verdict.is_fault for *_, verdict in found + fits))


if __name__ == "__main__":
    main()
