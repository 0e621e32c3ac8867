"""Times, MFU and costs of planned runs, from recorded runs, the file's speed, or the peak of accelerators."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from run_factory import record_of, rung_spec

from marin_scaling.accelerators import ACCELERATORS
from marin_scaling.ladder.config import LadderFile
from marin_scaling.ladder.fit_check import RecordedRun, overlap, speed_of
from marin_scaling.ladder.plan import Ladder, Rung, ladder_document, ladder_table, plan_ladder, time_left
from marin_scaling.run.plan import load_ladder
from marin_scaling.run.store import History, add_run

ONE_CHIP = {"per_run": {"tpu_slice": {"version": "v5p", "topology": "1x1x1"}}}


def planned(hardware: dict[str, Any], *recorded: RecordedRun) -> Ladder:
    rungs = [{"budget_flops": budget, "hidden_dims": [512, 768, 1024]} for budget in (3e18, 9e18)]
    whole = {"name": "large", "recipe": "delphi", "rungs": rungs, "target": {"budget_flops": 1e20}, "hardware": hardware}
    return replace(plan_ladder(LadderFile.model_validate(whole)), recorded=recorded)


def run(*, active_params: float = 1e8, rate: float = 1e9, device: tuple[str, int] = ("cpu", 1), **changes: Any) -> RecordedRun:
    fields: dict[str, Any] = {
        "rung": ("none", 0, 1.0),
        "active_params": int(active_params),
        "flops": 10 * rate,
        "step_seconds": 10.0,
        "wall_seconds": 15.0,
        "ended": 1000.0,
        "device_kind": device[0],
        "device_count": device[1],
    }
    return RecordedRun(**{**fields, **changes})


def recorded_as(ladder: Ladder, *positions: int, **changes: Any) -> list[RecordedRun]:
    """Records of these rungs, one after the other."""
    found = []
    for number, position in enumerate(positions):
        plan, seed = ladder.rungs[position].plan, ladder.rungs[position].seed
        named = {
            "rung": Rung(plan=plan, seed=seed).key,
            "active_params": plan.shape.params_active,
            "ended": 15.0 * (1 + number),
        }
        found.append(run(**{**named, **changes}))
    return found


def test_the_speed_between_two_recorded_sizes_is_interpolated_in_logarithms() -> None:
    """Half way between rates of 1e9 and 4e9 is 2e9; beyond the sizes it stays."""
    ladder = planned({})
    small, middle, _large = sorted({rung.plan.shape.params_active for rung in ladder.rungs})
    plan = next(rung.plan for rung in ladder.rungs if rung.plan.shape.params_active == middle)
    ends = run(active_params=middle / 2, rate=1e9), run(active_params=middle * 2, rate=4e9)
    found = speed_of(ladder.file, ends).time_alone(plan)
    assert found is not None
    assert found.seconds == pytest.approx(plan.flops / 2e9 + 5, rel=1e-6)
    assert found.basis == "recorded"
    beyond = speed_of(ladder.file, [run(active_params=small / 4), run(active_params=small / 2, rate=3e9)])
    assert beyond.time_alone(plan).seconds == pytest.approx(plan.flops / 3e9 + 5, rel=1e-6)


def test_the_mean_number_of_runs_side_by_side_comes_from_their_times() -> None:
    """Two for ten seconds and one for ten; gaps do not count."""
    assert overlap([(0, 10), (0, 10), (10, 20)]) == 1.5
    assert overlap([(0, 10), (1000, 1010)]) == 1.0
    assert overlap([]) == 1.0


def test_runs_side_by_side_share_the_hardware_and_a_target_has_it_alone() -> None:
    """So a ladder takes half the sum of its runs' times if two train at a time."""
    ladder = planned({})
    both = speed_of(ladder.file, [run(), run()])
    plan = ladder.rungs[0].plan
    assert both.time_of(plan).seconds == pytest.approx(both.time_alone(plan).seconds / 2)


@pytest.mark.parametrize(
    ("kind", "devices", "counts"), [("TPU v5", 1, True), ("TPU v5p", 1, True), ("TPU v5", 4, False), ("cpu", 1, False)]
)
def test_only_records_of_the_file_s_accelerators_count(kind: str, devices: int, counts: bool) -> None:
    """A rung that was tried on a CPU tells nothing of a TPU. JAX calls a v5p "TPU v5"."""
    ladder = planned(ONE_CHIP, run(device=(kind, devices)))
    assert ladder.time_of(ladder.rungs[0]).basis == ("recorded" if counts else "peak")


