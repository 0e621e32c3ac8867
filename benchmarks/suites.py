"""The public tables that forecasts are scored on, as run tables; what is not in this repository is read from `--data DIR`.

Delphi and the MoE ladder (published figures) come with the repository. The others are files of their makers and are not ours to
publish: three of Marin's isoFLOP sweeps (Open-Athena/scaling-law-analysis) and Chinchilla's runs, as read off its figure
(epoch-research/analyzing-chinchilla) and from its vectors (EythorE/Chinchilla_visualization).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from marin_scaling.run.table import RunTable

ROOT = Path(__file__).parents[1]

MOE_BUDGETS = (1e18, 3e18, 1e19, 3e19, 1e20, 3e20, 1e21, 1e23)
MOE_LOSSES = (3.522, 3.339, 3.154, 3.0, 2.848, 2.725, 2.599, 2.234)
"""Optima of Marin's MoE ladder and what was measured at 1e21 and 1e23 (issues 4447 and 4697); FLOPs without the head."""


def public_suites(data: Path | None) -> dict[str, RunTable]:
    """Tables by name; with `data`, the folder of the files that are not in the repository, six of them, else two."""
    suites = {"delphi": _delphi(), "moe": _moe()}
    if data is None:
        return suites
    for name in ("comma", "dclm", "nemotron"):
        sweep = pd.read_csv(data / f"marin_202603_isoflop_{name}_raw.csv")
        suites[f"marin {name}"] = _table(sweep, name, ("train_flops", "total_params", "tokens", "paloma_macro_loss_nats"))
    read_off = pd.read_csv(data / "chinchilla_epoch.csv")
    read_off = read_off[read_off["excluded_by_epoch"] != 1]
    suites["chinchilla read off"] = _table(read_off, "chinchilla read off", ("flops", "params", "tokens", "loss"))
    vectors = pd.read_csv(data / "chinchilla_fig4_isoflop.csv")
    suites["chinchilla vectors"] = _table(vectors, "chinchilla vectors", ("flops", "params", "tokens", "loss"))
    return suites


def _delphi() -> RunTable:
    """The ladder, and the larger runs by the mean of their seeds."""
    columns = ["flops", "params", "tokens", "loss"]
    ladder, larger = (pd.read_csv(ROOT / "runs" / "delphi" / name)[columns] for name in ("runs.csv", "heldout.csv"))
    larger = larger.groupby(["flops", "params", "tokens"], as_index=False)["loss"].mean()
    return _table(pd.concat([ladder, larger]), "delphi", tuple(columns))


def _moe() -> RunTable:
    """Sizes are not published for the optima: any power law of the budget does, as no other size is forecast."""
    flops = np.array(MOE_BUDGETS)
    frame = pd.DataFrame({"flops": flops, "params": 0.0543 * flops**0.5, "tokens": 3.29 * flops**0.5, "loss": MOE_LOSSES})
    return _table(frame, "moe", tuple(frame.columns))


def _table(frame: pd.DataFrame, name: str, columns: tuple[str, ...]) -> RunTable:
    chosen = frame[list(columns)].astype(float).set_axis(["flops", "params", "tokens", "loss"], axis=1)
    chosen = chosen[np.isfinite(chosen).all(axis=1)].sort_values(["flops", "params"]).reset_index(drop=True)
    new_budget = np.diff(np.log(chosen["flops"]), prepend=-np.inf) > np.log(1.1)
    runs = chosen.assign(run=[f"{name} {row}" for row in chosen.index])
    budget = runs.groupby(np.cumsum(new_budget))["flops"].transform("median")
    return RunTable(
        frame=runs.assign(budget_flops=budget), excluded=(), warnings=(), column_mapping={}, source=name, metric="loss"
    )
