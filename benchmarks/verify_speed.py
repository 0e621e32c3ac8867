"""How long `marin-scale verify` takes: of one registration, of a log of 10,000 lines, of 1,000 folders against their log.

All steps but the re-fit, which takes as long as a fit (`fit_delphi.py`); files are in the disk cache, modules compiled. Beside
wall time stands that of the processor, which other work on the machine does not stretch as much. `--registry N` adds a
registry of N signed forecasts of outside runs, verified with and without fitting them again, and a curve of a million points.
Wanted: one registration within 50 ms beyond start-up, the log within 1 s; of 1,000 registrations 5 s without and 10 minutes
with the re-fit on two cores; the curve in 5 s.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from report import ROOT, parser, publish

from marin_scaling.canonical_json import sha256_hex
from marin_scaling.ladder.config import Promise
from marin_scaling.laws import SurfaceLaw
from marin_scaling.preregistration.log import Log, parse_log, read_log, write_down
from marin_scaling.preregistration.outside import TargetFile, forecast_outside
from marin_scaling.preregistration.register import preregister_target
from marin_scaling.preregistration.registry import find_folders, registration_folders, signers_path
from marin_scaling.preregistration.signing.keys import SigningKey
from marin_scaling.preregistration.signing.sshsig import public_key_of
from marin_scaling.preregistration.statement import moment_text
from marin_scaling.preregistration.verify.authenticity import verify_folder
from marin_scaling.preregistration.verify.rules import log_step, require_whole
from marin_scaling.run.curves import read_curves
from marin_scaling.run.table import simulate_ladder

REPETITIONS = 15
LAW = SurfaceLaw(E=1.7, A=400.0, B=1200.0, alpha=0.34, beta=0.3)
LINES = 10_000
FOLDERS = 1_000
LARGEST = "2026-11-26-quickstart"
NEWEST = "tests/golden/preregistration-v1"
AT = datetime(2026, 11, 22, tzinfo=UTC)


def milliseconds(task: Callable[[], object], *, repetitions: int = REPETITIONS) -> list[tuple[float, float]]:
    """Wall and processor time of each repetition."""
    found = []
    for _ in range(repetitions + 1):
        began, worked = time.perf_counter(), processor_seconds()
        task()
        found.append((1000 * (time.perf_counter() - began), 1000 * (processor_seconds() - worked)))
    return found[1:]  # the first fills caches


def processor_seconds() -> float:
    """Of this process and of those that it waited for."""
    own, ended = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime


def command(*arguments: str) -> Callable[[], object]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    words = [sys.executable, "-P", "-m", "marin_scaling.cli", *arguments]
    return lambda: subprocess.run(words, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, check=True)


def verification(folder: Path, *, runs_dir: Path | None) -> Callable[[], object]:
    signers = signers_path(folder)
    return lambda: verify_folder(folder, allowed_signers=signers, runs_dir=runs_dir)


def registry_of(folder: Path, *, copies: int) -> None:
    """A registry of many folders with the files of one, and its log, as `marin-scale registry log` writes it."""
    [original] = find_folders("all", registry_dir=ROOT / NEWEST)
    for number in range(copies):
        copy = shutil.copytree(original, folder / f"2026-11-20-copy-{number}")
        (copy / "target.json").write_text(str(number))  # two forecasts of one target would be refused
    write_down(folder, at=AT)


def long_log(registry: Path) -> bytes:
    """Lines enough for a log of `LINES`: those of a registry, in which each folder has many reviewers."""
    lines = [entry.line for entry in read_log(registry).entries]
    folders = registration_folders(registry)
    for number in range(len(lines), LINES):
        files = {f"statement.json.reviewer{number}@example.org.sig": sha256_hex(str(number).encode())}
        entry = {"seq": number, "prev": sha256_hex(lines[-1]), "type": "review", "id": folders[number % len(folders)].name}
        whole = {**entry, "files": files, "logged_at": moment_text(AT)}
        lines.append(json.dumps(whole, sort_keys=True, separators=(",", ":")).encode())
    return b"".join(line + b"\n" for line in lines)


def all_against_log(registry: Path) -> None:
    log: Log = read_log(registry)
    for folder in registration_folders(registry):
        log_step(folder, log=log)
    require_whole(registry, log=log)


TABLES = 20
"""Tables of the large registry; its forecasts of one table differ in run, name and digest."""
POINTS = 1_000_000


def signed_registry(root: Path, *, registrations: int) -> None:
    """A repository with a table of 20 simulated runs for each of `TABLES`, and signed forecasts from them."""
    private = Ed25519PrivateKey.generate()
    key = SigningKey(private_key=private, public_key=public_key_of(private), path=root / "key", note="")
    for number in range(TABLES):
        ladder = simulate_ladder(LAW, budgets_flops=[1e18, 3e18, 1e19, 3e19], sizes_per_budget=5, noise=0.002, seed=number)
        ladder.frame[["run", "flops", "params", "tokens", "loss"]].to_csv(root / f"runs-{number}.csv", index=False)
    first = {number: forecast_outside(f"runs-{number}.csv", target_of(number), on_message=quiet) for number in range(TABLES)}
    for number in range(registrations):
        evidence = replace(first[number % TABLES], target=target_of(number).target())
        preregister_target(
            evidence,
            registry_dir=root / "preregistrations",
            key=key,
            principal="ada@example.org",
            slug=f"run-{number}",
            created_at=datetime.now(UTC),
            promise=Promise(),
        )


def quiet(_: str) -> None:
    """Print nothing."""


def target_of(number: int) -> TargetFile:
    """An outside run of 1e20 FLOPs."""
    outcome = {"tracker": "json", "project": "lab/runs", "run": f"run-{number}", "key": "eval/loss"}
    words = {name: "as always" for name in ("evaluation", "data", "trainer", "schedule", "flops_convention")}
    size = {"params": 1e9, "tokens": 1e20 / 6e9, "flops": 1e20, "metric": "nats_per_token"}
    return TargetFile(name=f"run-{number}", planned_start=datetime.now(UTC).date(), outcome=outcome, **size, **words)


def seconds_of_all(*, refit: bool) -> str:
    """Wall and processor seconds in which the command verifies all forecasts in the current folder."""
    words = [sys.executable, "-P", "-m", "marin_scaling.cli", "verify", *(() if refit else ("--no-refit",)), "all"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    began, worked = time.perf_counter(), processor_seconds()
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout
    assert "refused" not in done
    return f"{time.perf_counter() - began:.1f} s ({processor_seconds() - worked:.1f} s of processor)"


def large_registry(registrations: int) -> list[str]:
    """Sentences with the measured times of a large registry and a long curve."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        signed_registry(Path(folder), registrations=registrations)
        before = os.getloadavg()[0]
        plain, fitted = seconds_of_all(refit=False), seconds_of_all(refit=True)
        lines = ["run,step,loss", *(f"a,{step},{4 * step**-0.05:.6f}" for step in range(1, POINTS + 1))]
        Path("curve.csv").write_text("\n".join(lines) + "\n")
        reading = milliseconds(lambda: read_curves(Path("curve.csv"), tokens={"a": 1e9}, columns={}), repetitions=1)
    return [
        f"`verify all` of {registrations:,} signed forecasts from {TABLES} tables of 20 runs: {plain} without the re-fit, "
        f"{fitted} with it; load {before:.1f} before.",
        f"A curve of {POINTS:,} points in a CSV file was read in {middle(reading, 0) / 1000:.1f} s "
        f"({middle(reading, 1) / 1000:.1f} s of processor).",
    ]


