"""Marin's speedrun: six shapes of results, the table of the old board, its known faults by name, and its true front.

The files are Marin's and are not kept here: these tests run where they lie beside the repository.
"""

import csv
import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from submission_factory import submission
from typer.testing import CliRunner

from marin_scaling.cli.app import app
from marin_scaling.errors import DocumentError, Severity
from marin_scaling.recipe.model_shape import WITH_LM_HEAD, training_flops
from marin_scaling.speedrun.checks import Validated, validate
from marin_scaling.speedrun.import_files import import_file, import_marin_board
from marin_scaling.speedrun.import_marin import import_marin_results
from marin_scaling.speedrun.leaderboard import Point, front, projections
from marin_scaling.speedrun.submission import Submission, parse_submission, to_bytes
from marin_scaling.speedrun.track import read_tracks, track_findings

DATA = Path(__file__).parents[4] / "shared" / "data" / "speedrun"
BOARD_ENTRY = {
    "run_name": "llama/130m",
    "eval_paloma_c4_en_bpb": 1.17,
    "training_time": 1200.0,
    "training_hardware_flops": 8.8e18,
    "run_completion_timestamp": "2025-06-28 06:42:45 UTC",
    "wandb_link": "https://example.org/1",
    "description": "",
    "author": {"name": "Ada", "affiliation": "", "url": ""},
    "model_size": 154_147_328,
    "model_flops": 1.777e18,
}
NOW = datetime(2026, 11, 23, tzinfo=UTC)
needs_marin = pytest.mark.skipif(not DATA.is_dir(), reason="Marin's speedrun files are not beside this repository")


@pytest.fixture(scope="module")
def results() -> list[Submission]:
    """All results that are kept."""
    return [each for path in sorted((DATA / "results").glob("*.json")) for each in import_file(path).submissions]


@pytest.fixture(scope="module")
def board() -> list[Submission]:
    """The old board."""
    return list(import_file(DATA / "leaderboard_runs_HEAD.json").submissions)


def reasons(validated: list[Validated]) -> dict[str, set[str]]:
    """The rules by which each of those that are refused is refused."""
    return {
        each.submission.name: {finding.code for finding in each.findings if finding.severity == "error"}
        for each in validated
        if not each.accepted
    }


@needs_marin
def test_every_shape_is_read_and_says_what_it_never_said(results: list[Submission]) -> None:
    """44 files, each written and read again."""
    shapes = {str(each.imported_from).rpartition("shape ")[2].rstrip(")") for each in results}
    assert shapes == {"V0", "V1", "V1b", "V2", "V3", "V4"}
    assert len(results) == 44
    for each in results:
        assert parse_submission(to_bytes(each), name="x") == each
        assert "no commit" in each.absent["code"]


@needs_marin
def test_their_flops_are_those_of_the_common_formula_to_the_last_digits(results: list[Submission]) -> None:
    """But two: one class counts itself cheaper, and the oldest shape estimated 6 N D."""
    apart = {
        each.name: each.compute.model_flops
        / training_flops(each.model.shape, tokens=each.data.trained_tokens, convention=WITH_LM_HEAD)
        for each in results
        if each.model.shape and each.data.trained_tokens
    }
    assert len(apart) == 44
    others = {name: ratio for name, ratio in apart.items() if abs(ratio - 1) > 1e-9}
    assert {name: round(ratio, 3) for name, ratio in others.items()} == {
        "hackable_transformer_gdn/130m": 0.83,
        "llama_30m": 1.833,
    }


@needs_marin
def test_each_known_fault_is_refused_by_its_name_and_all_others_pass(results: list[Submission]) -> None:
    """Cores counted as chips, seconds called minutes, and an MFU above 1."""
    assert reasons(validate(results, at=NOW)) == {
        "adamw_llama_scaling/130m": {"hardware-flops"},
        "cautious_llama_scaling/1_2b": {"hardware-flops"},
        "muon_llama_scaling/130m": {"hardware-flops"},
        "muon_llama_scaling/520m": {"hardware-flops"},
        "llama_30m": {"hardware-flops"},
        "llama_50m_gpu": {"mfu"},
    }


@needs_marin
def test_a_class_that_counts_its_own_flops_gets_a_warning_with_both_figures(results: list[Submission]) -> None:
    """Gated DeltaNet: 17 % fewer than the common formula, by which the board compares it."""
    (judged,) = validate([each for each in results if "gdn" in each.name], at=NOW)
    assert judged.accepted
    (found,) = [each for each in judged.findings if each.code == "formula"]
    assert "-17.0%" in found.message
    assert judged.submission.comparable_flops == judged.submission.counted_flops


@needs_marin
def test_every_result_keeps_to_the_shipped_track_that_is_made_for_it(results: list[Submission]) -> None:
    """Its cache is named fineweb-edu-10B-6fbcbb; the track is on fineweb-edu."""
    tracks = read_tracks(Path(__file__).parents[3] / "speedruns" / "tracks")
    assert [found for each in results for found in track_findings(each, tracks) if found.severity is not Severity.NOTE] == []


@needs_marin
def test_sizes_that_saw_the_text_more_than_once_say_so(results: list[Submission]) -> None:
    """From 520M on, 10.4 to 28.6 billion tokens of a set of ten."""
    told = {each.submission.name for each in validate(results, at=NOW) if any(one.code == "epochs" for one in each.findings)}
    assert {name for name in told if "300m" in name or "130m" in name} == set()
    assert all(each.epochs > 1.03 for each in results if each.name in told and each.epochs)
    assert {"muon_llama_scaling/520m", "muon_llama_scaling/1_2b", "parallel_llama/1_2b"} <= told


