"""Validation: each figure is counted again, known factors have a name, and what is only doubtful is not refused."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from command_line import marin_scale
from submission_factory import FINISHED_AT, SECONDS, changed, seed_document, submission, submission_document

from marin_scaling.findings import Severity
from marin_scaling.speedrun.checks import validate
from marin_scaling.speedrun.submission import Submission, write_submission

NOW = FINISHED_AT + timedelta(days=1)


def findings(*submissions: Submission) -> list[tuple[Severity, str, str]]:
    """What is found of the last one."""
    last = validate(submissions, at=NOW)[-1]
    return [(each.severity, each.code, each.message) for each in last.findings]


def test_of_a_sound_submission_nothing_is_found() -> None:
    """The ground of the others."""
    assert findings(submission()) == []


@pytest.mark.parametrize(
    ("changes", "rule", "said"),
    [
        (
            {"data__trained_tokens": 10**9},
            "tokens",
            "1000000000",
        ),
        ({"compute__model_flops": 1e18}, "model-flops", "-43.7% from 1.78e18"),
        ({"model__params_active": 10**12}, "parameters", "1000000000000"),
        ({"compute__hardware__chips": 32}, "chips", "a v5p-32 has 16"),
        ({"compute__hardware__peak_flops_per_second": 918e12}, "peak", "sparsity"),
        ({"seeds__hardware_flops": SECONDS * 32 * 459e12}, "hardware-flops", "32 cores of a v5p-32"),
        ({"seeds__hardware_flops": SECONDS * 16 * 459e12 / 60}, "hardware-flops", "minutes"),
        ({"seeds__hardware_flops": SECONDS * 16 * 459e12 * 3}, "hardware-flops", "ratio is 3"),
        ({"seeds__nats": 1.0}, "bits-per-byte", "1 nats over 1000000 bytes give 1.4427e-06"),
        ({"seeds__seed": 7}, "seeds", "7 occurs 2 times"),
        ({"seeds__finished_at": "2027-01-01T00:00:00Z"}, "times", "2027-01-01"),
        ({"seeds__finished_at": "2026-11-01T00:00:00Z"}, "times", "2026-11-01"),
        ({"seeds__finished_at": "2026-11-20T12:00:00"}, "times", "2026-11-20T12:00:00"),
        ({"seeds__started_at": (FINISHED_AT - timedelta(minutes=1)).isoformat()}, "times", "60 s"),
        ({"tuning__chosen": {"learning_rate": 0.003}}, "tuning", "0.003"),
        ({"lineage": {"parent": "llama/130m"}}, "lineage", "names itself"),
    ],
)
def test_what_cannot_be_so_is_refused(changes: dict[str, Any], rule: str, said: str) -> None:
    """Each by its name, with both figures."""
    refused = [(name, sentence) for weight, name, sentence in findings(changed(**changes)) if weight is Severity.ERROR]
    assert any(name == rule and said in sentence for name, sentence in refused), refused


def test_a_time_that_is_too_short_is_refused_by_the_machines_own_speed() -> None:
    """As the first `llama_50m_gpu` of Marin's board, whose times were a sample of its steps: MFU 1.85."""
    seconds = SECONDS / 20
    (found,) = findings(changed(seeds__training_seconds=seconds, seeds__hardware_flops=seconds * 16 * 459e12))
    assert found[:2] == (Severity.ERROR, "mfu")
    assert "4.03" in found[2]  # 1.777e18 / (60 s * 16 * 459e12)


@pytest.mark.parametrize(
    ("changes", "rule", "said"),
    [
        ({"tuning__chosen": {"learning_rate": 0.004}}, "boundary", "0.004 is the largest"),
        ({"tuning__chosen": {"learning_rate": 0.001}}, "boundary", "0.001 is the smallest"),
        ({"compute__model_flops_formula": "6 N D"}, "formula", "6 N D"),
        ({"compute__hardware__kind": "abacus"}, "hardware", "not in the hardware table"),
        ({"lineage": {"parent": "llama/none"}}, "lineage", "llama/none"),
    ],
)
def test_what_should_be_looked_at_is_a_doubt_and_stays_on_the_board(changes: dict[str, Any], rule: str, said: str) -> None:
    """Doubtful is not false."""
    (found,) = findings(changed(**changes))
    assert found[:2] == (Severity.WARNING, rule)
    assert said in found[2]


def test_epochs_and_unknown_tuning_are_told() -> None:
    """True, and to be known by who compares."""
    assert [each[1] for each in findings(changed(data__unique_tokens=10**9))] == ["epochs"]
    unsaid = submission_document() | {"absent": {"tuning": "nobody counted"}}
    del unsaid["tuning"]
    ((weight, rule, said),) = findings(Submission.model_validate(unsaid))
    assert (weight, rule) == (Severity.NOTE, "tuning")
    assert "nobody counted" in said


def test_one_run_under_two_names_is_refused_the_second_time() -> None:
    """As four runs of Marin's board were on it twice; the first stays."""
    again = changed(name="llama/again/130m")
    first, second = validate([submission(), again], at=NOW)
    assert first.findings == ()
    (found,) = second.findings
    assert found.code == "duplicate"
    assert "llama/130m" in found.message


def test_two_submissions_of_one_name_are_told_apart() -> None:
    """The second has to find another."""
    other = submission(seeds=[seed_document(seed=5), seed_document(seed=6)])
    _, rule, said = findings(submission(), other)[0]
    assert rule == "name"
    assert "llama/130m" in said


def test_figures_that_were_copied_from_another_run_are_refused() -> None:
    """As three later submissions of Marin's carried the hello-world example's result: same loss, same end, another log."""
    copied = [seed_document(seed=9, finished_at=FINISHED_AT.isoformat())]
    ((weight, rule, said), *_) = findings(submission(), submission(name="other/2m", seeds=copied))
    assert (weight, rule) == (Severity.ERROR, "copied")
    assert "llama/130m" in said


def test_one_file_is_validated_like_a_folder(tmp_path: Path) -> None:
    """Both places have one accepted submission."""
    path = write_submission(tmp_path, submission())
    for place in (path, tmp_path):
        assert marin_scale("speedrun", "validate", str(place), cwd=tmp_path).stdout.startswith("1 submission: 1 accepted")
