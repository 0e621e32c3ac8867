"""The public tables that forecasts are scored on, as run tables; what is not in this repository is read from `--data DIR`.

Delphi comes with the repository. The others are files of their makers and are not ours to publish: Marin's isoFLOP sweeps
(Open-Athena/scaling-law-analysis; v16, May and August 2026 of its mixtures of experts), cells of its learning-rate grids and
its speedruns, Chinchilla's runs, as read off its figure (epoch-research/analyzing-chinchilla) and from its vectors
(EythorE/Chinchilla_visualization), StepLaw's mixtures, and the OLMo ladder's mean bits per byte of ten tasks.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from marin_scaling.fitting.optima import size_column
from marin_scaling.run.table import RunTable

ROOT = Path(__file__).parents[1]

COLUMNS = ("flops", "params", "tokens", "loss")
MEAN_OF_TASKS = {"mmlu_stem", "boolq", "winogrande"}
"""Tasks left out of OLMo's mean: their bits per byte hardly fall over the ladder."""
ACTIVE_PARAMS = {512: 18e6, 768: 54e6, 1024: 145e6, 1280: 261e6}
"""Active parameters by width of Marin's issue 4225, from the same shapes in its issue 7856."""
NEAR = 0.3
"""Decades of tokens per parameter from the best run of a budget within which a run counts as near the optimum."""


def public_suites(data: Path | None) -> dict[str, RunTable]:
    """Tables by name; with `data`, the folder of the files that are not in the repository, seventeen of them, else one."""
    suites = {"delphi": _delphi()}
    if data is None:
        return suites
    for name in ("comma", "dclm", "nemotron"):
        sweep = pd.read_csv(data / f"marin_202603_isoflop_{name}_raw.csv")
        suites[f"marin {name}"] = _table(sweep, name, ("train_flops", "total_params", "tokens", "paloma_macro_loss_nats"))
    read_off = pd.read_csv(data / "chinchilla_epoch.csv")
    read_off = read_off[read_off["excluded_by_epoch"] != 1]
    suites["chinchilla read off"] = _table(read_off, "chinchilla read off", COLUMNS)
    suites["chinchilla vectors"] = _table(pd.read_csv(data / "chinchilla_fig4_isoflop.csv"), "chinchilla vectors", COLUMNS)
    return suites | _mixtures(data / "moe") | _cells(data / "hyperparameters") | _speedruns(data) | {"olmo tasks": _olmo(data)}


def _mixtures(folder: Path) -> dict[str, RunTable]:
    """Mixtures of experts by active parameters, with totals."""
    v16 = pd.concat([pd.read_csv(folder / f"marin_moe_v16_{part}_runs.csv") for part in ("isoflop", "later")])
    august = pd.read_csv(folder / "marin_moe_aug_hero_isoflop_8003.csv")
    steplaw = pd.read_csv(folder / "steplaw_moe_runs.csv")
    best = steplaw.groupby(["params", "active_params", "tokens"])["loss"].idxmin()
    tables = {
        "moe v16": v16,
        "moe may": pd.read_csv(folder / "marin_moe_may_isoflop_runs.csv"),
        "moe august": august[august["status"] == "done"],
        "steplaw moe": steplaw.loc[best],
    }
    return {name: _table(frame, name, (*COLUMNS, "active_params")) for name, frame in tables.items()}


def _cells(folder: Path) -> dict[str, RunTable]:
    """The best run of each size and length of two learning-rate grids."""
    published = pd.read_csv(folder / "marin_7856_cells.csv").dropna(subset=["best_loss"])
    published = published.assign(params=published["active_params"], loss=published["best_loss"])
    grid = pd.read_csv(folder / "marin_4225_lr_sweep_runs.csv")
    grid = grid[grid["complete"] == 1]
    grid = grid.loc[grid.groupby(["width", "tokens_ratio_published"])["c4_en_bpb"].idxmin()]
    grid = grid.assign(params=grid["width"].map(ACTIVE_PARAMS), tokens=grid["tokens_planned_computed"], loss=grid["c4_en_bpb"])
    return {
        name: _table(frame.assign(flops=6 * frame["params"] * frame["tokens"]), name, COLUMNS)
        for name, frame in (("cells of issue 7856", published), ("cells of issue 4225", grid))
    }


