"""A ladder file says what is trained; what it gets wrong is named with file, line and key."""

from pathlib import Path

import pytest

from marin_scaling.errors import LadderFileError, RecipeError, StorageError
from marin_scaling.ladder.config import read_ladder_file
from marin_scaling.ladder.fit_check import training_memory_bytes
from marin_scaling.ladder.plan import ladder_document, ladder_table, plan_ladder, plan_target

GOOD = """\
name: tiny
recipe: quickstart
rungs:
  - {budget_flops: 1e11, hidden_dims: [16, 24]}
  - {budget_flops: 2e11, hidden_dims: [16, 24]}
target: {budget_flops: 1e12}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "tiny.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("recipe: quickstart", "recipe: quickstart\nbudgets: 3", "line 3: budgets: unknown key"),
        ("budget_flops: 2e11", "budget_flops: -2e11", r"line 5: rungs.1.budget_flops: input should be greater than 0"),
        ("budget_flops: 1e11,", "budget_flops: .nan,", "line 4: rungs.0.budget_flops: input should be a finite number"),
        ("budget_flops: 1e11,", "budget_flops: lots,", "line 4: rungs.0.budget_flops: input should be a valid number"),
        (
            "target: {budget_flops: 1e12",
            "target: {budget_flops: 2e11",
            "target: its budget_flops 2e11 .* 2e11",
        ),
        ("hidden_dims: [16, 24]}\n  - {budget_flops: 2e11, ", "hidden_dims: []}\n  - {budget_flops: 2e11, ", "line 4"),
        ("target: {budget_flops: 1e12}", "", "target: field required"),
        ("name: tiny", "name: ../tiny", "line 1: name"),
        ("rungs:", "rungs: [", "is not YAML"),
        ("rungs:", "hardware: {storage: 'memory://here'}\nrungs:", "line 3: hardware.storage: memory://here .* one process"),
        ("rungs:", "hardware: {storage: 'file://here'}\nrungs:", "file://here is a different folder"),
    ],
)
def test_a_mistake_is_named_with_its_line_and_key(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    """One clear sentence a mistake."""
    assert old in GOOD
    with pytest.raises(LadderFileError, match=sentence) as caught:
        read_ladder_file(write(tmp_path, GOOD.replace(old, new)))
    assert "tiny.yaml" in caught.value.what


@pytest.mark.parametrize("wrong", ["the data stay", "[the data stay]", "{text: the data stay}"])
def test_wrong_assumptions_are_answered_with_their_keys(tmp_path: Path, wrong: str) -> None:
    """A sentence, a list of sentences, and a mapping outside of a list."""
    with pytest.raises(LadderFileError, match=r"line 8: promise\.assumptions: .*text.*if_false"):
        read_ladder_file(write(tmp_path, GOOD.rstrip() + f"\npromise:\n  assumptions: {wrong}\n"))


def test_of_many_faults_an_unknown_key_is_named_first(tmp_path: Path) -> None:
    """Wrong values before it in the file do not hide it."""
    bad = "".join(f"  - {{budget_flops: -{number}, hidden_dims: [8]}}\n" for number in range(1, 20))
    with pytest.raises(LadderFileError) as caught:
        read_ladder_file(write(tmp_path, GOOD.replace("rungs:\n", f"rungs:\n{bad}") + "colour: red\n"))
    assert "colour" in caught.value.lines[0]


def test_a_file_of_another_name_than_the_ladders_is_refused(tmp_path: Path) -> None:
    """A copy whose name was forgotten would mix its runs with those of the first ladder."""
    with pytest.raises(LadderFileError, match=r"tiny\.yaml, line 2: name: 'other' .* 'tiny'"):
        read_ladder_file(write(tmp_path, "recipe: quickstart\nname: other" + GOOD.split("recipe: quickstart")[1]))


@pytest.mark.parametrize("text", ["", "just words", "- a\n- b"])
def test_a_file_that_is_no_table_is_refused(tmp_path: Path, text: str) -> None:
    """Empty files, text and lists are not ladders."""
    with pytest.raises(LadderFileError, match="does not hold a ladder"):
        read_ladder_file(write(tmp_path, text))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """The error names the path."""
    with pytest.raises(StorageError, match=r"nowhere\.yaml"):
        read_ladder_file(tmp_path / "nowhere.yaml")


def test_rungs_are_every_budget_width_and_seed(tmp_path: Path) -> None:
    """Two budgets, two widths and two seeds are eight rungs, cheapest first."""
    ladder = plan_ladder(read_ladder_file(write(tmp_path, GOOD + "seeds: [0, 1]\n")))
    assert [(rung.plan.budget_flops, rung.plan.shape.hidden_dim, rung.seed) for rung in ladder.rungs] == [
        (budget, width, seed) for budget in (1e11, 2e11) for width in (16, 24) for seed in (0, 1)
    ]
    assert ladder.extrapolation == 5


def test_the_table_has_a_line_for_each_rung(tmp_path: Path) -> None:
    """Head and rungs; after a blank line the total, and what is doubtful about two budgets of two widths."""
    rungs, below = ladder_table(plan_ladder(read_ladder_file(write(tmp_path, GOOD)))).split("\n\n")
    assert len(rungs.splitlines()) == 1 + 4
    assert "5x the largest rung" in below
    assert below.count("\nwarning: ") == 3


def test_a_rung_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    """Nothing is dropped: a width too wide for its budget is refused."""
    with pytest.raises(RecipeError):
        plan_ladder(read_ladder_file(write(tmp_path, GOOD.replace("[16, 24]", "[16, 33]"))))


def test_the_target_takes_the_width_nearest_to_the_optimum(tmp_path: Path) -> None:
    """Nearest in ratio among the recipe's widths, at the target's budget."""
    file = read_ladder_file(write(tmp_path, GOOD))
    plan = plan_target(file, compute_optimal_params=50_000)
    assert plan.shape.hidden_dim == 32  # 49,376 parameters
    assert plan.budget_flops == 1e12


def test_a_target_without_enough_text_takes_the_nearest_size_that_has(tmp_path: Path) -> None:
    """If one lies in the interval of the optimum."""
    file = read_ladder_file(write(tmp_path, GOOD))
    nearest, wider = (plan_target(file, compute_optimal_params=size) for size in (50_000, 80_000))
    assert wider.shape.hidden_dim > nearest.shape.hidden_dim
    for interval, found in (((40_000.0, 100_000.0), wider), ((40_000.0, 60_000.0), nearest), (None, nearest)):
        plan = plan_target(file, compute_optimal_params=50_000, params_interval=interval, tokens_at_most=wider.trained_tokens)
        assert plan.shape == found.shape


DELPHI = """\
name: tiny
recipe: delphi
rungs:
  - {budget_flops: 3e18}
  - {budget_flops: 9e18, sizes: 4}
  - {budget_flops: 3e19, sizes: 1}
