"""Output of `marin-scale ladder --dry-run`: a line per rung, total cost, and warnings."""

from __future__ import annotations

import math

from marin_scaling.ladder.config import Compute, LadderFile, PerRun, training_memory_bytes
from marin_scaling.ladder.plan import Ladder, ladder_doubts
from marin_scaling.recipe.base import RungPlan
from marin_scaling.units import format_bytes, format_count, format_duration, format_flops

_WIDTHS = {
    "budget": 8,
    "width": 6,
    "layers": 6,
    "params": 7,
    "active": 7,
    "tokens": 7,
    "tok/par": 7,
    "batch": 5,
    "steps": 6,
    "lr": 8,
    "FLOPs": 8,
    "off by": 7,
    "memory": 7,
    "time": 11,
    "cost": 8,
}
_HOUR = 3600.0


def ladder_table(ladder: Ladder) -> str:
    """Format the rungs as a table, one line each, with totals and warnings.

    Columns: budget in FLOPs, width, layers, parameters, active parameters, tokens, tokens per active parameter, batch size
    in sequences, steps, matrix learning rate, FLOPs and their difference from the budget, and memory of a step per device.
    With speed and cost of the hardware in the file: time and cost of the run if it has all of it.
    """
    rows = [_cells(rung.plan, ladder.file) for rung in ladder.rungs]
    head = {name: name for name in rows[0]}
    lines = ["".join(f"{text:>{_WIDTHS[name] + 1}}" for name, text in row.items())[1:] for row in (head, *rows)]
    doubts = [f"warning: {doubt}" for doubt in ladder_doubts(ladder)]
    return "\n".join([*lines, "", *_totals(ladder), *doubts])


def _cells(plan: RungPlan, file: LadderFile) -> dict[str, str]:
    return {
        "budget": format_flops(plan.budget_flops),
        "width": str(plan.shape.hidden_dim),
        "layers": str(plan.shape.num_layers),
        "params": format_count(plan.shape.params_total),
        "active": format_count(plan.shape.params_active),
        "tokens": format_count(plan.trained_tokens),
        "tok/par": f"{plan.tokens_per_param:.1f}" if plan.tokens_per_param < 1e4 else format_count(plan.tokens_per_param),
        "batch": str(plan.batch_size),
        "steps": str(plan.train_steps),
        "lr": f"{plan.hyperparameters.learning_rate:.4f}",
        "FLOPs": format_flops(plan.flops),
        "off by": f"{plan.flops / plan.budget_flops - 1:+.2%}",
        "memory": format_bytes(training_memory_bytes(plan, file.compute, devices=_devices(file.hardware.per_run))),
        **_time_and_cost(plan.flops, file),
    }


def _time_and_cost(flops: float, file: LadderFile) -> dict[str, str]:
    rate, price = file.hardware.sustained_flops_per_second, file.hardware.cost_per_hour
    if rate is None:
        return {}
    cost = {} if price is None else {"cost": f"{flops / rate / _HOUR * price:,.2f}"}
    return {"time": format_duration(flops / rate), **cost}


def _totals(ladder: Ladder) -> list[str]:
    file, target = ladder.file, ladder.file.target.budget_flops
    lines = [
        f"{len(ladder.rungs)} rungs, {format_flops(ladder.total_flops)} FLOPs together; "
        f"target {format_flops(target)} FLOPs, {ladder.extrapolation:.3g}x the largest rung.",
        f"Memory per step on {_devices_words(file.hardware.per_run)} {_described(file.compute)}, without the program itself.",
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
