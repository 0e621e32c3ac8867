"""What a fit could not mend afterwards is said before anything is trained."""

from pathlib import Path

from marin_scaling.ladder.ladder import Ladder, ladder_doubts, ladder_table, plan_ladder
from marin_scaling.ladder.ladder_file import LadderFile, read_ladder_file

QUICKSTART = Path(__file__).parents[3] / "ladders" / "quickstart.yaml"


def ladder(*widths: list[int], target: float = 1e13) -> LadderFile:
    rungs = [{"budget_flops": 3e10 * 2**number, "hidden_dims": found} for number, found in enumerate(widths)]
    return LadderFile.model_validate(
        {"name": "tiny", "recipe": "quickstart", "rungs": rungs, "target": {"budget_flops": target}}
    )


def planned(*widths: list[int], target: float = 1e13) -> Ladder:
    return plan_ladder(ladder(*widths, target=target))


def test_the_quickstart_leaves_no_doubt() -> None:
    """Five budgets of four widths."""
    assert ladder_doubts(plan_ladder(read_ladder_file(QUICKSTART))) == []


def test_three_budgets_are_too_few() -> None:
    """The dry run says so below its totals."""
    file = ladder([8, 12, 16], [8, 12, 16], [8, 12, 16])
    assert ladder_doubts(plan_ladder(file)) == [
        "3 budgets; the law has three unknowns, and an interval needs 4 budgets or more"
    ]
    assert ladder_table(plan_ladder(file)).endswith("needs 4 budgets or more")


def test_two_widths_show_no_bowl() -> None:
    """The budget is named."""
    (doubt,) = ladder_doubts(planned([8, 12, 16], [8, 12], [8, 12, 16], [8, 12, 16]))
    assert doubt == "6e10 FLOPs has 2 of the 3 widths or more that show its best size"


def test_one_budget_on_two_lines_counts_once() -> None:
    """Widths of equal budgets are taken together."""
    file = ladder([8, 12], [8, 12, 16], [8, 12, 16], [8, 12, 16])
    split = file.model_copy(update={"rungs": (*file.rungs, file.rungs[0].model_copy(update={"hidden_dims": (16,)}))})
    assert ladder_doubts(plan_ladder(split)) == []


def test_a_target_beyond_all_that_was_ever_checked_is_doubted() -> None:
    """Delphi's forecast at 333 times its ladder is the farthest; 1e14 is 417 times the largest of four budgets."""
    assert ladder_doubts(planned(*[[8, 12, 16]] * 4, target=7e13)) == []
    (doubt,) = ladder_doubts(planned(*[[8, 12, 16]] * 4, target=1e14))
    assert doubt == "the target is 417x the largest rung; no forecast beyond 333x is known to be checked"


def test_a_batch_that_the_recipe_had_to_halve_is_doubted_with_its_rung() -> None:
    """Once, however many seeds the rung has."""
    rungs = [{"budget_flops": budget, "sizes": 4} for budget in (9e18, 3e19, 9e19)]
    over_trained = {"budget_flops": 3e22, "hidden_dims": [2048, 4096, 5120]}
    whole = {
        "name": "large",
        "recipe": "delphi",
        "rungs": [*rungs, over_trained],
        "seeds": [0, 1],
        "target": {"budget_flops": 1e23},
    }
    (doubt,) = ladder_doubts(plan_ladder(LadderFile.model_validate(whole)))
    assert doubt.startswith("3e22 FLOPs at width 2048: batch 16384 is halved to 8192, so that no learning rate")
