"""Validation: each figure is counted again, known factors have a name, and what is only doubtful is not refused."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from command_line import marin_scale
from submission_factory import FINISHED_AT, SECONDS, changed, seed_document, submission, submission_document

from marin_scaling.errors import Severity
from marin_scaling.speedrun.checks import validate
from marin_scaling.speedrun.leaderboard import boards
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


def test_equal_losses_of_several_seeds_are_a_warning() -> None:
    """Two seeds never agree to the last digit."""
    alike = [seed_document(seed=seed, bits_per_byte=1.17) for seed in (0, 1, 2)]
    (found,) = findings(submission(seeds=alike))
    assert found[:2] == (Severity.WARNING, "identical-losses")
    assert "1.17" in found[2]


def test_one_log_of_two_seeds_is_refused() -> None:
    """It is one run."""
    assert (Severity.ERROR, "seeds") in {each[:2] for each in findings(changed(seeds__log_sha256="a" * 64))}


def test_flops_without_sizes_are_unchecked_and_on_no_front() -> None:
    """A figure that nobody can recompute buys no place."""
    document = submission_document() | {"absent": {"model.shape": "not told"}}
    del document["model"]["shape"]
    unsaid = Submission.model_validate(document)
    assert [each[:2] for each in findings(unsaid)] == [(Severity.WARNING, "unchecked")]
    (board,) = boards(validate([unsaid], at=NOW))
    assert "model FLOPs" not in board.rows[0].on_front
    assert "seconds" in board.rows[0].on_front


def test_hardware_flops_without_a_peak_are_unchecked() -> None:
    """With the name of the chip."""
    document = submission_document() | {"absent": {"compute.hardware.peak_flops_per_second": "not told"}}
    document["compute"]["hardware"] = {"kind": "abacus", "name": "abacus", "chips": 16}
    found = [each for each in findings(Submission.model_validate(document)) if each[0] is Severity.WARNING]
    assert {each[1] for each in found} == {"unchecked"}
    assert all("'abacus'" in each[2] for each in found)


@pytest.mark.parametrize(
    "changes",
    [
        {"compute__model_flops": 1.777e18},  # of 1.77734e18
        {"seeds__hardware_flops": 8.81e18},  # of 8.8128e18
        {"seeds__training_seconds": 1200.4, "seeds__hardware_flops": 1200.42 * 16 * 459e12},
    ],
)
def test_rounded_figures_are_no_errors(changes: dict[str, Any]) -> None:
    """Equal to the digits that are stated."""
    assert {each[:2] for each in findings(changed(**changes))} == {(Severity.NOTE, "rounded")}


@pytest.mark.parametrize(
    ("hardware", "peak"),
    [
        ({"kind": "h100", "name": "h100", "chips": 16, "peak_flops_per_second": 756.5e12}, 756.5e12),
        ({"kind": "a10g", "name": "g5.48xlarge", "chips": 16, "peak_flops_per_second": 125e12}, 125e12),
    ],
)
def test_the_peak_of_a_variant_of_the_chip_is_a_warning(hardware: dict[str, Any], peak: float) -> None:
    """A PCIe card under the name of its family, and a card of one cloud."""
    found = changed(compute__hardware=hardware, seeds__hardware_flops=SECONDS * 16 * peak)
    assert (Severity.WARNING, "peak") in [each[:2] for each in findings(found)]
    assert {each[0] for each in findings(found)} == {Severity.WARNING}


@pytest.mark.parametrize(
    ("name", "chips", "severity"),
    [
        ("2 x v5p-32", 32, None),
        ("v5p-32", 48, Severity.WARNING),
        ("v5p-32", 40, Severity.ERROR),
        ("v5p-32", 32, Severity.ERROR),
    ],
)
def test_slices_are_counted(name: str, chips: int, severity: Severity | None) -> None:
    """Two slices by name; three by their number; 40 chips are no number of slices of 16, and 32 are one slice's cores."""
    hardware = {"kind": "v5p", "name": name, "chips": chips, "peak_flops_per_second": 459e12}
    found = findings(changed(compute__hardware=hardware, seeds__hardware_flops=SECONDS * chips * 459e12))
    assert {each[0] for each in found if each[1] == "chips"} == ({severity} if severity else set())


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
        last = marin_scale("speedrun", "validate", str(place), cwd=tmp_path).stdout.splitlines()[-1]
        assert last.startswith("1 submission: 1 accepted")


@pytest.mark.parametrize(("seconds", "is_refused"), [(15.2, False), (15.99, False), (16.1, True)])
def test_times_in_whole_seconds_may_be_a_second_apart_from_the_steps(seconds: float, is_refused: bool) -> None:
    """From 10:00:00 to 10:00:15 are at most 16 seconds, if both are cut to whole ones."""
    between = {"seeds__started_at": "2026-01-01T10:00:00Z", "seeds__finished_at": "2026-01-01T10:00:15Z"}
    document = changed(**between, seeds__training_seconds=seconds)
    assert ((Severity.ERROR, "times") in {each[:2] for each in findings(document)}) == is_refused
