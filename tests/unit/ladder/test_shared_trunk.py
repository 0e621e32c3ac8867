"""A ladder whose rungs of one width share the steps before their decay: one batch and rates, and each step counted once."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from run_factory import record_of, rung_spec

from marin_scaling.ladder.config import LadderFile
from marin_scaling.ladder.plan import Ladder, ladder_document, plan_findings, plan_ladder
from marin_scaling.recipe.base import fraction_of_steps
from marin_scaling.run.spec import by_trunk
from marin_scaling.run.store import Trunk, record_matches


def planned(**more: Any) -> Ladder:
    """Three budgets of width 32, and two of width 48."""
    rungs = [{"budget_flops": 1e11 * 2**number, "hidden_dims": [32, 48][: number + 1]} for number in range(3)]
    fields = {"name": "tiny", "recipe": "quickstart", "rungs": rungs, "target": {"budget_flops": 1e13}, "shared_trunk": True}
    return plan_ladder(LadderFile.model_validate(fields | more))


def test_all_runs_of_a_width_have_batch_rates_and_warm_up_steps_in_common() -> None:
    for width in (32, 48):
        plans = [rung.plan for rung in planned().rungs if rung.plan.shape.hidden_dim == width]
        assert len({(plan.batch_size, plan.hyperparameters) for plan in plans}) == 1
        assert len({int(plan.schedule.warmup_fraction * plan.train_steps) for plan in plans}) == 1
        assert len({plan.train_steps for plan in plans}) == len(plans)


def test_the_rates_are_those_of_the_largest_budget_trained_alone() -> None:
    shared, alone = ([rung.plan for rung in planned(shared_trunk=yes).rungs][-1] for yes in (True, False))
    assert shared.hyperparameters == alone.hyperparameters
    assert shared.train_steps == alone.train_steps


def test_steps_before_the_decay_of_a_shorter_rung_are_counted_once() -> None:
    """Of width 32, 140, 280 and 560 steps decay in their last 56, 112 and 224."""
    ladder = planned()
    narrow = [rung for rung in ladder.rungs if rung.plan.shape.hidden_dim == 32]
    steps = [rung.plan.train_steps for rung in narrow]
    assert steps == [140, 280, 560]
    own = [ladder.own_flops(rung) / rung.plan.flops for rung in narrow]
    assert own == pytest.approx([1.0, (280 - 84) / 280, (560 - 168) / 560])
    assert ladder.total_flops == pytest.approx(sum(row["own_flops"] for row in ladder_document(ladder)["rungs"]))
    assert ladder.total_flops < sum(rung.plan.flops for rung in ladder.rungs)


def test_a_recipe_that_decays_after_its_warm_up_shares_next_to_nothing_and_says_so() -> None:
    """Grug-moe-v16 warms up over 10 % of a run and decays over 90 %; quickstart's ladder shares a quarter."""
    rungs = [{"budget_flops": budget, "hidden_dims": [512, 768]} for budget in (1e18, 3e18, 1e19, 3e19)]
    wide = planned(recipe="grug-moe-v16", rungs=rungs, target={"budget_flops": 1e21})
    assert "shared-trunk" in {found.code for found in plan_findings(wide)}
    assert "shared-trunk" not in {found.code for found in plan_findings(planned())}


def test_time_in_json_is_that_of_a_rungs_own_steps() -> None:
    found = ladder_document(planned(hardware={"sustained_flops_per_second": 1e10}))
    assert sum(row["seconds"] for row in found["rungs"]) == pytest.approx(found["total"]["seconds"])


def test_seeds_have_trunks_of_their_own() -> None:
    one, two = planned(), planned(seeds=[0, 1])
    assert two.total_flops == pytest.approx(2 * one.total_flops)


def test_trunks_need_a_common_file_system() -> None:
    with pytest.raises(ValidationError, match="shared_trunk"):
        planned(hardware={"storage": "gs://bucket/folder"})


@given(steps=st.integers(1, 10**7), share=st.floats(0, 1))
def test_a_fraction_of_steps_gives_these_steps_rounded_down(steps: int, share: float) -> None:
    part = min(int(share * steps), steps - 1)
    assert int(fraction_of_steps(part, steps) * steps) == part


def test_runs_of_one_seed_rates_and_data_share_a_trunk_in_order_of_length() -> None:
    def spec(steps: int, **changes: Any) -> Any:
        optimizer = rung_spec().optimizer.model_copy(update={"warmup_fraction": fraction_of_steps(3, steps)})
        return rung_spec(train_steps=steps, optimizer=optimizer, shared_trunk=True, **changes)

    short, middle, long, other, alone = spec(40), spec(80), spec(160), spec(60, seed=1), rung_spec(train_steps=50)
    assert by_trunk([long, alone, short, other, middle]) == [[short, middle, long], [alone], [other]]


def test_a_record_that_took_steps_of_the_decay_from_another_run_does_not_match() -> None:
    spec = rung_spec(shared_trunk=True)
    record = record_of(spec)
    for steps, is_right in ((6, True), (7, False)):
        taken = record.model_copy(update={"trunk": Trunk(spec_digest="0" * 64, steps=steps)})
        assert record_matches(spec, taken) == is_right
    assert not record_matches(rung_spec(), record_of(rung_spec()).model_copy(update={"trunk": taken.trunk}))


def test_a_ladder_without_trunks_has_the_specs_that_it_had() -> None:
    assert b"shared_trunk" not in rung_spec().to_bytes()
