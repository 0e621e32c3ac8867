"""Entries: what their file says, what they will cost, and whether a submission is what its entry gives."""

from pathlib import Path
from typing import Any

import pytest
from command_line import assert_refused, marin_scale
from submission_factory import seed_document, submission, submission_document

from marin_scaling.accelerators import machine
from marin_scaling.errors import DocumentError, UsageError
from marin_scaling.recipe.model_shape import WITH_LM_HEAD, training_flops
from marin_scaling.speedrun.entry import Entry, entry_plan, read_entry, run_info, run_info_text
from marin_scaling.speedrun.from_runs import confirmation
from marin_scaling.speedrun.submission import Author, Submission, write_submission
from marin_scaling.speedrun.track import Track
from marin_scaling.speedrun.train_entry import RulesBroken, train_entry

ROOT = Path(__file__).parents[3]
ENTRY = Entry(
    name="Llama/1.5B_x",
    track="h100",
    author=Author(name="Ada"),
    recipe="delphi",
    budget_flops=1e20,
    hidden_dim=1024,
    trials=2,
    seeds=(0, 1),
)


def info(**changes: Any) -> dict[str, Any]:
    """What is said of that entry."""
    tracks = {"h100": Track(name="h100", title="x")}
    asked: dict[str, Any] = {
        "machine": machine("h100", count=8),
        "tracks": tracks,
        "price_per_chip_hour": 3.6,
        "folder": Path("nowhere"),
    }
    return run_info(ENTRY, entry_plan(ENTRY), **{"price_per_chip_hour": 3.6} | asked | changes)


def test_time_and_cost_follow_from_flops_peak_and_mfu() -> None:
    """At half of 8 x 989.5 TFLOP/s, and at a fifth; an H100 for 3.6 dollars an hour is .001 a second."""
    plan, found = entry_plan(ENTRY), info()
    flops = training_flops(plan.shape, tokens=plan.trained_tokens, convention=WITH_LM_HEAD)
    assert found["model_flops"] == flops
    assert found["model_flops_of_all_seeds"] == 2 * flops
    assert found["machine"]["seconds"] == pytest.approx({f"mfu {mfu}": flops / mfu / (8 * 989.5e12) for mfu in (0.5, 0.2)})
    assert found["machine"]["us_dollars"]["mfu 0.5"] == pytest.approx(0.008 * found["machine"]["seconds"]["mfu 0.5"])
    assert "8 x h100, 989.5 TFLOP/s each, 7916 TFLOP/s together (dense)" in run_info_text(found)


def test_text_that_is_not_here_is_a_warning_before_training(tmp_path: Path) -> None:
    """With its place; text that is here gives none."""
    (tmp_path / "held.jsonl").write_text("x")
    places = {"train": {"files": f"{tmp_path}/train-*.jsonl"}, "validation": {"held": {"files": f"{tmp_path}/held.jsonl"}}}
    entry = Entry.model_validate(ENTRY.model_dump() | {"data": {"source": "web", "tokenizer": "bytes", **places}})
    found = run_info(entry, entry_plan(entry), machine=None, tracks={}, price_per_chip_hour=None, folder=tmp_path)
    told = [each["message"] for each in found["findings"] if each["where"] == "data"]
    assert [message.partition(":")[0] for message in told] == [f"{tmp_path}/train-*.jsonl"]


def test_without_a_machine_there_is_no_time() -> None:
    """And it says how one is named."""
    found = info(machine=None)
    assert found["machine"] is None
    assert "--hardware" in run_info_text(found)


def test_a_limit_that_is_broken_on_paper_is_told_before_anything_is_trained() -> None:
    """FLOPs, parameters and tokens are known; seconds are not."""
    track = Track(name="h100", title="x", limits={"model_flops": 1e19, "parameters": 1.0, "seconds": 1.0})
    found = info(tracks={"h100": track}, machine=None)
    assert [each["where"] for each in found["findings"]] == ["model_flops", "parameters"]
    assert "error: model_flops: " in run_info_text(found)


@pytest.mark.parametrize(
    ("rules", "where"),
    [
        ({"seeds_at_least": 3}, "seeds"),
        ({"data_name": "fineweb-edu"}, "data.name"),
        ({"evaluation_name": "paloma/c4_en"}, "evaluation.name"),
        ({"hardware": ("v5p",)}, "compute.hardware.kind"),
        ({"chips_at_most": 1}, "compute.hardware.chips"),
        ({"limits": {"seconds": 1.0}}, "seconds"),
    ],
)
def test_every_rule_that_is_decided_before_training_is_applied_before_it(rules: dict[str, Any], where: str) -> None:
    """Seeds, text, machine, and a time that even an MFU of 1 would exceed."""
    found = info(tracks={"h100": Track(name="h100", title="x", **rules)})
    assert [(each["severity"], each["where"]) for each in found["findings"]] == [("error", where)]
    assert found["rules"]