def middle(times: list[tuple[float, float]], which: int) -> float:
    return median(each[which] for each in times)


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--registry", type=int, default=0, metavar="N", help="also a registry of N signed forecasts")
    options = arguments.parse_args()
    largest, newest = ROOT / "preregistrations" / LARGEST, find_folders("all", registry_dir=ROOT / NEWEST)[0]
    found = {
        f"{LARGEST}, with its 21 runs, in a process that runs": milliseconds(verification(largest, runs_dir=ROOT / "runs")),
        f"{LARGEST}, without its runs": milliseconds(verification(largest, runs_dir=None)),
        "the kept one with 1,000 samples, without runs": milliseconds(verification(newest, runs_dir=None)),
        "`marin-scale --version`": milliseconds(command("--version")),
        f"`marin-scale verify --no-refit {LARGEST}`": milliseconds(command("verify", "--no-refit", LARGEST)),
    }
    with tempfile.TemporaryDirectory() as folder:
        registry = Path(folder) / "preregistrations"
        registry_of(registry, copies=FOLDERS)
        raw = long_log(registry)
        found |= {
            f"a log of {LINES:,} lines read": milliseconds(lambda: parse_log.__wrapped__(raw, name="log.jsonl")),
            f"{FOLDERS:,} folders against a log of as many lines": milliseconds(
                lambda: all_against_log(registry), repetitions=3
            ),
        }
    start, whole = (
        middle(found[name], 1) for name in ("`marin-scale --version`", f"`marin-scale verify --no-refit {LARGEST}`")
    )
    publish(
        "Verification",
        columns=("what", "median ms", "least ms", "median ms of processor"),
        rows=[
            [name, f"{middle(times, 0):.1f}", f"{min(times)[0]:.1f}", f"{middle(times, 1):.1f}"]
            for name, times in found.items()
        ],
        packages=("cryptography", "typer"),
        notes=[
            f"Median of {REPETITIONS}, of the last of 3; without the re-fit. The command takes "
            f"{whole - start:.0f} ms of processor beyond `--version`, imports of the verifier and of cryptography among them.",
            "Wanted: one registration at most 50 ms beyond start-up; the log at most 1,000 ms.",
            *(large_registry(options.registry) if options.registry else ()),
        ],
        write=options.write,
    )


if __name__ == "__main__":
    main()