def test_without_an_accelerator_in_the_file_the_newest_machine_counts() -> None:
    """Records of a machine that was given back are no measure of today's."""
    ladder = planned({}, run(device=("NVIDIA H100", 1), ended=1.0, rate=1e14), run(ended=2.0, rate=1e9))
    assert ladder.speed.recorded_range() == (1e9, 1e9)


def test_the_mfu_of_recorded_runs_is_their_share_of_the_peak() -> None:
    """A run at a third of the peak of one v5p has an MFU of a third."""
    peak = ACCELERATORS["v5p"].peak_flops_per_second
    ladder = planned(ONE_CHIP, run(device=("TPU v5", 1), rate=peak / 3))
    assert ladder.time_of(ladder.rungs[0]).mfu == pytest.approx(1 / 3)
    assert "MFU 33% to 33%" in " ".join(ladder_table(ladder).split())


def test_on_accelerators_each_rung_has_its_least_time_and_cost() -> None:
    """From the peak, before any run: the cost is the time at the price of the hardware."""
    ladder = planned({**ONE_CHIP, "cost_per_hour": 36})
    rung = ladder_document(ladder)["rungs"][0]
    assert rung["cost_at_least"] == pytest.approx(rung["seconds_at_least"] / 100)
    assert rung["seconds_at_least"] >= ladder.rungs[0].plan.flops / ACCELERATORS["v5p"].peak_flops_per_second
    assert 0 < rung["mfu_at_most"] <= 1
    assert "min. cost" in ladder_table(ladder)
    assert all(len(line) <= 80 for line in ladder_table(ladder).splitlines())
    assert ladder.frame["cost_at_least"].sum() == pytest.approx(ladder_document(ladder)["total"]["cost_at_least"])


def test_a_ladder_under_way_has_the_time_left_and_its_end() -> None:
    """Two of six rungs are recorded; the four others are left, one after the other."""
    ladder = planned({})
    ladder = replace(ladder, recorded=tuple(recorded_as(ladder, 0, 1)))
    before = datetime.now(UTC)
    document = ladder_document(ladder)
    assert [rung["recorded"] for rung in document["rungs"]] == [True, True, False, False, False, False]
    left = sum(rung["seconds"] for rung in document["rungs"][2:])
    assert document["left"]["seconds"] == pytest.approx(left)
    ends = datetime.fromisoformat(document["left"]["ends_at"])
    assert ends - before == pytest.approx(timedelta(seconds=left), abs=timedelta(minutes=2))
    assert "left for 4 runs" in " ".join(ladder_table(ladder).split())


def test_steps_that_begun_rungs_trained_are_not_left() -> None:
    """Half of the last rung's steps are done."""
    ladder = planned({})
    ladder = replace(ladder, recorded=tuple(recorded_as(ladder, 0, 1, 2, 3, 4)))
    whole = time_left(ladder).seconds
    assert time_left(ladder, done={ladder.rungs[5].key: 0.5}).seconds == pytest.approx(whole / 2)


def test_the_end_is_not_before_that_of_the_longest_rung() -> None:
    """However many of the others train side by side."""
    ladder = planned({})
    done = recorded_as(ladder, 0, 1, 2, 3, 4, ended=15.0)
    document = ladder_document(replace(ladder, recorded=tuple(done)))
    own = ladder.rungs[5].plan.flops / 1e9 + 5
    assert document["left"]["seconds"] == pytest.approx(own)


def test_a_rung_of_several_processes_is_recorded_but_has_no_speed() -> None:
    """Its record has the seconds of the last process only."""
    ladder = planned({})
    ladder = replace(ladder, recorded=tuple(recorded_as(ladder, 0, rate=1e9) + recorded_as(ladder, 1, is_timed=False)))
    assert [ladder.is_recorded(rung) for rung in ladder.rungs[:3]] == [True, True, False]
    assert len(ladder.speed.recorded) == 1


def test_the_file_s_number_of_runs_at_a_time_replaces_the_recorded_one() -> None:
    """Records of runs one by one say nothing of four at a time."""
    assert planned({"runs_at_a_time": 4}, run()).speed.at_a_time == 4


