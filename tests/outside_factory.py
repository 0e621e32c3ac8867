"""An outside run: a table of runs of a known law, the run to forecast, its signed forecast, and logs that answer it or not."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from made_once import made_once

from marin_scaling.laws import SurfaceLaw, surface_loss
from marin_scaling.preregistration.outside import preregister_table
from marin_scaling.preregistration.preregister import sign_notice
from marin_scaling.run.table import simulate_ladder

PRINCIPAL = "ada@example.org"
LAW = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
RUN, KEY = "hero-1", "eval/paloma/macro_loss"
PARAMS, TOKENS = 1e9, 2e10
LOSS = float(surface_loss(LAW, params=PARAMS, tokens=TOKENS))


def day(days: int) -> str:
    """A day so many days from now."""
    return f"{datetime.now(UTC) + timedelta(days=days):%Y-%m-%d}"


def target(**changes: Any) -> dict[str, Any]:
    """The content of a target file; a change of None leaves the key out."""
    document = {
        "name": "hero",
        "params": PARAMS,
        "tokens": TOKENS,
        "flops": 6 * PARAMS * TOKENS,
        "flops_convention": "6 x parameters x tokens",
        "metric": "nats_per_token",
        "evaluation": "macro average over the held-out sets",
        "data": "web mix of October",
        "trainer": "MaxText",
        "schedule": "WSD, decay over the last fifth",
        "planned_start": day(30),
        "outcome": {"tracker": "csv", "project": "lab/hero", "run": RUN, "key": KEY},
        "promise": {"due": day(200)},
        **changes,
    }
    return {key: value for key, value in document.items() if value is not None}


def write_files(root: Path, **changes: Any) -> None:
    """Put the table, the target file and a private key into `root`."""
    table = simulate_ladder(LAW, budgets_flops=[1e18, 3e18, 1e19, 3e19], sizes_per_budget=5, noise=0.002, seed=0)
    table.frame[["run", "flops", "params", "tokens", "loss"]].to_csv(root / "runs.csv", index=False)
    (root / "hero.yaml").write_text(yaml.safe_dump(target(**changes)))
    write_key(root / "key", number=0)


def write_key(path: Path, *, number: int) -> None:
    """An SSH key of its own for each number; 0 is that of `registration_factory`."""
    raw = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(number, number + 32))).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    path.write_bytes(raw)
    path.chmod(0o600)


def register_outside(root: Path, **changes: Any) -> Path:
    """The folder of the signed forecast in `root`."""
    write_files(root, **changes)
    with contextlib.chdir(root):
        made = preregister_table("runs.csv", "hero.yaml", key="key", signer=PRINCIPAL, on_message=lambda _: None)
    return root / made.folder


def write_log(root: Path, *, run: str = RUN, key: str = KEY, loss: object = LOSS, tokens: float | None = TOKENS) -> Path:
    """A history of the run: a table of steps, with the last value at the end."""
    path = root / "log.csv"
    counted = "" if tokens is None else ",throughput/total_tokens"
    lines = [f"run,_step,{key}{counted}"]
    lines += [f"{run},{step},{value}{'' if tokens is None else f',{done:.0f}'}" for step, value, done in _steps(loss, tokens)]
    path.write_text("\n".join(lines) + "\n")
    return path


def _steps(loss: object, tokens: float | None) -> list[tuple[int, object, float]]:
    return [(100, 4.0, (tokens or 0) / 2), (200, loss, tokens or 0)]


def shape(fraction: float) -> float:
    """Loss at a share of each run, in units of its final loss."""
    return float(np.exp(0.06 * (-np.log(fraction)) ** 0.9))


def write_curves(root: Path) -> Path:
    """Curves of the runs in the table: 40 losses each, that scatter by 0.1 % except for the last."""
    random, lines = np.random.default_rng(1), ["run,step,loss"]
    for run in pd.read_csv(root / "runs.csv").itertuples():
        lines += [
            f"{run.run},{step},{run.loss * shape(step / 40) * np.exp(0.001 * random.normal() * (step < 40))}"
            for step in range(1, 41)
        ]
    path = root / "curves.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def register_with_curves(root: Path, **changes: Any) -> Path:
    """The folder of a forecast of the whole curve in `root`."""
    write_files(root, curves={"path": "curves.csv"}, **changes)
    write_curves(root)
    with contextlib.chdir(root):
        made = preregister_table("runs.csv", "hero.yaml", key="key", signer=PRINCIPAL, on_message=lambda _: None)
    return root / made.folder


def write_curve_log(root: Path, *, done: float = 1.0, end: float = LOSS, run: str = RUN) -> Path:
    """A history of the run up to a share of it, which ends at the loss `end`."""
    path, steps = root / "curve.csv", range(50, round(2000 * done) + 1, 50)
    rows = [f"{run},{step},{end * shape(step / 2000)},{TOKENS * step / 2000}" for step in steps]
    path.write_text("\n".join([f"run,_step,{KEY},throughput/total_tokens", *rows]) + "\n")
    return path


FIRST, AGAIN = range(10, 101, 10), range(110, 201, 10)
"""Steps of the promised run, and of its restart under another id."""
AGAIN_RUN = "hero-1b"


def write_part(root: Path, run: str, steps: Iterable[int], /, *, ended: datetime | None = None, **changes: Any) -> str:
    """A log of a part of a run of 200 steps, with its loss of each step and, where `ended` is given, with times."""
    values = ({"_step": step, KEY: LOSS * (2 - step / 200), "tokens": TOKENS * step / 200} for step in steps)
    rows = [{"run": run} | row | changes for row in values]
    if ended is not None:
        minutes = len(rows)
        rows = [row | {"timestamp": (ended - timedelta(minutes=minutes - at)).isoformat()} for at, row in enumerate(rows, 1)]
    pd.DataFrame(rows).dropna(axis="columns", how="all").to_csv(root / f"{run}.csv", index=False)
    return str(root / f"{run}.csv")


def restart(folder: Path, run: str = AGAIN_RUN, *, signer: str = PRINCIPAL, key: str = "key", **place: Any) -> Path:
    """A signed notice that the run continues under another id, from step 101 if nothing else is said."""
    content = place or {"from_step": 101}
    silent = {"on_message": lambda _: None}
    signed = folder.parent.parent / key
    return sign_notice(folder, "restart", reason="a node failed", run=run, signer=signer, key=signed, **silent, **content)


def copy_of_registered(root: Path, *, factory: pytest.TempPathFactory) -> None:
    """Put a copy of a repository with a signed forecast, made once for all tests, into `root`."""

    def make(place: Path) -> None:
        place.mkdir()
        register_outside(place)

    shutil.copytree(made_once("outside-registered", make, factory=factory), root, dirs_exist_ok=True)