target: {budget_flops: 1e23, batch_size: 2048}
"""


def test_widths_that_are_not_named_are_those_that_the_recipe_finds_sensible(tmp_path: Path) -> None:
    """All of them, or so many from the narrowest to the widest."""
    widths: dict[float, list[int]] = {}
    for rung in plan_ladder(read_ladder_file(write(tmp_path, DELPHI))).rungs:
        widths.setdefault(rung.plan.budget_flops, []).append(rung.plan.shape.hidden_dim)
    assert widths == {3e18: [512, 640, 768, 896, 1024], 9e18: [512, 896, 1280, 1664], 3e19: [768]}


def test_more_sizes_than_the_recipe_has_are_refused(tmp_path: Path) -> None:
    """With both numbers."""
    text = DELPHI.replace("sizes: 4", "sizes: 40")
    with pytest.raises(RecipeError, match=r"rungs\.1: the recipe 'delphi' has 10 sensible widths at 9e18 FLOPs; 40"):
        plan_ladder(read_ladder_file(write(tmp_path, text)))


def test_sizes_and_widths_are_not_both_chosen(tmp_path: Path) -> None:
    """One of them has to go."""
    text = DELPHI.replace("sizes: 4", "sizes: 4, hidden_dims: [512]")
    with pytest.raises(LadderFileError, match=r"line 5: rungs\.1: hidden_dims and sizes both choose the widths"):
        read_ladder_file(write(tmp_path, text))


def test_the_published_target_of_1e23_follows_from_its_optimal_size_and_batch(tmp_path: Path) -> None:
    """24.4B parameters are Delphi's optimum by its own runs; the run had 25.0B, 51 layers and 74,884 steps."""
    plan = plan_target(read_ladder_file(write(tmp_path, DELPHI)), compute_optimal_params=24.4e9)
    assert (plan.shape.hidden_dim, plan.shape.num_layers, plan.batch_size, plan.train_steps) == (5376, 51, 2048, 74884)