def test_runs_on_parts_of_the_hardware_share_its_price() -> None:
    """Eight runs at a time on one GPU each take an eighth of the hours of all eight."""
    alone, together = (
        planned({"accelerator": "h100", "per_run": {"gpus": 1}, "cost_per_hour": 24, **more})
        for more in ({}, {"runs_at_a_time": 8})
    )
    costs = [ladder_document(each)["total"]["cost_at_least"] for each in (alone, together)]
    assert costs[0] == pytest.approx(8 * costs[1])


def test_the_cost_that_is_left_is_that_of_rungs_without_a_record() -> None:
    """At the price of an hour of all hardware."""
    ladder = planned({"cost_per_hour": 36})
    document = ladder_document(replace(ladder, recorded=tuple(recorded_as(ladder, 0, 1))))
    assert document["left"]["cost"] == pytest.approx(document["left"]["seconds"] / 100)
    assert document["left"]["cost"] < document["total"]["cost"]


def test_a_recorded_rung_has_the_time_that_it_took() -> None:
    """Not the time expected at the speed of all."""
    ladder = planned({"cost_per_hour": 36})
    ladder = replace(ladder, recorded=tuple(recorded_as(ladder, 0, 1, wall_seconds=1234.0, ended=2000.0)))
    assert ladder.time_of(ladder.rungs[0]).seconds == 1234.0 / 2
    assert ladder.time_of(ladder.rungs[0]).cost == pytest.approx(12.34 / 2)


def test_a_size_without_a_record_compiles_anew() -> None:
    """The seconds outside of steps are the most of any run; for a recorded size they are the median of its own."""
    ladder = planned({})
    sizes = sorted({rung.plan.shape.params_active for rung in ladder.rungs})
    runs = [run(active_params=sizes[0], wall_seconds=10.0 + more) for more in (1.0, 2.0, 60.0)]
    speed = speed_of(ladder.file, runs)
    at = {rung.plan.shape.params_active: rung.plan for rung in ladder.rungs}
    assert speed.time_alone(at[sizes[0]]).seconds == pytest.approx(at[sizes[0]].flops / 1e9 + 2)
    assert speed.time_alone(at[sizes[1]]).seconds == pytest.approx(at[sizes[1]].flops / 1e9 + 60)


def test_recorded_rungs_are_read_from_the_store_with_those_of_several_processes_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupted run has the seconds of its last process only, so its speed is not known."""
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(
        "name: tiny\nrecipe: quickstart\nrungs: [{budget_flops: 3e10, hidden_dims: [8, 12]}]\ntarget: {budget_flops: 1e12}\n"
    )
    for seed, seconds in ((0, 10), (1, 3000)):
        spec = rung_spec(seed=seed)
        history = History(spec_digest=spec.digest, rows=[])
        record = record_of(spec, history=history)
        started = datetime.fromisoformat(record.started_at)
        times = {"wall_seconds": 10.0, "step_seconds": 5.0, "finished_at": (started + timedelta(seconds=seconds)).isoformat()}
        add_run(Path("runs"), spec=spec, record=record.model_copy(update=times), history=history)
    found, resumed = sorted(load_ladder("tiny.yaml").plan().recorded, key=lambda run: run.rung[1])
    assert (found.is_timed, resumed.is_timed) == (True, False)
    assert found.flops_per_second == pytest.approx(found.flops / 5)
    assert json.loads(json.dumps(ladder_document(load_ladder("tiny.yaml").plan())))["rungs"][0]["recorded"] is False


def test_a_ladder_whose_only_record_was_interrupted_says_why_no_time_is_known() -> None:
    """The rung is recorded, and its speed is not."""
    ladder = planned({})
    ladder = replace(ladder, recorded=tuple(recorded_as(ladder, 0, is_timed=False)))
    assert "without an interruption" in " ".join(ladder_table(ladder).split())
    assert ladder.frame["recorded"].tolist() == [True] + [False] * 5


def test_a_ladder_without_a_rung_left_has_no_end() -> None:
    """Neither a time of zero nor an end that is now."""
    ladder = planned({})
    assert "left" not in ladder_document(replace(ladder, recorded=tuple(recorded_as(ladder, *range(6)))))