@needs_marin
def test_the_runs_that_stood_twice_on_the_old_board_stand_once(board: list[Submission]) -> None:
    """96 entries, four of which are others by another name."""
    assert len(board) == 96
    twice = {f"hackable_transformer_starter/attnsink/splash/default_lr/{size}" for size in ("130m", "300m", "520m", "1_2b")}
    assert reasons(validate(board, at=NOW)) == {name: {"duplicate"} for name in twice}


@needs_marin
def test_the_true_front_of_the_old_board_has_24_of_96_entries_22_of_them_distinct(board: list[Submission]) -> None:
    """On model FLOPs; the old board drew 39, because it sorted by FLOPs alone."""
    points = [Point(cost=each.compute.model_flops, loss=each.bits_per_byte, name=each.name) for each in board]
    found = front(points)
    assert len(found) == 24
    assert len({(point.cost, point.loss) for point in found}) == 22


@needs_marin
def test_their_mfu_is_that_of_the_table_that_was_computed_independently(results: list[Submission]) -> None:
    """For the runs whose table row and file agree on what they cost."""
    with (DATA / "runs.csv").open() as file:
        rows = {row["run"]: row for row in csv.DictReader(file)}
    compared = [
        (each.mfu, float(rows[each.name]["mfu"]))
        for each in results
        if each.name in rows and each.hardware_flops == float(rows[each.name]["training_hardware_flops"])
    ]
    assert len(compared) > 30
    assert all(abs(ours - theirs) < 1e-4 for ours, theirs in compared if ours is not None)


@needs_marin
def test_from_the_command_line_they_are_imported_and_refused(tmp_path: Path) -> None:
    """Exit status 1, and a line of the sum."""
    files = sorted(map(str, (DATA / "results").glob("muon_*.json")))
    done = CliRunner().invoke(app, ["speedrun", "import", *files, "--to", str(tmp_path / "speedruns")])
    assert done.output.startswith(f"{len(files)} submissions in ")
    done = CliRunner().invoke(app, ["speedrun", "validate", str(tmp_path / "speedruns")])
    assert done.exit_code == 1
    counts = [int(word) for word in re.findall(r"[0-9]+", done.output.splitlines()[-1])]
    assert counts == [len(files), len(files) - 2, len(files) - 2, 2, 0]


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        *((foreign, "run_info") for foreign in ({}, [], {"runs": []}, {"runs": [{}]}, {"runs": "x"}, 3, None)),
        ({"runs": [{"run_info": {"resources": 1}}]}, r"runs\[0\]\.run_info\.resources"),
    ],
)
def test_what_is_none_of_marins_files_is_refused(document: object, reason: str) -> None:
    """With what is missing; nothing is guessed."""
    with pytest.raises(DocumentError, match=rf"results\.json.*{reason}"):
        import_marin_results(document, name="x", source="results.json")


@pytest.mark.parametrize(
    ("name", "content"), [("a.csv", "run,flops,loss\nr1,1e18,3.2\n"), ("a.json", '{"loss": 3.2}'), ("b.json", "[]")]
)
def test_a_foreign_file_is_refused_with_the_ways_that_fit_it(tmp_path: Path, name: str, content: str) -> None:
    """A submission, or a fit of a table; nothing was written, so there is nothing to validate next."""
    path = tmp_path / name
    path.write_text(content)
    done = CliRunner().invoke(app, ["speedrun", "import", str(path), "--to", str(tmp_path / "speedruns")])
    assert done.exit_code == 1
    assert all(part in done.output for part in (name, "submission.json", "marin-scale fit", "0 submissions"))
    assert "Next" not in done.output
    assert "igest" not in done.output


@pytest.mark.parametrize("entry", [{}, 3, {"run_name": "x"}])
def test_a_malformed_entry_of_the_old_board_is_named_and_the_others_are_imported(entry: object) -> None:
    """By file and number."""
    found = import_marin_board([BOARD_ENTRY, entry], source="runs.json")
    assert [each.name for each in found.submissions] == ["llama/130m"]
    assert [each.startswith("runs.json: entry 2: ") for each in found.problems] == [True]


def test_a_file_that_is_no_table_is_refused() -> None:
    """With its name."""
    with pytest.raises(DocumentError, match=r"runs\.json"):
        import_marin_board({}, source="runs.json")


def test_validation_says_all_as_json(tmp_path: Path) -> None:
    """For other people's programs."""
    from marin_scaling.speedrun.submission import write_submission

    write_submission(tmp_path, submission())
    (tmp_path / "tracks").mkdir()
    (tmp_path / "tracks" / "fineweb-edu.yaml").write_text("name: fineweb-edu\ntitle: x\n")
    done = CliRunner().invoke(app, ["speedrun", "validate", str(tmp_path), "--json"])
    document = json.loads(done.output)
    (found,) = document["submissions"][0].pop("findings")
    assert (found["severity"], found["code"], found["where"]) == ("warning", "no-record", "seeds.log_sha256")
    assert document == {
        "submissions": [{"name": "llama/130m", "accepted": True}],
        "malformed": {},
        "warnings": [],
    }


@needs_marin
def test_the_groups_of_the_public_results_share_all_ranks(results: list[Submission]) -> None:
    """At 1e22 FLOPs, where the old board ranked them by one number each: six can be fitted, and their intervals overlap."""
    found = projections(results, flops=1e22)
    assert [each.ranks for each in found if each.forecast] == [(1, 6)] * 6