def test_a_mistyped_track_is_an_error_that_names_the_nearest_one() -> None:
    """In a repository without any track it is a warning, because nothing can be mistyped."""
    (found,) = info(tracks={"h-100": Track(name="h-100", title="x")})["findings"]
    assert (found["severity"], found["where"]) == ("error", "track")
    assert "speedruns/tracks/h100.yaml" in found["message"]
    assert "did you mean h-100" in found["message"]
    assert [each["severity"] for each in info(tracks={})["findings"]] == ["warning"]


def test_a_name_that_a_submission_has_is_named_before_training(tmp_path: Path) -> None:
    """It breaks no rule of the track, but `run` never overwrites a submission."""
    taken = write_submission(tmp_path, submission(name=ENTRY.name))
    (found,) = info(folder=tmp_path)["findings"]
    assert (found["severity"], found["where"]) == ("warning", "name")
    assert str(taken) in found["message"]


@pytest.mark.parametrize(("hardware", "hint"), [(("cpu",), "--hardware cpu --peak"), (("v5p", "cpu"), "--hardware v5p")])
def test_the_machine_that_info_proposes_is_one_of_the_track(hardware: tuple[str, ...], hint: str) -> None:
    """A CPU needs a peak, which the hardware table does not have."""
    assert hint in run_info_text(info(machine=None, tracks={"h100": Track(name="h100", title="x", hardware=hardware)}))


def test_the_runs_of_an_entry_lie_in_a_folder_of_its_own() -> None:
    """In letters that every file system has."""
    assert ENTRY.runs_folder == "speedrun-llama-1-5b-x"


def test_a_submitted_entry_breaks_no_rule_but_does_not_run_again() -> None:
    shown = marin_scale("speedrun", "info", "speedruns/entries/cpu/dense-24.yaml", cwd=ROOT)
    assert shown.returncode == 0
    assert "speedruns/cpu/dense-24/submission.json" in shown.stdout
    with pytest.raises(RulesBroken):
        train_entry(ROOT / "speedruns" / "entries" / "cpu" / "dense-24.yaml", to=ROOT / "speedruns")


@pytest.mark.parametrize(("name", "parts"), [("cpu", ["--peak", "--count"]), ("h10", ["h100", "--peak"])])
def test_a_machine_without_a_known_peak_is_refused_with_the_nearest_ones(name: str, parts: list[str]) -> None:
    """A CPU is a chip whose peak has to be stated; the table of all chips is not printed."""
    done = marin_scale("speedrun", "info", "speedruns/entries/cpu/dense-24.yaml", "--hardware", name, cwd=ROOT)
    assert_refused(done, f"--hardware {name}", *parts)
    assert "tpu7x" not in done.stderr
    assert "unknown chip" not in done.stderr or name != "cpu"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ("seeds: [1, 1]", "1, 1"),
        ("budget: 3", "unknown key"),
        ("hidden_dim: 0", "hidden_dim: input should be greater than 0"),
        ("data: {source: mine}", "needs train"),
        ("author: {name: Ada, url: 'javascript:x'}", "author.url"),
    ],
)
def test_an_entry_that_is_malformed_is_refused_with_line_and_key(tmp_path: Path, changed: str, reason: str) -> None:
    """Before anything is trained."""
    key = changed.partition(":")[0]
    whole = {
        "name": "name: a/b",
        "track": "track: cpu",
        "author": "author: {name: Ada}",
        "recipe": "recipe: quickstart",
        "budget_flops": "budget_flops: 1.0e+10",
        "hidden_dim": "hidden_dim: 12",
        "trials": "trials: 3",
    } | {key: changed}
    path = tmp_path / "entry.yaml"
    path.write_text("\n".join(whole.values()))
    with pytest.raises(DocumentError) as error:
        read_entry(path)
    assert f"{path}, line " in error.value.what
    assert reason in error.value.what


def with_losses(*losses: float, **changes: Any) -> Submission:
    """A submission of these losses, a seed each."""
    return submission(seeds=[seed_document(seed=seed, bits_per_byte=loss) for seed, loss in enumerate(losses)], **changes)


@pytest.mark.parametrize(
    ("shift", "confirmed"), [(0.0, True), (0.0057, True), (-0.0057, True), (0.0058, False), (-0.0058, False)]
)
def test_the_means_may_differ_by_the_tolerance_over_the_root_of_the_seeds(shift: float, confirmed: bool) -> None:
    """0.01 over the root of three is 0.00577, in both directions; no seed alone is outside."""
    found = confirmation(with_losses(1.0 + shift, 1.02 + shift, 1.1 + shift), with_losses(1.0, 1.02, 1.1), tolerance=0.01)
    assert found.confirmed is confirmed
    assert ("OUTSIDE" in found.sentence.splitlines()[-1]) is not confirmed
    assert "OUTSIDE" not in "".join(found.sentence.splitlines()[:-1])