def test_a_target_that_no_width_can_make_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    """Its batch is named, because that is what a person wrote."""
    text = GOOD.replace("target: {budget_flops: 1e12}", "target: {budget_flops: 1e12, batch_size: 100000000}")
    assert text != GOOD
    with pytest.raises(RecipeError, match=r"target: no width .* makes a run of 1e12 FLOPs in batches of 100000000"):
        plan_ladder(read_ladder_file(write(tmp_path, text)))


def test_a_run_that_two_lines_mean_is_refused(tmp_path: Path) -> None:
    """One names its widths, the other leaves them to the recipe."""
    text = DELPHI.replace("  - {budget_flops: 9e18", "  - {budget_flops: 3e18, hidden_dims: [640]}\n  - {budget_flops: 9e18")
    with pytest.raises(RecipeError, match="rungs: width 640 occurs twice at 3e18 FLOPs"):
        plan_ladder(read_ladder_file(write(tmp_path, text)))


def test_a_price_without_a_speed_has_no_cost_until_a_rung_is_recorded(tmp_path: Path) -> None:
    """The plan says what would make it known."""
    ladder = plan_ladder(read_ladder_file(write(tmp_path, GOOD + "hardware: {cost_per_hour: 98}\n")))
    assert "cost" not in ladder_document(ladder)["total"]
    assert "sustained_flops_per_second" in ladder_table(ladder)


def test_the_cost_of_rungs_and_target_is_said(tmp_path: Path) -> None:
    """1e12 FLOPs at 1e9 a second are 1000 seconds."""
    text = GOOD + "hardware: {cost_per_hour: 36, sustained_flops_per_second: 1e9}\n"
    table = ladder_table(plan_ladder(read_ladder_file(write(tmp_path, text))))
    assert "At 36 an hour: 6.0" in table
    assert "10.00 for the target." in table


def test_several_devices_share_the_memory_of_a_run(tmp_path: Path) -> None:
    """Each holds its part, and the table says of how many."""
    text = GOOD + "hardware: {per_run: {gpus: 2}}\n"
    alone, shared = (ladder_table(plan_ladder(read_ladder_file(write(tmp_path, each)))) for each in (GOOD, text))
    assert "on each of 2 devices in float32" in shared
    plan = plan_ladder(read_ladder_file(write(tmp_path, GOOD))).rungs[0].plan
    assert training_memory_bytes(plan, devices=2) == training_memory_bytes(plan) / 2
    assert "on one device in float32" in alone


def test_each_rung_has_its_flops_its_time_and_its_cost(tmp_path: Path) -> None:
    """Where the file says how fast and how dear the hardware is; they add up to the totals."""
    text = GOOD + "hardware: {sustained_flops_per_second: 1e8, cost_per_hour: 36}\n"
    head, *rungs = ladder_table(plan_ladder(read_ladder_file(write(tmp_path, text)))).split("\n\n")[0].splitlines()
    assert head.split()[-2:] == ["time", "cost"]
    ladder = plan_ladder(read_ladder_file(write(tmp_path, text)))
    plans = [rung.plan for rung in ladder.rungs]
    assert [row.split()[-1] for row in rungs] == [f"{plan.flops / 1e8 / 100:,.2f}" for plan in plans]
    assert all(len(row) <= 80 for row in rungs)
    document = ladder_document(ladder)
    assert [rung["flops"] for rung in document["rungs"]] == [plan.flops for plan in plans]
    assert document["total"]["seconds"] == pytest.approx(sum(plan.flops for plan in plans) / 1e8)
    assert document["target"]["extrapolation"] == 5


def test_all_rungs_that_cannot_be_made_are_named_at_once(tmp_path: Path) -> None:
    """One error has a line for each."""
    with pytest.raises(RecipeError) as refused:
        plan_ladder(read_ladder_file(write(tmp_path, GOOD.replace("[16, 24]", "[16, 33]"))))
    assert len(refused.value.lines) == GOOD.count("[16, 24]")
    assert all("33" in line for line in refused.value.lines)
