"""What does not fit into the memory of an accelerator is refused before it is booked."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from marin_scaling.accelerators import ACCELERATORS
from marin_scaling.cli.app import app
from marin_scaling.errors import Finding, LadderFileError, Severity
from marin_scaling.ladder.config import Compute, Hardware, LadderFile, Mesh
from marin_scaling.ladder.fit_check import USABLE_MEMORY, check_fit, roofline, training_memory_bytes
from marin_scaling.ladder.plan import (
    expected_target,
    forbids_training,
    ladder_document,
    plan_findings,
    plan_ladder,
    require_fitting,
)
from marin_scaling.recipe.base import RungPlan
from marin_scaling.recipe.find import find_recipe, usual_plan

SLICE = {"per_run": {"tpu_slice": {"version": "v5p", "topology": "2x2x4"}}}
ONE_CHIP = {"per_run": {"tpu_slice": {"version": "v5p", "topology": "1x1x1"}}}


def ladder(hardware: dict[str, Any], *, recipe: str = "grug-moe-v16", **compute: Any) -> LadderFile:
    rungs = [{"budget_flops": budget} for budget in (3e18, 1e19, 3e19, 9e19)]
    whole = {"name": "large", "recipe": recipe, "rungs": rungs, "target": {"budget_flops": 1e21}}
    return LadderFile.model_validate({**whole, "hardware": hardware, "compute": compute})


def memory(file: LadderFile) -> list[Finding]:
    return [each for each in plan_findings(plan_ladder(file)) if each.code == "memory"]


def test_a_step_beyond_the_memory_of_a_chip_is_an_error_with_both_numbers() -> None:
    """A v5p has 95 GB (Google Cloud's documentation of the chip)."""
    found = memory(ladder(SLICE))[0]
    assert found.severity is Severity.ERROR
    assert "95 GB" in found.message


def test_a_step_that_does_not_fit_by_estimate_fails_a_dry_run() -> None:
    """Of rungs; the target can be trained on other devices."""
    found = [
        each for each in plan_findings(plan_ladder(ladder(SLICE, attention="flash", recompute=True))) if each.code == "memory"
    ]
    assert {(each.severity, each.where == "target", forbids_training(each)) for each in found} == {
        (Severity.WARNING, False, True),
        (Severity.WARNING, True, False),
    }


def test_the_two_dies_of_a_chip_are_two_devices() -> None:
    """A TPU7x has 192 GB and 2,307 TFLOP/s (Google Cloud's documentation); JAX names its dies, and Ray the chip v7x."""
    four = Hardware.model_validate({"per_run": {"tpu_slice": {"version": "v7x", "topology": "2x2x1"}}})
    assert four.per_run.devices == 8
    assert four.chip is not None
    assert four.chip.memory_bytes == 96e9
    plan = find_recipe("delphi").plan(budget_flops=1e20, hidden_dim=1024)
    least = roofline(plan, Compute(precision="bfloat16"), four)
    assert least is not None
    assert least.mfu * least.seconds == pytest.approx(plan.flops / (4 * 2307e12))


def test_the_named_settings_make_everything_fit() -> None:
    """Taken over from the message into the file, they leave no finding."""
    chip = Hardware.model_validate(ONE_CHIP)
    plans = [rung.plan for rung in plan_ladder(ladder(ONE_CHIP)).rungs][:4]
    before = check_fit(plans, Compute(), chip)
    words = before.remedy.removeprefix("fits with ").split(", ")
    named = dict(word.removeprefix("compute.").split(": ") for word in words)
    assert not before.fits
    assert check_fit(plans, Compute.model_validate(named), chip).fits


def test_milder_settings_are_named_first() -> None:
    """If recomputation is enough, no smaller parts of a batch are asked for."""
    plan = find_recipe("quickstart").plan(budget_flops=2.5e12, hidden_dim=64)
    kept, again = (
        training_memory_bytes(plan, Compute(attention="flash", recompute=each), overwrites=True) for each in (False, True)
    )
    between = (kept + again) / 2 / USABLE_MEMORY / ACCELERATORS["t4"].memory_bytes
    shared = Hardware.model_validate({"accelerator": "t4", "per_run": {"gpus": round(between, 6)}})
    assert check_fit([plan], Compute(), shared).remedy == "fits with compute.attention: flash, compute.recompute: true"


def test_a_model_too_large_for_any_setting_needs_more_devices() -> None:
    """The parameters alone fill the chip."""
    plan = find_recipe("delphi").plan(budget_flops=1e23, hidden_dim=5120)
    chip = Hardware.model_validate(ONE_CHIP)
    remedy = check_fit([plan], Compute(), chip).remedy
    assert remedy.startswith("fits on ")
    devices = int(remedy.split()[2])
    rows = {"v5p": ONE_CHIP["per_run"]["tpu_slice"] | {"topology": f"1x1x{devices}"}}
    named = dict(word.removeprefix("compute.").split(": ") for word in remedy.partition(" with ")[2].split(", "))
    assert check_fit(
        [plan], Compute.model_validate(named), Hardware.model_validate({"per_run": {"tpu_slice": rows["v5p"]}})
    ).fits


def test_no_more_devices_are_named_than_batches_can_be_spread_over() -> None:
    """A small batch of another run of the ladder limits them."""
    plan = find_recipe("delphi").plan(budget_flops=1e23, hidden_dim=5120)
    small = find_recipe("delphi").plan(budget_flops=3e18, hidden_dim=512)
    chip = Hardware.model_validate(ONE_CHIP)
    few = replace(small, batch_size=2)
    assert int(check_fit([plan], Compute(), chip).remedy.split()[2]) > 2
    said = check_fit([plan, few], Compute(), chip).remedy
    assert plan.rung_name in said
    assert "up to 2 devices" in said


def test_the_run_that_no_setting_helps_is_named_and_what_helps_the_others() -> None:
    """Without it, the advice holds."""
    large = find_recipe("delphi").plan(budget_flops=1e24, hidden_dim=10240)
    others = [find_recipe("delphi").plan(budget_flops=2e20, hidden_dim=width) for width in (1536, 2048)]
    chip = Hardware.model_validate({"accelerator": "h100", "per_run": {"gpus": 8}})
    plans = [replace(each, batch_size=8) for each in (large, *others)]
    remedy = check_fit(plans, Compute(), chip).remedy
    assert remedy.startswith("no setting makes 1e24/10240 fit")
    advice = remedy.partition("the rest of the ladder fits with ")[2]
    named = dict(word.removeprefix("compute.").split(": ") for word in advice.split(", "))
    assert check_fit(plans[1:], Compute.model_validate(named), chip).fits


def test_a_larger_memory_holds_more() -> None:
    """141 GB of an H200 against 80 of an H100."""
    plans = [rung.plan for rung in plan_ladder(ladder(SLICE)).rungs]
    found = {
        kind: check_fit(plans, Compute(), Hardware.model_validate({"accelerator": kind, "per_run": {"gpus": 64}}))
        for kind in ("h100", "h200")
    }
    assert len(found["h200"].too_large) < len(found["h100"].too_large)


def test_a_part_of_a_gpu_that_is_too_small_is_compared_with_a_whole_one() -> None:
    """More parts would not help: each run has one."""
    plan = find_recipe("delphi").plan(budget_flops=1e20, hidden_dim=1536)
    part = Hardware.model_validate({"accelerator": "h100", "per_run": {"gpus": 0.25}})
    assert check_fit([plan], Compute(), part).remedy.startswith("on a whole h100 it fits")


def test_without_an_accelerator_nothing_is_compared() -> None:
    """A CPU's memory is not in the table."""
    assert memory(ladder({})) == []
    assert "seconds_at_least" not in ladder_document(plan_ladder(ladder({})))["rungs"][0]


@pytest.mark.parametrize(
    "hardware",
    [
        {"accelerator": "abacus", "per_run": {"gpus": 1}},
        {"accelerator": "h100"},
        {"accelerator": "v5p", **ONE_CHIP},
        {"accelerator": "h100", **ONE_CHIP},
        {"accelerator": "v5p", "per_run": {"gpus": 8}},
    ],
)
def test_an_accelerator_is_known_and_named_once(hardware: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="accelerator"):
        Hardware.model_validate(hardware)


@pytest.mark.parametrize("topology", ["0x2x4", "2x0", "2x2x00"])
def test_a_slice_without_chips_is_refused(topology: str) -> None:
    with pytest.raises(ValueError, match="topology"):
        Hardware.model_validate({"per_run": {"tpu_slice": {"version": "v5p", "topology": topology}}})


def test_a_batch_that_cannot_be_spread_is_an_error() -> None:
    """Powers of two over seven GPUs."""
    found = plan_findings(plan_ladder(ladder({"per_run": {"gpus": 7}})))
    assert next(each for each in found if each.code == "batch").severity is Severity.ERROR


def test_a_mesh_is_checked_in_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its product, and what heads, experts, widths and batches cannot be divided by, each with both numbers."""
    slice_of_16 = SLICE["per_run"]["tpu_slice"]
    file = ladder({"per_run": {"tpu_slice": slice_of_16, "mesh": {"data": 3, "model": 3, "expert": 5}}})
    with pytest.raises(LadderFileError) as refused:
        require_fitting(plan_ladder(file))
    sizes = ("45", "16 devices", "a batch of ", "a width of 512", " heads", "64 experts")
    facts = (*sizes, "3 parts (data)", "3 parts (model)", "5 parts (expert)", "15 parts (data x expert)")
    assert [fact for fact in facts if fact not in str(refused.value)] == []
    monkeypatch.chdir(tmp_path)
    path = Path("ladders/large.yaml")
    path.parent.mkdir()
    path.write_text(file.model_dump_json(exclude_unset=True))
    done = CliRunner().invoke(app, ["ladder", str(path), "--dry-run"])
    assert done.exit_code == 1
    shown = " ".join(done.stdout.split())
    assert [fact for fact in facts if fact not in shown] == []


def test_a_dense_model_has_no_experts_to_spread() -> None:
    found = plan_findings(plan_ladder(ladder({"per_run": {"gpus": 8, "mesh": {"expert": 2}}}, recipe="delphi")))
    assert {each.severity for each in found if each.code == "mesh" and each.where != "target"} == {Severity.ERROR}


def test_the_default_of_data_is_the_other_devices() -> None:
    """Written or left out, the plan is the same."""
    meshes = ({"model": 2}, {"data": 8, "model": 2})
    hardware = [{"per_run": {"tpu_slice": SLICE["per_run"]["tpu_slice"], "mesh": mesh}} for mesh in meshes]
    first, second = (plan_findings(plan_ladder(ladder(each, recipe="delphi"))) for each in hardware)
    assert first == second
    assert {each.message for each in first if each.code == "mesh"} == {
        f"5, 7, 9 and 2 more {heads} cannot be spread evenly over 2 parts (model)" for heads in ("heads", "key-value heads")
    }


def test_each_axis_divides_what_is_spread_over_it() -> None:
    """Experts are spread over all axes; with more parts of a batch, a device has fewer sequences."""
    moe = find_recipe("grug-moe-v16").plan(budget_flops=1e19, hidden_dim=1024)
    dense = find_recipe("delphi").plan(budget_flops=1e23, hidden_dim=5120)
    flash = Compute(attention="flash", recompute=True, sequences_at_a_time=1)

    def needed(plan: RungPlan, **axes: int) -> float:
        return training_memory_bytes(plan, flash, devices=16, mesh=Mesh(**axes), overwrites=True)

    assert needed(moe) < needed(moe, expert=4) < needed(moe, data=4)
    assert needed(dense, model=4) < needed(dense)
    assert needed(dense, data=16) == needed(dense)


def test_an_unknown_tpu_is_named() -> None:
    """A misspelled GPU is refused; Ray may know slices that the table does not."""
    hardware = {"per_run": {"tpu_slice": {"version": "v5q", "topology": "2x2x4"}}}
    assert "accelerator" in {each.code for each in plan_findings(plan_ladder(ladder(hardware)))}


def test_recomputation_takes_a_forward_pass_more() -> None:
    """Four passes instead of three: at the peak the time rises by a third, and MFU is at most three quarters."""
    plan = find_recipe("delphi").plan(budget_flops=1e21, hidden_dim=2048)
    found = [
        roofline(plan, Compute(attention="flash", recompute=each), Hardware.model_validate(ONE_CHIP)) for each in (False, True)
    ]
    assert found[0] is not None
    assert found[1] is not None
    assert found[1].seconds == pytest.approx(found[0].seconds * 4 / 3)
    assert found[1].mfu == pytest.approx(0.75)


def test_idle_devices_bound_mfu() -> None:
    """With twice as many chips as sequences half of them have nothing to do."""
    plan = find_recipe("delphi").plan(budget_flops=1e21, hidden_dim=2048)
    chips = {"per_run": {"tpu_slice": {"version": "v5p", "topology": f"1x1x{2 * plan.batch_size}"}}}
    found = roofline(plan, Compute(attention="flash"), Hardware.model_validate(chips))
    assert found is not None
    assert found.mfu == pytest.approx(0.5)


def test_training_is_refused_before_it_begins() -> None:
    with pytest.raises(LadderFileError):
        require_fitting(plan_ladder(ladder(SLICE)))
    require_fitting(plan_ladder(ladder({})))


def test_the_expected_target_is_that_of_recipe_show() -> None:
    planned = plan_ladder(ladder(SLICE, recipe="delphi"))
    assert expected_target(planned) == usual_plan(find_recipe("delphi"), budget_flops=1e21)


def test_a_large_run_takes_its_flops_at_the_peak() -> None:
    """459 TFLOP/s of a v5p; with twice the chips half the time."""
    plan = find_recipe("delphi").plan(budget_flops=1e21, hidden_dim=2048)
    one, two = (
        roofline(
            plan,
            Compute(precision="bfloat16", attention="flash"),
            Hardware.model_validate({"per_run": {"tpu_slice": {"version": "v5p", "topology": f"1x1x{count}"}}}),
        )
        for count in (1, 2)
    )
    assert one is not None
    assert two is not None
    assert one.seconds == pytest.approx(plan.flops / 459e12)
    assert one.mfu == pytest.approx(1)
    assert one.seconds == pytest.approx(2 * two.seconds)


def test_a_tiny_run_is_bound_by_memory() -> None:
    """Its few FLOPs wait for its numbers."""
    plan = find_recipe("quickstart").plan(budget_flops=2.5e12, hidden_dim=64)
    found = roofline(plan, Compute(), Hardware.model_validate({"accelerator": "h100", "per_run": {"gpus": 1}}))
    assert found is not None
    assert found.mfu < 0.2


def test_the_dry_run_ends_with_status_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("ladders/large.yaml")
    path.parent.mkdir()
    path.write_text(ladder(SLICE).model_dump_json(exclude_unset=True))
    done = CliRunner().invoke(app, ["ladder", str(path), "--dry-run"])
    assert done.exit_code == 1
    assert max(map(len, done.stdout.splitlines())) <= 80
