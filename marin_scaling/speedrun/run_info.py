"""What an entry will be and cost, before it is trained: configuration, sizes, FLOPs, and time on a machine between two MFUs.

The range of MFU is that of Marin's `print_run_info`: .5 is as good as large runs get, .2 is what a first try reaches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from marin_scaling.recipe.flop_counting import WITH_LM_HEAD, training_flops
from marin_scaling.recipe.run_plan import RungPlan
from marin_scaling.run.plan_specs import model_of, optimizer_of
from marin_scaling.speedrun.entry import Entry
from marin_scaling.speedrun.hardware import Machine
from marin_scaling.speedrun.submission import LEVANTER_FLOPS
from marin_scaling.speedrun.track import Track
from marin_scaling.units import format_count, format_duration, format_flops

MFU_RANGE = (0.5, 0.2)
"""From the best to the worst that is planned for."""


def run_info(
    entry: Entry, plan: RungPlan, *, machine: Machine | None, track: Track | None, price_per_chip_hour: float | None
) -> dict[str, Any]:
    """All of it as a document; what hangs on a machine is None without one.

    `price_per_chip_hour` is in US dollars. FLOPs are those that the board counts, with the output head.
    """
    flops = training_flops(plan.shape, tokens=plan.trained_tokens, convention=WITH_LM_HEAD)
    return {
        "name": entry.name,
        "track": entry.track,
        "recipe": plan.recipe,
        "model": model_of(plan).model_dump(mode="json"),
        "optimizer": optimizer_of(plan).model_dump(mode="json"),
        "params_total": plan.shape.params_total,
        "params_active": plan.shape.params_active,
        "batch_size": plan.batch_size,
        "train_steps": plan.train_steps,
        "trained_tokens": plan.trained_tokens,
        "seeds": list(entry.seeds),
        "model_flops": flops,
        "model_flops_of_all_seeds": flops * len(entry.seeds),
        "model_flops_formula": LEVANTER_FLOPS,
        "hardware_flops": {f"mfu {mfu}": flops / mfu for mfu in MFU_RANGE},
        "machine": None if machine is None else _on(machine, flops, price_per_chip_hour=price_per_chip_hour),
        "over_the_limit": _over(track, flops, plan),
        "doubts": list(plan.doubts),
    }


def _on(machine: Machine, flops: float, *, price_per_chip_hour: float | None) -> dict[str, Any]:
    seconds = {mfu: flops / mfu / machine.peak_flops_per_second for mfu in MFU_RANGE}
    price = None if price_per_chip_hour is None else price_per_chip_hour / 3600 * machine.chips
    return {
        "kind": machine.accelerator.kind,
        "chips": machine.chips,
        "peak_flops_per_second_of_a_chip": machine.accelerator.peak_flops_per_second,
        "peak_flops_per_second": machine.peak_flops_per_second,
        "seconds": {f"mfu {mfu}": value for mfu, value in seconds.items()},
        "us_dollars": None if price is None else {f"mfu {mfu}": value * price for mfu, value in seconds.items()},
    }


def _over(track: Track | None, flops: float, plan: RungPlan) -> list[str]:
    """The limits of the track that are broken already on paper; times and prices are seen after the run."""
    known = {"model_flops": flops, "parameters": plan.shape.params_total, "trained_tokens": plan.trained_tokens}
    limits = {} if track is None else track.limits
    return [
        f"{key} is {known[key]:.6g}; the track {track.name} allows {most:.6g}"
        for key, most in limits.items()
        if track is not None and key in known and known[key] > most
    ]


def run_info_text(info: Mapping[str, Any]) -> str:
    """The same for a reader, configuration first."""
    model, optimizer = (_line(info[key]) for key in ("model", "optimizer"))
    flops, tokens = info["model_flops"], format_count(info["trained_tokens"])
    lines = [
        f"{info['name']}, for the track {info['track']}, by the recipe {info['recipe']}",
        f"model      {model}",
        f"optimizer  {optimizer}",
        f"size       {format_count(info['params_total'])} parameters, {format_count(info['params_active'])} of them active",
        f"training   {info['train_steps']} steps of {info['batch_size']} sequences: {tokens} tokens",
        f"FLOPs      {format_flops(flops)} a run ({info['model_flops_formula']}), {len(info['seeds'])} seeds: "
        f"{format_flops(info['model_flops_of_all_seeds'])}",
        "hardware   " + _range(info["hardware_flops"], lambda value: f"{format_flops(value)} FLOPs") + " a run",
        *_machine_lines(info["machine"]),
        *(f"note: {doubt}" for doubt in info["doubts"]),
        *(f"refused: {said}" for said in info["over_the_limit"]),
    ]
    return "\n".join(lines)


def _line(part: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value:.6g}" if isinstance(value, float) else f"{key} {value}" for key, value in part.items())


def _range(values: Mapping[str, float], shown: Any) -> str:
    return " to ".join(f"{shown(value)} ({key})" for key, value in values.items())


def _machine_lines(machine: Mapping[str, Any] | None) -> list[str]:
    if machine is None:
        return ["machine    not named, so that time and cost are not told: --hardware"]
    each, together = (f"{machine[key] / 1e12:.6g} TFLOP/s" for key in _PEAKS)
    lines = [
        f"machine    {machine['chips']} x {machine['kind']}, {each} each, {together} together (dense)",
        f"time       {_range(machine['seconds'], format_duration)} a run",
    ]
    if machine["us_dollars"] is not None:
        lines.append(f"cost       {_range(machine['us_dollars'], lambda value: f'{value:.3g} US dollars')} a run")
    return lines


_PEAKS = ("peak_flops_per_second_of_a_chip", "peak_flops_per_second")