def test_one_false_seed_is_refused_however_far_the_seeds_lie_apart() -> None:
    """Named with the claimed and the retrained loss."""
    found = confirmation(with_losses(2.1108, 2.3383, 2.4167), with_losses(2.3108, 2.3383, 2.4167), tolerance=0.016)
    assert not found.confirmed
    seed, *_, mean = [line for line in found.sentence.splitlines() if "OUTSIDE" in line]
    assert all(part in seed for part in ("seed 0", "2.110800", "2.310800", "-0.200000", "0.016"))
    assert "mean" in mean


def test_two_false_seeds_that_cancel_in_the_mean_are_both_named() -> None:
    """The mean is reproduced, the seeds are not."""
    found = confirmation(with_losses(0.9, 1.2), with_losses(1.0, 1.1), tolerance=0.016)
    outside = [line[:10].strip() for line in found.sentence.splitlines() if "OUTSIDE" in line]
    assert (found.confirmed, outside) == (False, ["seed 0", "seed 1"])


def trained_with(**config: Any) -> dict[str, Any]:
    """Return the factory's training with this configuration."""
    return {**submission_document()["training"], "config": config}


def test_a_submission_that_is_not_that_of_its_entry_is_not_confirmed() -> None:
    """The key is named with both values, whatever the loss; a missing value is one of them."""
    claimed = with_losses(1.0, 1.02, training=trained_with(learning_rate=0.01, **{"\x1b[2J": 1}))
    other = with_losses(1.0, 1.02, track="other", training=trained_with(learning_rate=0.02))
    found = confirmation(claimed, other, tolerance=0.016)
    assert not found.confirmed
    assert found.differs == {
        "track": (claimed.track, "other"),
        "training.config.learning_rate": (0.01, 0.02),
        "training.config.\x1b[2J": (1, None),
    }
    (said,) = [line for line in found.sentence.splitlines() if "training.config.learning_rate" in line]
    assert all(value in said for value in ("0.01", "0.02"))
    assert "\x1b" not in found.sentence


@pytest.mark.parametrize("again", [(1.0,), (1.0, 1.0, 1.0)])
def test_other_seeds_are_not_compared(again: tuple[float, ...]) -> None:
    """Nor a single one."""
    with pytest.raises(UsageError, match="seeds 0, 1; its entry has"):
        confirmation(with_losses(1.0, 1.0), with_losses(*again), tolerance=0.016)


def test_a_seed_that_is_submitted_twice_is_not_compared() -> None:
    """Its better result would count in the mean, and only one would be compared."""
    twice = submission(seeds=[seed_document(seed=seed, bits_per_byte=loss) for seed, loss in ((0, 0.5), (0, 1.0), (1, 1.1))])
    with pytest.raises(UsageError):
        confirmation(twice, with_losses(1.0, 1.1), tolerance=0.016)


def test_runs_of_another_trainer_are_compared_by_their_means() -> None:
    """Seed by seed they differ, since another trainer draws other weights and batches from a seed."""
    found = confirmation(with_losses(1.005, 1.003, 1.0), with_losses(1.0, 1.003, 1.005), tolerance=0.001, one_order=False)
    assert found.confirmed
    assert not confirmation(with_losses(1.005, 1.003, 1.0), with_losses(1.0, 1.003, 1.005), tolerance=0.001).confirmed


@pytest.mark.parametrize(("gain", "confirmed"), [(0.035, True), (0.036, False)])
def test_the_noise_of_seeds_bounds_the_difference_of_means(gain: float, confirmed: bool) -> None:
    """Means of three losses with a deviation of .01 may differ by t(2, .975) .01 sqrt(2 / 3) = .0351 and the tolerance."""
    again = (1.99, 2.0, 2.01)
    claimed = tuple(loss - gain for loss in again)
    found = confirmation(with_losses(*claimed), with_losses(*again), tolerance=0.0005, one_order=False)
    assert found.confirmed is confirmed


def test_claimed_losses_that_scatter_do_not_widen_the_tolerance() -> None:
    """Their author could spread them, with a false mean."""
    found = confirmation(with_losses(1.8, 1.95, 2.1), with_losses(1.999, 2.0, 2.001), tolerance=0.0005, one_order=False)
    assert not found.confirmed
    assert "OUTSIDE" in found.sentence


def test_seeds_that_scatter_widely_confirm_nothing() -> None:
    found = confirmation(with_losses(1.0, 1.2), with_losses(1.2, 1.0), tolerance=0.001, one_order=False)
    assert not found.confirmed


def test_what_logs_lack_is_not_compared() -> None:
    """Digests of data, for example; what both have is."""
    retrained = with_losses(1.0, 1.001)
    lacking = retrained.model_dump(exclude_none=True)
    del lacking["data"]["digest"]
    lacking["absent"] = {**lacking.get("absent", {}), "data.digest": "not logged"}
    claimed = Submission.model_validate(lacking)
    assert confirmation(claimed, retrained, tolerance=0.002, one_order=False).confirmed
    assert not confirmation(claimed, retrained, tolerance=0.002).confirmed
