"""Submissions from logs of Levanter's runs elsewhere: what is read, and what is refused. `test_train_lm` reads a real log."""

import json
from pathlib import Path
from typing import Any

import pytest

from marin_scaling.errors import DocumentError, MarinScalingError, UsageError
from marin_scaling.run.trackers import links_among
from marin_scaling.speedrun.from_logs import is_log, submission_from_logs
from marin_scaling.speedrun.submission import Author, Submission
from marin_scaling.speedrun.submit import submit_runs
from marin_scaling.speedrun.track import Track

CONFIG: dict[str, Any] = {
    "data": {"tokenizer": "gpt2", "train_weights": {"web": 1.0, "c4_en": 0.0}},
    "model": {"hidden_dim": 64, "max_seq_len": 128},
    "optimizer": {"learning_rate": 0.01},
    "trainer": {"seed": 0, "train_batch_size": 16, "num_train_steps": 100},
    "train_seq_len": None,
}
SUMMARY: dict[str, Any] = {
    "parameter_count": 50_000,
    "throughput/total_tokens": 16 * 128 * 100,
    "throughput/total_gflops": 60.0,
    "throughput/device_kind": "NVIDIA H100 80GB HBM3",
    "num_devices": 8,
    "global_step": 99,
    "eval/paloma/c4_en/bpb": 1.25,
    "eval/paloma/wiki/bpb": 1.5,
}
TRACK = Track(name="t", title="T", evaluation_name="paloma/c4_en")


def log(folder: Path, *, summary: dict[str, Any] | None = None, **sections: Any) -> str:
    """A replica of a run's W&B log, with these sections of the configuration and these values instead."""
    path = folder / "tracker_metrics.jsonl"
    folder.mkdir()
    document = {"config": {**CONFIG, **sections}, "summary": {**SUMMARY, **(summary or {})}}
    path.write_text(json.dumps(document) + "\n")
    return str(path)


def made(*places: str, rules: Track | None = TRACK, **more: Any) -> Submission:
    about: dict[str, Any] = {"name": "ada/a", "track": "t", "author": Author(name="Ada"), "description": "", "trials": 3}
    return submission_from_logs(places, rules=rules, **about, **more)


def test_figures_are_those_of_the_log(tmp_path: Path) -> None:
    """The loss is that of the track's held-out text; FLOPs are Levanter's count."""
    found = made(log(tmp_path / "a"))
    assert found.compute.model_flops == 60e9
    assert found.counted_flops == pytest.approx(60e9)
    assert (found.data.name, found.data.trained_tokens) == ("web", 204_800)
    assert (found.evaluation.name, found.seeds[0].bits_per_byte) == ("paloma/c4_en", 1.25)
    assert found.compute.hardware is not None
    assert (found.compute.hardware.kind, found.compute.hardware.chips) == ("h100", 8)
    assert found.training is not None
    assert (found.training.batch_size, found.training.seq_len, found.training.steps) == (16, 128, 100)


def test_several_seeds_are_one_submission_also_if_one_log_lacks_something(tmp_path: Path) -> None:
    """The reason covers all seeds."""
    trainer = {key: value for key, value in CONFIG["trainer"].items() if key != "seed"}
    found = made(log(tmp_path / "a"), log(tmp_path / "b", trainer=trainer, summary={"eval/paloma/c4_en/bpb": 1.26}))
    assert [each.seed for each in found.seeds] == [0, None]
    assert "seeds.seed" in found.absent
    assert found.bits_per_byte == pytest.approx(1.255)


def test_a_schedule_of_batches_is_kept(tmp_path: Path) -> None:
    stages = [{"start": 0, "value": 8}, {"start": 50, "value": 16}]
    tokens = {"throughput/total_tokens": 128 * 50 * 24}
    found = made(log(tmp_path / "a", trainer={**CONFIG["trainer"], "train_batch_size": stages}, summary=tokens))
    assert found.training is not None
    assert found.training.windows * 128 == found.data.trained_tokens


def test_a_configuration_adds_what_the_log_lacks(tmp_path: Path) -> None:
    """Also where the log has the key without a value."""
    given = tmp_path / "run.yaml"
    given.write_text("train_seq_len: 64\ndata: {tokenizer: other}\n")
    tokens = {"throughput/total_tokens": 16 * 64 * 100}
    found = made(log(tmp_path / "a", summary=tokens), config=given)
    assert found.training is not None
    assert (found.training.seq_len, found.data.tokenizer) == (64, "gpt2")


