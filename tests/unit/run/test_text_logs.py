"""Text logs of Megatron-LM and MaxText: values, steps, settings and restarts; contradictions are refused with the line."""

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from outside_factory import LOSS, TOKENS
from text_log_factory import (
    TIME,
    maxtext_log,
    maxtext_settings,
    maxtext_step,
    megatron_evaluation,
    megatron_log,
    megatron_settings,
    megatron_step,
    write,
)

from marin_scaling.errors import RunTableError
from marin_scaling.run.logs import TextLog, read_text_log
from marin_scaling.run.trackers import read_tracked_runs


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of any name."""
    return tmp_path / "slurm-123.out"


def read(path: Path, *lines: str) -> TextLog:
    found = read_text_log(write(path, *lines))
    assert found is not None
    return found


def test_megatron_values_and_steps(path: Path) -> None:
    """The last values of training and of both kinds of evaluation, the name, the tokens and the latest possible start."""
    more = [
        *megatron_evaluation(1000, "2.1E+00", on=" on validation set"),
        *megatron_evaluation(1000, "2.2E+00", on=" on test set"),
    ]
    log = read(path, *megatron_log(run="hero"), *more)
    assert (log.kind, log.name, log.is_named, log.state) == ("megatron", "hero", True, "finished")
    assert log.metrics["lm loss"] == log.metrics["validation lm loss"] == pytest.approx(LOSS)
    assert log.metrics["validation lm loss on validation set"] == 2.1
    assert log.metrics["validation lm loss on test set"] == 2.2
    assert log.metrics["tokens"] == TOKENS
    assert log.last_steps["validation lm loss"] == 1000
    assert log.started_at == datetime.fromisoformat(TIME).replace(tzinfo=UTC) + timedelta(hours=12)  # in the last zone


@pytest.mark.parametrize("prefix", ["0: ", "[default0]:", "2026-06-29T17:48:28Z stdout F ", "(pid=7) \x1b[36m", "  3:   "])
def test_prefixes_of_lines_are_passed_over(path: Path, prefix: str) -> None:
    """Ranks, times, names of processes and colors."""
    assert read(path, *(prefix + line for line in megatron_log())).metrics["validation lm loss"] == pytest.approx(LOSS)


def test_several_validation_sets_have_keys_of_their_own(path: Path) -> None:
    """As with `--multiple-validation-sets`."""
    lines = [
        " validation-0 loss at iteration 1000 | lm loss value: 2.0 |",
        " validation-1 loss at iteration 1000 | lm loss value: 3.0 |",
    ]
    metrics = read(path, *megatron_log(), *lines).metrics
    assert (metrics["validation-0 lm loss"], metrics["validation-1 lm loss"]) == (2.0, 3.0)


def test_a_log_without_settings_has_no_name_and_no_tokens(path: Path) -> None:
    """The name is that of the file."""
    log = read(path, *megatron_log()[8:])
    assert (log.name, log.is_named, log.state) == ("slurm-123", False, "finished")
    assert "tokens" not in log.metrics


def test_maxtext_values_and_steps(path: Path) -> None:
    """Steps count from 0."""
    log = read(path, *maxtext_log())
    assert (log.kind, log.name, log.state, log.started_at) == ("maxtext", "hero-1", "finished", None)
    assert log.metrics["loss"] == log.metrics["eval_loss"] == round(LOSS, 3)
    assert log.metrics["tokens"] == TOKENS
    assert log.last_steps["eval_loss"] == 999


@pytest.mark.parametrize(
    "line",
    [
        "average loss after step=999: eval_step_count=5, eval_loss=2.345678, total_weights=75264.0",
        "Average loss after step=999: step=999, eval_loss=2.345678, total_weights=75264.0",
        "eval metrics after step: 999, loss=2.345678, total_weights=75264.0, step_time_seconds=1.0",
        "Completed eval after train step 999, loss=2.345678, perplexity=10.4, total_weights=75264.0, avg_z_loss=0.000",
    ],
)
def test_evaluations_of_each_version_of_maxtext(path: Path, line: str) -> None:
    """All have the key eval_loss; running averages of an evaluation are not read."""
    running = "Completed eval step: 3, seconds: 1.0, running loss=9.9, running perplexity=9.9"
    assert read(path, maxtext_step(999, 2.4), running, line).metrics["eval_loss"] == 2.345678


def test_the_metrics_file_of_maxtext_is_a_history(path: Path) -> None:
    """JSON lines with the run's name and its steps as floats."""
    file = path.with_name("metrics.jsonl")
    rows = '{"learning/loss": %s, "step": %s, "run_name": "hero"}\n{"eval/avg_loss": %s, "step": %s, "run_name": "hero"}\n'
    file.write_text(rows % (3.0, 0.0, 3.1, 0.0) + rows % (2.0, 999.0, 2.1, 999.0))
    (run,) = read_tracked_runs(str(file))
    assert (run.kind, run.name, run.metrics["eval/avg_loss"], run.last_steps["eval/avg_loss"]) == ("json", "hero", 2.1, 999)