def _speedruns(data: Path) -> dict[str, RunTable]:
    """Three ladders of Marin's board, each at about twenty tokens per parameter; unstated tokens follow from FLOPs."""
    runs = pd.read_csv(data / "speedrun" / "runs.csv")
    runs = runs.assign(
        params=runs["model_size"], flops=runs["model_flops"], tokens=runs["total_tokens"], loss=runs["c4_en_bpb"]
    )
    found = {}
    for name in ("c-adamc_llama_scaling", "cautious_llama_scaling", "muonh_qwen3_scaling"):
        frame = runs[runs["run"].str.startswith(f"{name}/")].sort_values("flops")
        stated = frame["tokens"].notna()
        cost = (frame["flops"] / frame["params"] / frame["tokens"])[stated]
        filled = np.interp(np.log(frame["params"]), np.log(frame["params"][stated]), cost)
        tokens = frame["tokens"].fillna(frame["flops"] / frame["params"] / filled)
        found[name.removesuffix("_scaling")] = _table(frame.assign(tokens=tokens), name, COLUMNS)
    return found


def _olmo(data: Path) -> RunTable:
    tasks = pd.read_csv(data / "downstream" / "olmo_ladder_tasks_final.csv")
    tasks = tasks[(tasks["rerun"] == 0) & ~tasks["task"].isin(MEAN_OF_TASKS)]
    sizes = {name: (name, "first") for name in ("flops", "params", "tokens")}
    return _table(tasks.groupby("run").agg(**sizes, loss=("bpb", "mean")), "olmo tasks", COLUMNS)


def _delphi() -> RunTable:
    """The ladder, and the larger runs by the mean of their seeds."""
    columns = ["flops", "params", "tokens", "loss"]
    ladder, larger = (pd.read_csv(ROOT / "runs" / "delphi" / name)[columns] for name in ("runs.csv", "heldout.csv"))
    larger = larger.groupby(["flops", "params", "tokens"], as_index=False)["loss"].mean()
    return _table(pd.concat([ladder, larger]), "delphi", tuple(columns))


def _table(frame: pd.DataFrame, name: str, columns: tuple[str, ...]) -> RunTable:
    chosen = frame[list(columns)].astype(float).set_axis([*COLUMNS, *columns[len(COLUMNS) :]], axis=1)
    chosen = chosen[np.isfinite(chosen).all(axis=1)].sort_values(["flops", "params"]).reset_index(drop=True)
    new_budget = np.diff(np.log(chosen["flops"]), prepend=-np.inf) > np.log(1.1)
    runs = chosen.assign(run=[f"{name} {row}" for row in chosen.index])
    budget = runs.groupby(np.cumsum(new_budget))["flops"].transform("median")
    return RunTable(frame=runs.assign(budget_flops=budget), source=name, metric="loss")


def near_optimum(frame: pd.DataFrame) -> pd.Series:
    """Return True for runs whose tokens per parameter are within `NEAR` decades of those of the best run of their budget."""
    return _decades_off(frame).abs() <= NEAR


def thinned(known: RunTable) -> dict[str, RunTable]:
    """Return the runs as they are, and of a grid four sizes a budget, the best of each, and one ratio of tokens per parameter.

    Most ladders of other people are such: fewer runs show less, and what the prior adds is then seen.
    """
    frame = known.frame
    found = {"all runs": frame}
    by_budget = frame.groupby("budget_flops")
    if (by_budget["run"].transform("size") >= 5).mean() > 0.5:
        off, ratio = _decades_off(frame), _log_ratio(frame)
        wanted = np.array([-0.6, -0.2, 0.2, 0.6])
        grid = {(off[runs.index] - each).abs().idxmin() for _, runs in by_budget for each in wanted}
        found["four sizes"] = frame.loc[sorted(grid)]
        best = by_budget["loss"].idxmin()
        if len(best) >= 4:
            middle = ratio[best].median()
            found["one run a budget"] = frame.loc[sorted(best)]
            found["one ratio"] = frame.loc[sorted((ratio[runs.index] - middle).abs().idxmin() for _, runs in by_budget)]
    return {
        name: replace(known, frame=runs.reset_index(drop=True))
        for name, runs in found.items()
        if len(runs) >= 4 and runs["flops"].max() >= 3 * runs["flops"].min()
    }


def _decades_off(frame: pd.DataFrame) -> pd.Series:
    ratio = _log_ratio(frame)
    best = frame.groupby("budget_flops")["loss"].transform("idxmin")
    return ratio - ratio[best].to_numpy()


def _log_ratio(frame: pd.DataFrame) -> pd.Series:
    return np.log10(frame["tokens"] / size_column(frame))