@pytest.mark.parametrize(
    ("summary", "sections", "named"),
    [
        ({"global_step": 49}, {}, "50 of 100"),
        ({"parameter_count": None}, {}, "parameter_count"),
        ({"eval/paloma/c4_en/bpb": "NaN"}, {}, "bits per byte"),
        ({}, {"data": {"tokenizer": "passthrough", "train_weights": {"web": 1.0}}}, "passthrough"),
        ({}, {"data": {"tokenizer": "gpt2", "train_weights": {"web": 0.5, "code": 0.5}}}, "training text"),
    ],
)
def test_what_a_log_lacks_is_named(summary: dict[str, Any], sections: dict[str, Any], named: str, tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=named):
        made(log(tmp_path / "a", summary=summary, **sections))


def test_a_given_text_may_not_contradict_the_log(tmp_path: Path) -> None:
    """Otherwise a log of other data would enter the track of these."""
    with pytest.raises(UsageError, match=r"web.*finer"):
        made(log(tmp_path / "a"), data="finer")


def test_a_file_that_is_no_log_has_one_problem(tmp_path: Path) -> None:
    with pytest.raises(DocumentError) as error:
        made(log(tmp_path / "a", summary=dict.fromkeys(SUMMARY), trainer={}))
    assert len(error.value.lines) == 1


def test_a_problem_of_many_logs_is_one_line(tmp_path: Path) -> None:
    """With the first of them and the number of the others."""
    places = [log(tmp_path / str(number), summary={"parameter_count": None}) for number in range(9)]
    with pytest.raises(DocumentError) as error:
        made(*places)
    (line,) = error.value.lines
    assert all(part in line for part in (places[0], "6 more", "parameter_count"))


def test_all_missing_places_are_named_at_once() -> None:
    """A file name without a slash, too, which cannot begin a digest."""
    with pytest.raises(UsageError) as error:
        submit_runs(["nothing.wandb", "22890dfc", "logs/none"], name="ada/a", track="t", author="Ada")
    assert [line.split()[0] for line in error.value.lines] == ["nothing.wandb", "logs/none"]


def test_held_out_texts_without_a_track_that_chooses_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="c4_en"):
        made(log(tmp_path / "a"), rules=None)


def test_runs_of_several_settings_are_refused_with_both_values(tmp_path: Path) -> None:
    places = log(tmp_path / "a"), log(tmp_path / "b", optimizer={"learning_rate": 0.02})
    with pytest.raises(UsageError, match=r"learning_rate.*0\.01.*0\.02"):
        made(*places)


@pytest.mark.parametrize(
    ("key", "sections"),
    [
        ("data/train_weights", {"data": {"tokenizer": "gpt2", "train_weights": {"code": 1.0}}}),
        ("data/tokenizer", {"data": {"tokenizer": "llama", "train_weights": {"web": 1.0}}}),
        ("trainer/z_loss_weight", {"z_loss_weight": 1e-4}),
    ],
)
def test_runs_of_several_texts_or_losses_are_refused(key: str, sections: dict[str, Any], tmp_path: Path) -> None:
    """Sections that are neither model nor optimizer count, too."""
    with pytest.raises(UsageError, match=key):
        made(log(tmp_path / "a"), log(tmp_path / "b", **sections))


def test_a_link_into_another_given_place_is_skipped(tmp_path: Path) -> None:
    """As W&B's links to its latest run and to its logs, which a pattern gives; a link alone is refused."""
    places = [str(Path(log(tmp_path / name)).parent) for name in ("a", "b")]
    links = {"latest-run": tmp_path / "b", "debug.log": tmp_path / "b" / "tracker_metrics.jsonl"}
    for name, target in links.items():
        (tmp_path / name).symlink_to(target)
    linked = [str(tmp_path / name) for name in links]
    assert links_among([*places, *linked]) == linked
    assert len(made(*places, *linked).seeds) == 2
    with pytest.raises(MarinScalingError, match="link"):
        made(linked[1])


def test_a_run_of_the_store_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "spec.json").write_text("{}")
    assert not is_log(str(tmp_path / "run"))
    assert not is_log("22890dfc")
    assert is_log(log(tmp_path / "a"))
    assert is_log("wandb:ada/runs")
