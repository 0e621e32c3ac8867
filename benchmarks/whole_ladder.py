"""One ladder from plan to checked forecast with the commands of `marin-scale`, in an empty folder, for `gpu_ladder.py`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from report import ROOT

from marin_scaling.train.launcher import visible_gpus

SIGNER = "gpu-ladder@marin-scaling.example"
KEPT = ("ladders", "runs", "preregistrations")

Teller = Callable[[Mapping[str, object]], None]
"""Called with each fact as soon as it is known."""


def train_ladder(path: Path, *, folder: Path, out: Path | None, until: float, tell: Teller) -> str:
    """Train, forecast, sign, train the target and check, as far as the time goes; return a sentence on the result.

    Everything printed goes to `out`/ladder.log; ladder, runs and registration are packed into `out`/ladder.tar.gz.
    """
    name = path.stem
    (folder / "ladders").mkdir(parents=True)
    text = path.read_text(encoding="utf-8")
    if not visible_gpus():
        text = re.sub(r"\bgpus: [\d.]+", "gpus: 0", text)
    ladder = folder / "ladders" / f"{name}.yaml"
    ladder.write_text(text, encoding="utf-8")
    log = (out or folder) / "ladder.log"
    seconds: dict[str, float] = {}
    try:
        for stage in ("ladder", "preregister", "run", "check"):
            began = time.monotonic()
            status = _run(_arguments(stage, ladder, folder), folder=folder, log=log, until=until)
            seconds[stage] = round(time.monotonic() - began, 1)
            tell({"kind": "ladder stage", "ladder": name, "stage": stage, "seconds": seconds[stage], "status": status})
            if status:
                break
    finally:
        found = read_results(folder)
        tell({"kind": "ladder", "ladder": name, "seconds": seconds, **found})
        if out is not None:
            with tarfile.open(out / "ladder.tar.gz", "w:gz") as archive:
                for each in KEPT:
                    if (folder / each).exists():
                        archive.add(folder / each, arcname=each)
    return sentence(name, seconds, found)


def _arguments(stage: str, ladder: Path, folder: Path) -> list[str]:
    if stage in ("run", "check"):
        return [stage, next((folder / "preregistrations").glob("*/statement.json")).parent.name]
    signed = ["--as", SIGNER] if stage == "preregister" else []
    return [stage, str(ladder.relative_to(folder)), *signed]


def _run(arguments: Sequence[str], *, folder: Path, log: Path, until: float) -> str:
    """Run a command with all its workers ended at `until`; return an empty text if it succeeded."""
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "HOME": str(folder), "WANDB_MODE": "disabled", "PYTHONPATH": paths}
    environment.pop("XDG_CONFIG_HOME", None)  # the signing key is made in that home
    command = [sys.executable, "-P", "-m", "marin_scaling.cli", *arguments]
    with log.open("a") as output:
        print(f"$ marin-scale {' '.join(arguments)}", file=output, flush=True)
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True
        )
        try:
            status = process.wait(timeout=max(until - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            return "no time was left"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return f"exit status {status}" if status else ""


def read_results(folder: Path) -> dict[str, Any]:
    """Return the facts of all finished runs, the forecast and its outcome, as far as there are any."""
    runs = []
    for path in sorted((folder / "runs").rglob("record.json")):
        record, spec = json.loads(path.read_text()), json.loads((path.parent / "spec.json").read_text())
        runs.append(
            {
                "role": spec["role"],
                "budget_flops": spec["budget_flops"],
                "hidden_dim": spec["model"]["hidden_dim"],
                "train_steps": spec["train_steps"],
                **{key: record[key] for key in ("status", "loss", "flops", "step_seconds", "wall_seconds", "started_at")},
            }
        )
    found: dict[str, Any] = {"runs": sorted(runs, key=lambda run: (run["budget_flops"], run["hidden_dim"]))}
    for path in (folder / "preregistrations").glob("*/statement.json"):
        quantiles = json.loads(path.read_text())["predicate"]["forecast"]["quantiles"]
        found["forecast"] = {level: quantiles[level] for level in ("0.05", "0.5", "0.95")}
    for path in (folder / "preregistrations").glob("*/outcome.json"):
        outcome = json.loads(path.read_text())
        found["outcome"] = {key: outcome[key] for key in ("verdict", "value", "scores")}
    return found


def sentence(name: str, seconds: Mapping[str, float], found: Mapping[str, Any]) -> str:
    """Return the ladder's times, forecast and outcome in a line."""
    runs = [run for run in found["runs"] if run["role"] == "rung"]
    parts = [f"Ladder {name}: {len(runs)} runs in {seconds.get('ladder', 0):.0f} s"]
    stepping = sum(run["step_seconds"] for run in runs)
    steps = sum(run["train_steps"] for run in runs)
    if steps:
        parts.append(f"{steps:,} steps took {stepping:.0f} s, summed over runs that ran side by side")
    if "forecast" in found:
        low, middle, high = (f"{found['forecast'][level]:.4f}" for level in ("0.05", "0.5", "0.95"))
        parts.append(f"forecast {middle} [{low}, {high}] signed after {seconds['preregister']:.0f} s more")
    if targets := [run for run in found["runs"] if run["role"] == "target"]:
        beyond = targets[0]["budget_flops"] / max(run["budget_flops"] for run in runs)
        parts.append(f"target at {beyond:.3g}x trained in {seconds['run']:.0f} s")
    if "outcome" in found:
        parts.append(f"observed {found['outcome']['value']:.4f}: {found['outcome']['verdict']}")
    return "; ".join(parts) + "."
