"""What a fit could not mend afterwards is said before anything is trained."""

from pathlib import Path

from marin_scaling.errors import Severity
from marin_scaling.ladder.config import LadderFile, read_ladder_file
from marin_scaling.ladder.plan import Ladder, ladder_table, plan_findings, plan_ladder
from marin_scaling.run.plan import load_ladder

QUICKSTART = Path(__file__).parents[3] / "ladders" / "quickstart.yaml"


def ladder(*widths: list[int], target: float = 1e13) -> LadderFile:
    rungs = [{"budget_flops": 3e10 * 2**number, "hidden_dims": found} for number, found in enumerate(widths)]
    return LadderFile.model_validate(
        {"name": "tiny", "recipe": "quickstart", "rungs": rungs, "target": {"budget_flops": target}}
    )


def planned(*widths: list[int], target: float = 1e13) -> Ladder:
    return plan_ladder(ladder(*widths, target=target))


def test_four_budgets_of_three_widths_that_the_recipe_would_choose_leave_no_doubt() -> None:
    """Nothing is said that is not asked for."""
    assert plan_findings(planned(*[[16, 20, 24]] * 4)) == []


def test_rungs_where_the_recipe_ends_are_doubted() -> None:
    """The quickstart's own: one more over-trained than the recipe would have it, and bowls that cannot be widened."""
    over_trained, narrowest = plan_findings(plan_ladder(read_ladder_file(QUICKSTART)))
    assert (over_trained.code, over_trained.where) == ("unusual-width", "2.4e11/12")
    assert over_trained.message.startswith("253 tokens per parameter")
    assert (narrowest.code, narrowest.where) == ("edge-of-recipe", "3e10, 6e10 FLOPs")
    assert "narrowest width, 8;" in narrowest.message
    widest = plan_findings(plan_ladder(ladder([16, 20, 24], [16, 20, 24], [16, 20, 24], [16, 20, 24], [24, 64, 128])))[-1]
    assert (widest.code, widest.where) == ("edge-of-recipe", "4.8e11 FLOPs")
    assert "widest width, 128;" in widest.message


def test_a_sweep_has_the_warnings_about_its_runs() -> None:
    """Not those about bowls and targets, which a sweep does not need."""
    swept = load_ladder(QUICKSTART).swept(learning_rate=[0.5, 1, 2]).plan()
    assert [(each.code, each.where) for each in plan_findings(swept)] == [("unusual-width", "2.4e11/12")]


def test_a_rate_at_its_cap_is_doubted_with_its_rung() -> None:
    """The rule alone would have made it higher: runs beside it are tuned by another one."""
    rungs = [{"budget_flops": budget, "sizes": 4} for budget in (2e10, 4e10)]
    whole = {"name": "tiny", "recipe": "quickstart-moe", "rungs": rungs, "target": {"budget_flops": 1e12}}
    found = plan_findings(plan_ladder(LadderFile.model_validate(whole)))
    assert "warning: 2e10/28: adam_learning_rate at the cap of 0.1" in [finding.line for finding in found]


def test_a_batch_that_is_raised_to_the_smallest_is_doubted() -> None:
    """Marin's mixture of experts at a budget below those it was made for."""
    whole = {
        "name": "small",
        "recipe": "grug-moe",
        "rungs": [{"budget_flops": 3e16, "hidden_dims": [512]}],
        "target": {"budget_flops": 1e18},
    }
    found = plan_findings(plan_ladder(LadderFile.model_validate(whole)))
    (raised,) = [finding for finding in found if "raised to 32" in finding.message]
    assert (raised.code, raised.where) == ("recipe", "3e16/512")


def test_of_many_places_three_are_named_and_the_others_counted() -> None:
    """A finding stays a line, whatever the ladder."""
    assert plan_findings(planned(*[[8, 16, 20]] * 3, [16, 20, 24]))[-1].where == "3e10, 6e10, 1.2e11 FLOPs"
    places = [finding.where for finding in plan_findings(plan_ladder(ladder(*[[8, 12, 16]] * 5)))]
    assert "3e10, 6e10, 1.2e11 and 2 more FLOPs" in places


def test_three_budgets_are_too_few() -> None:
    """The dry run says so below its totals."""
    file = ladder([16, 20, 24], [16, 20, 24], [16, 20, 24])
    (few,) = plan_findings(plan_ladder(file))
    assert (few.severity, few.code, few.where) == (Severity.WARNING, "few-budgets", "rungs")
    assert " ".join(ladder_table(plan_ladder(file)).split()).endswith(few.line)


def test_two_widths_show_no_bowl() -> None:
    """The budget is named."""
    (few,) = plan_findings(planned([16, 20, 24], [16, 20], [16, 20, 24], [16, 20, 24]))
    assert (few.code, few.where) == ("few-widths", "6e10 FLOPs")


def test_one_budget_on_two_lines_counts_once() -> None:
    """Widths of equal budgets are taken together."""
    file = ladder([16, 20], [16, 20, 24], [16, 20, 24], [16, 20, 24])
    split = file.model_copy(update={"rungs": (*file.rungs, file.rungs[0].model_copy(update={"hidden_dims": (24,)}))})
    assert plan_findings(plan_ladder(split)) == []


def test_a_target_beyond_all_that_was_ever_checked_is_doubted() -> None:
    """Delphi's forecast at 333 times its ladder is the farthest; 1e14 is 417 times the largest of four budgets."""
    assert plan_findings(planned(*[[16, 20, 24]] * 4, target=7e13)) == []
    (far,) = plan_findings(planned(*[[16, 20, 24]] * 4, target=1e14))
    assert (far.code, far.where) == ("far-target", "target")
    assert far.message.startswith("417x")


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
    halved, outside, _narrowest = plan_findings(plan_ladder(LadderFile.model_validate(whole)))
    assert (outside.code, outside.where) == ("unusual-width", "3e22/2048")
    assert outside.message.startswith("1280 tokens per parameter")
    assert (halved.code, halved.where) == ("recipe", "3e22/2048")
    assert halved.message.startswith("batch 16384 is halved to 8192")