@pytest.mark.parametrize("name", ["run.csv", "run.jsonl", "run", "run.txt"])
def test_the_content_decides_and_not_the_name(tmp_path: Path, name: str) -> None:
    """A text log can have any ending."""
    (run,) = read_tracked_runs(str(write(tmp_path / name, *megatron_log())))
    assert run.kind == "megatron"


@pytest.mark.parametrize(
    "content",
    [
        '{"message": "iteration 100/ 100 | lm loss: 2.0 |"}',
        'note\n"iteration 100/ 100 | lm loss: 2.0 |"',
        "Training epoch 0, iteration 9/9 | lr: 1e-05 | reduced_train_loss: 2.0 | val_loss: 2.9",
        "validation loss at iteration 100 | lm loss value: 2.0 |",
        "nothing",
        "",
    ],
)
def test_other_files_are_no_text_logs(path: Path, content: str) -> None:
    """Quoted lines, evaluations alone, and NeMo 2.0, which repeats the evaluation of an earlier step."""
    assert read_text_log(write(path, content)) is None


def test_a_log_that_ends_early_names_both_steps(path: Path) -> None:
    """So does one of MaxText."""
    assert read(path, *megatron_log(until=700)).state == "stopped at step 700 of 1000"
    assert read(path, *maxtext_log(until=700)).state == "stopped at step 699 of 999"


def test_the_last_line_can_be_before_an_uneven_end(path: Path) -> None:
    """By less than the interval between lines."""
    lines = [megatron_step(step, "2.0E+00", steps=1050) for step in range(100, 1050, 100)]
    assert read(path, *lines).state == "finished"
    assert read(path, *lines[:-1]).state == "stopped at step 900 of 1050"


def test_the_later_lines_of_a_resumed_run_count(path: Path) -> None:
    """From the step to which it went back; evaluations of the earlier attempt are forgotten."""
    again = [*megatron_settings(run="hero"), "  successfully loaded checkpoint from /c [ t 1/1 ] at iteration 500"]
    again += [megatron_step(step, "1.5E+00") for step in range(600, 1001, 100)]
    log = read(path, *megatron_log(until=700), *again, *megatron_evaluation(1000, "1.6E+00"))
    assert (log.metrics["lm loss"], log.metrics["validation lm loss"], log.state) == (1.5, 1.6, "finished")
    assert log.metrics["tokens"] == TOKENS


def test_a_loss_that_became_no_number_is_kept_with_its_step(path: Path) -> None:
    """Megatron-LM leaves it out of the line; MaxText prints it."""
    silent = megatron_step(800, 2).replace(" lm loss: 2 |", " mtp lm loss: 3.0 |")
    log = read(path, *megatron_log(until=700), silent)
    assert (log.last_steps["lm loss"], log.last_steps["grad norm"]) == (700, 800)
    assert math.isnan(read(path, maxtext_step(1, 2.0), maxtext_step(2, "nan")).metrics["loss"])


