"""Output of `marin-scale ladder --dry-run`: a line per rung, total cost, and warnings."""

from __future__ import annotations

import math
from typing import Any

from marin_scaling.ladder.config import Compute, LadderFile, PerRun, training_memory_bytes
from marin_scaling.ladder.plan import Ladder, plan_findings
from marin_scaling.printable import TABLE_WIDTH, wrapped
from marin_scaling.recipe.base import RungPlan
from marin_scaling.units import format_bytes, format_count, format_duration, format_flops

_HOUR = 3600.0
_OFF = 0.01
"""Relative difference of a rung's FLOPs from its budget above which the table has a column for it."""


def ladder_table(ladder: Ladder) -> str:
    """Format the rungs as a table, one line each, with totals and warnings.

    Columns: budget in FLOPs, width, layers, parameters, tokens, tokens per active parameter (D/N), batch size in sequences,
    steps and matrix learning rate. A mixture of experts adds its active parameters. With speed and cost of the hardware in
    the file, the columns also have the time and cost of the run on all of it.
    """
    rows = [_cells(rung.plan, ladder) for rung in ladder.rungs]
    columns = {name: max(len(name), *(len(row[name]) for row in rows)) for name in rows[0]}
    gap = "  " if sum(columns.values()) + 2 * len(columns) <= TABLE_WIDTH else " "
    lines = [gap.join(f"{row[name]:>{width}}" for name, width in columns.items()) for row in ({n: n for n in columns}, *rows)]
    return "\n".join([*lines, "", *map(wrapped, _totals(ladder)), *(wrapped(each.line) for each in plan_findings(ladder))])


def ladder_document(ladder: Ladder) -> dict[str, Any]:
    """Return the rungs, totals and warnings of a ladder as JSON."""
    file, target = ladder.file, ladder.file.target.budget_flops
    return {
        "name": file.name,
        "recipe": file.recipe,
        "rungs": [_document(rung.plan, file) | {"seed": rung.seed} for rung in ladder.rungs],
        "total": {"flops": ladder.total_flops, **_numbers(ladder.total_flops, file)},
        "target": {"budget_flops": target, "extrapolation": ladder.extrapolation, **_numbers(target, file)},
        "findings": [vars(finding) for finding in plan_findings(ladder)],
    }


def _document(plan: RungPlan, file: LadderFile) -> dict[str, Any]:
    return {
        "budget_flops": plan.budget_flops,
        "hidden_dim": plan.shape.hidden_dim,
        "num_layers": plan.shape.num_layers,
        "params": plan.shape.params_total,
        "active_params": plan.shape.params_active,
        "tokens": plan.trained_tokens,
        "batch_size": plan.batch_size,
        "train_steps": plan.train_steps,
        "learning_rate": plan.hyperparameters.learning_rate,
        "flops": plan.flops,
        "memory_bytes": _memory(plan, file),
        **_numbers(plan.flops, file),
    }


def _cells(plan: RungPlan, ladder: Ladder) -> dict[str, str]:
    plans = [rung.plan for rung in ladder.rungs]
    is_sparse = any(each.shape.params_active != each.shape.params_total for each in plans)
    is_off = any(abs(each.flops / each.budget_flops - 1) > _OFF for each in plans)
    return {
        "budget": format_flops(plan.budget_flops),
        "width": str(plan.shape.hidden_dim),
        "layers": str(plan.shape.num_layers),
        "params": format_count(plan.shape.params_total),
        **({"active": format_count(plan.shape.params_active)} if is_sparse else {}),
        "tokens": format_count(plan.trained_tokens),
        "D/N": f"{plan.tokens_per_param:.1f}" if plan.tokens_per_param < 1e4 else format_count(plan.tokens_per_param),
        "batch": str(plan.batch_size),
        "steps": str(plan.train_steps),
        "lr": f"{plan.hyperparameters.learning_rate:.4f}",
        **({"off by": f"{plan.flops / plan.budget_flops - 1:+.1%}"} if is_off else {}),
        **_time_and_cost(plan.flops, ladder.file),
    }


def _memory(plan: RungPlan, file: LadderFile) -> float:
    return training_memory_bytes(plan, file.compute, devices=_devices(file.hardware.per_run))


def _numbers(flops: float, file: LadderFile) -> dict[str, float]:
    """Return time and cost of a run on all of the hardware, as far as the file has speed and price."""
    rate, price = file.hardware.sustained_flops_per_second, file.hardware.cost_per_hour
    if rate is None:
        return {}
    return {"seconds": flops / rate, **({} if price is None else {"cost": flops / rate / _HOUR * price})}


def _time_and_cost(flops: float, file: LadderFile) -> dict[str, str]:
    found = _numbers(flops, file)
    cost = {"cost": f"{found['cost']:,.2f}"} if "cost" in found else {}
    return {"time": format_duration(found["seconds"]), **cost} if found else {}


def _totals(ladder: Ladder) -> list[str]:
    file, target = ladder.file, ladder.file.target.budget_flops
    most = max(_memory(rung.plan, file) for rung in ladder.rungs)
    lines = [
        f"{len(ladder.rungs)} rungs, {format_flops(ladder.total_flops)} FLOPs together; "
        f"target {format_flops(target)} FLOPs, {ladder.extrapolation:.3g}x the largest rung.",
        f"Memory of a step: at most {format_bytes(most)} on {_devices_words(file.hardware.per_run)} "
        f"{_described(file.compute)}, without the program itself.",
    ]
    rungs_cost, target_cost = _time_and_cost(ladder.total_flops, file), _time_and_cost(target, file)
    if "time" in rungs_cost:
        rate = format_flops(file.hardware.sustained_flops_per_second or 0.0)
        lines.append(
            f"At {rate} FLOP/s: {rungs_cost['time']} of training steps for the rungs, {target_cost['time']} for the target."
        )
    if "cost" in rungs_cost:
        price = file.hardware.cost_per_hour
        lines.append(f"At {price:g} an hour: {rungs_cost['cost']} for the rungs, {target_cost['cost']} for the target.")
    return lines


def _devices(per_run: PerRun) -> int:
    """Return the number of devices of a run: its GPUs, or the chips of its slice."""
    if per_run.tpu_slice is not None:
        return math.prod(int(chips) for chips in per_run.tpu_slice.topology.split("x"))
    return max(1, int(per_run.gpus)) * per_run.processes


def _devices_words(per_run: PerRun) -> str:
    return "one device" if _devices(per_run) == 1 else f"each of {_devices(per_run)} devices"


def _described(compute: Compute) -> str:
    parts = [f"in {compute.precision}", "layers recomputed" if compute.recompute else "nothing recomputed"]
    if compute.attention == "flash":
        parts.append("flash attention")
    if compute.sequences_at_a_time:
        parts.append(f"at most {compute.sequences_at_a_time} sequences at a time")
    return ", ".join(parts)
