"""Every file in `ladders/`, expanded: a default that changes any number of any run shows here, and in review.

To renew after a change that was meant: python tests/golden/test_ladders.py
"""

import json
from pathlib import Path
from typing import Any

import pytest

from marin_scaling.ladder.config import SCHEMA_FILE, ladder_schema, read_ladder_file
from marin_scaling.ladder.plan import plan_ladder, plan_target
from marin_scaling.recipe.base import RungPlan
from marin_scaling.recipe.find import find_recipe
from marin_scaling.run.plan import optimizer_of

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "ladders"
LADDERS = sorted((ROOT / "ladders").glob("*.yaml"))


def expansion(path: Path) -> dict[str, Any]:
    """Every number and word of every rung, of the target at each width that it can have, and all keys of the file."""
    file = read_ladder_file(path)
    recipe = find_recipe(file.recipe)
    sizes = {recipe.shape(width).params_active for width in recipe.widths_at(file.target.budget_flops)}
    return {
        "file": file.model_dump(mode="json"),
        "rungs": [{"seed": rung.seed, **_whole(rung.plan)} for rung in plan_ladder(file).rungs],
        "targets": [_whole(plan_target(file, compute_optimal_params=size)) for size in sorted(sizes)],
    }


def _whole(plan: RungPlan) -> dict[str, Any]:
    return {"optimizer": plan.optimizer, "constant_norm": plan.constant_norm, **plan.values(), "doubts": list(plan.doubts)}


def as_text(path: Path) -> str:
    """A line for each run."""
    found = expansion(path)
    runs = {name: [json.dumps(run) for run in found[name]] for name in ("rungs", "targets")}
    lists = ",\n".join(f'"{name}": [\n' + ",\n".join(lines) + "\n]" for name, lines in runs.items())
    return f'{{"file": {json.dumps(found["file"])},\n{lists}}}\n'


def rounded(text: str) -> Any:
    return json.loads(text, parse_float=lambda digits: float(f"{float(digits):.12g}"))


@pytest.mark.parametrize("path", LADDERS, ids=lambda path: path.stem)
def test_a_ladder_file_means_what_it_meant(path: Path) -> None:
    """To twelve digits: powers differ in the last ones between machines."""
    assert rounded((GOLDEN / f"{path.stem}.json").read_text()) == rounded(as_text(path))


def test_the_quickstarts_records_are_of_the_runs_that_are_planned_today() -> None:
    """To the last bit: another digit in one rate is another run, which every reader's ladder would train again."""
    planned = {
        (rung.plan.budget_flops, rung.plan.shape.hidden_dim): {
            **optimizer_of(rung.plan).model_dump(mode="json"),
            "steps": (rung.plan.batch_size, rung.plan.train_steps),
        }
        for rung in plan_ladder(read_ladder_file(ROOT / "ladders" / "quickstart.yaml")).rungs
    }
    stored = {}
    for path in (ROOT / "runs" / "quickstart").glob("*/spec.json"):
        spec = json.loads(path.read_text())
        if spec["role"] == "rung":
            steps = (spec["batch_size"], spec["train_steps"])
            stored[spec["budget_flops"], spec["model"]["hidden_dim"]] = {**spec["optimizer"], "steps": steps}
    assert stored == planned


def test_no_golden_is_left_of_a_ladder_that_is_gone() -> None:
    """And none is missing."""
    assert {path.stem for path in GOLDEN.glob("*.json")} == {path.stem for path in LADDERS}


def test_the_schema_beside_the_ladders_is_that_of_the_model_and_named_in_each_first_line() -> None:
    """So that editors complete what is read: `init` writes the same."""
    assert (ROOT / "ladders" / SCHEMA_FILE).read_text() == ladder_schema()
    first_lines = {path.read_text().splitlines()[0] for path in LADDERS}
    assert first_lines == {f"# yaml-language-server: $schema={SCHEMA_FILE}"}


if __name__ == "__main__":
    (ROOT / "ladders" / SCHEMA_FILE).write_text(ladder_schema())
    for ladder in LADDERS:
        (GOLDEN / f"{ladder.stem}.json").write_text(as_text(ladder))