BAD = {
    "a value changed at one step": ([megatron_step(100, 2.0), megatron_step(100, 1.9)], "2.0"),
    "an evaluation twice": (
        [megatron_step(1000, 2.0), *megatron_evaluation(1000, 2.0), *megatron_evaluation(1000, 1.9)],
        "1.9",
    ),
    "steps that go back": ([megatron_step(200, 2.0), megatron_step(100, 2.1)], "step 100 follows step 200"),
    "evaluations that go back": (
        [megatron_step(500, 2.0), *megatron_evaluation(500, 2.0), *megatron_evaluation(400, 2.1)],
        "step 400 follows step 500",
    ),
    "another planned end": ([megatron_step(100, 2.0), megatron_step(200, 1.9, steps=200)], "200 iterations, and 1000"),
    "a step after the end": ([megatron_step(1001, 2.0)], "1001"),
    "an evaluation after the end": ([megatron_step(1000, 2.0), *megatron_evaluation(2000, 1.9)], "2000"),
    "a value twice in a line": ([megatron_step(1000, "2.0 | lm loss: 1.9")], "1.9"),
    "settings of another end": ([*megatron_settings(steps=2000), megatron_step(1000, 2.0)], "2000"),
    "a backspace": ([megatron_step(1000, "2.0\b\b1.9")], "hidden"),
    "a right-to-left mark": ([megatron_step(1000, "\u202e2.0")], "hidden"),
    "a carriage return": ([megatron_step(1000, 2.0) + "\r" + megatron_step(1000, 1.9)], "1.9"),
    "a huge line": ([megatron_step(1000, 2.0) + " a: 1 |" * 100_000], "20,000"),
    "a second end": ([*megatron_log(), *megatron_settings(), megatron_step(900, 2.0), megatron_step(1000, 1.9)], "1.9"),
    "MaxText after its end": ([*maxtext_settings(), maxtext_step(1000, 2.0)], "999"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_contradiction_is_refused_with_its_line(path: Path, name: str) -> None:
    """And with both numbers."""
    lines, named = BAD[name]
    with pytest.raises(RunTableError) as refusal:
        read_text_log(write(path, *lines))
    assert named in str(refusal.value)
    assert f"{path}, " in str(refusal.value)


def test_all_contradictions_are_named_at_once(path: Path) -> None:
    """Up to eight."""
    lines = [line for step in range(100, 600, 100) for line in (megatron_step(step, 2.0), megatron_step(step, 1.9))]
    with pytest.raises(RunTableError) as refusal:
        read_text_log(write(path, *lines))
    assert str(refusal.value).count("lm loss at step") == 5


@pytest.mark.parametrize(
    "noise",
    [
        b"\x00" * 1000,
        b"\xff\xfe\x80" * 1000,
        b"|" * 1_000_000,
        b"loaded checkpoint \n" * 50_000,
        b"iteration " * 100_000,
        "é\u2028".encode() * 100,
    ],
)
def test_noise_between_the_lines_changes_nothing(path: Path, noise: bytes) -> None:
    """Binary content, bytes that are no UTF-8, huge lines, and many lines of a start."""
    first, *rest = (line.encode() for line in megatron_log())
    path.write_bytes(b"\n".join([first, noise, *rest, noise, b""]))
    found = read_text_log(path)
    assert found is not None
    assert found.metrics["validation lm loss"] == pytest.approx(LOSS)


def test_seconds_of_two_hosts_may_differ(path: Path) -> None:
    """Two hosts of MaxText print a step each; the loss is the same."""
    line = maxtext_step(999, 2.3)
    assert read(path, line, line.replace("1.234", "1.235")).metrics["loss"] == 2.3


def test_a_text_value_of_a_metric_stays_text(path: Path) -> None:
    """Also a number with an underscore, which Python would read."""
    assert read(path, megatron_step(1000, "2_3")).metrics["lm loss"] == "2_3"


@pytest.mark.parametrize("time", ["2026-13-45 10:11:12", "9999-12-31 23:59:59"])
def test_a_time_that_is_none_is_left_out(path: Path, time: str) -> None:
    """Without a traceback."""
    assert read(path, megatron_step(1000, 2.0, time=time)).started_at is None


def test_the_joined_files_of_two_starts_are_one_run(path: Path) -> None:
    """The second start prints its settings, and repeats the steps since its checkpoint."""
    both = [*megatron_log(until=700), *megatron_log()[:8], *megatron_log()[14:]]
    log = read(path, *both)
    assert (log.state, log.metrics["validation lm loss"]) == ("finished", pytest.approx(LOSS))
