"""Compile training steps for TPU slices that are not here: memory against the estimate, what fits, and compile times.

Needs the extras train and tpu. Each shape is the run of its recipe at this budget and width; the shapes of 1e23 FLOPs are those
of large targets. Compiled shapes are kept in `--cache`, whose times are those of the first compilation.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from report import parser, publish

import marin_scaling as ms
from marin_scaling.ladder.plan import Rung
from marin_scaling.recipe.find import find_recipe
from marin_scaling.units import format_count, format_duration, format_flops

LADDER = """\
name: shapes
recipe: {recipe}
rungs: [{{budget_flops: {budget}, hidden_dims: [{width}]}}]
target: {{budget_flops: {target}}}
data: {{source: any-text, train: {{files: [train.jsonl]}}, tokenizer: meta-llama/Llama-3.1-8B}}
compute: {{precision: bfloat16, attention: flash, recompute: true, sequences_at_a_time: 4}}
"""
SHAPES = (
    ("delphi", 3e18, 512, "v5p:2x2x1"),
    ("delphi", 3e18, 1024, "v5p:2x2x1"),
    ("delphi", 1e20, 1536, "v5p:2x2x1"),
    ("delphi", 1e21, 2560, "v5p:2x2x2"),
    ("delphi", 1e22, 3840, "v5p:2x2x4"),
    ("delphi", 1e23, 5376, "v5p:2x2x4"),
    ("delphi", 1e23, 5376, "v5p:4x4x8"),
    ("delphi", 1e23, 5376, "v5e:16x16"),
    ("grug-moe-v16", 3e18, 512, "v5p:2x2x1"),
    ("grug-moe-v16", 1e20, 1024, "v5p:2x2x1"),
    ("grug-moe-v16", 1e21, 2048, "v5p:2x2x4"),
    ("grug-moe-v16", 1e23, 5120, "v5p:2x4x4"),
    ("grug-moe-v16", 1e23, 5120, "v5p:4x4x4"),
    ("grug-moe-v16", 1e23, 5120, "v5p:4x4x8"),
)
"""Recipe, budget in FLOPs, width and slice."""
LARGE_BATCH = 2048
"""Sequences per step of Marin's Delphi run of 1e23 FLOPs, which its hardware determined."""


def row(recipe: str, budget: float, width: int, topology: str) -> list[object]:
    """Compile one shape in the current folder, and return its row."""
    Path("shapes.yaml").write_text(LADDER.format(recipe=recipe, budget=budget, width=width, target=10 * budget))
    ladder = ms.load_ladder("shapes.yaml")
    batch = LARGE_BATCH if (recipe, budget) == ("delphi", 1e23) else None
    plan = find_recipe(recipe).plan(budget_flops=budget, hidden_dim=width, batch_size=batch)
    ladder = replace(ladder, ladder=replace(ladder.ladder, rungs=(Rung(plan=plan, seed=0),)))
    found = ladder.compile_for(topology, only=[plan.rung_name], on_message=lambda _message: None)
    (shape,) = found.shapes
    return [
        recipe,
        plan.rung_name,
        plan.shape.num_layers,
        format_count(plan.shape.params_total),
        shape.batch_size,
        topology,
        f"{shape.needed_bytes / 1e9:.1f}",
        f"{shape.estimated_bytes / 1e9:.1f}",
        f"{shape.estimated_bytes / shape.needed_bytes - 1:+.0%}",
        "yes" if shape.fits else f"no, of {shape.available_bytes / 1e9:.1f}",
        format_flops(shape.counted_flops),
        format_flops(shape.xla_flops) if shape.xla_flops else "",
        format_duration(shape.compile_seconds),
    ]


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--cache", type=Path, required=True, help="folder for the ladder file and compiled shapes")
    options = arguments.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    here = Path.cwd()
    os.chdir(options.cache)
    rows = [row(*shape) for shape in SHAPES]
    os.chdir(here)
    publish(
        "Training steps compiled for absent TPU slices",
        columns=[
            *("recipe", "run", "layers", "params", "batch", "slice", "compiled, GB", "estimate, GB", "off by", "fits"),
            *("FLOPs per device", "by XLA", "compile time"),
        ],
        rows=rows,
        packages=["jax", "libtpu", "marin-levanter"],
        notes=[
            "Bfloat16, flash attention, layers recomputed, at most 4 sequences per device at a time; numbers are per device. "
            "GB are 1e9 bytes. Compile time is that of the training step and the evaluation, one shape at a time.",
            "XLA counts no Pallas kernels, and one pass of each loop. A refused shape has XLA's own count of its memory.",
        ],
        write=options.write,
    )


if __name__ == "__main__":
    main()
