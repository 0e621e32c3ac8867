"""`marin-scale ladder`: what it is asked for is checked before anything is trained, and `status` looks without touching."""

import json
from pathlib import Path

import pytest
from command_line import assert_refused, listing, marin_scale
from tiny_ladder import LADDER


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tiny.yaml").write_text(LADDER)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (["--only", "5e10"], ("--only 5e10: the ladder has no such run", "1e10, 2e10")),
        (["--only", "2e10/16"], ("--only 2e10/16: the ladder has no such run",)),
        (["--only", "much"], ("'much' is not a",)),
        (["--on", "slurm"], ("--on slurm: runs are trained on this machine or on a Ray cluster",)),
        (["--on", "local:here"], ("--on local:here",)),
        (["--stop-after", "soon"], ("'soon' is not a", "30m")),
        (["--stop-after", "-3m"], ("'-3m' is not a",)),
        (["--stop-after", "99999999h"], ("'99999999h'", "at most a year")),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_done(
    folder: Path, arguments: list[str], fragments: tuple[str, ...]
) -> None:
    """Status 2, what, why and fix, and no file is left."""
    before = listing(folder)
    assert_refused(marin_scale("ladder", "tiny.yaml", *arguments, cwd=folder), *fragments)
    assert listing(folder) == before


def test_status_shows_every_run_and_leaves_no_trace(folder: Path) -> None:
    """From another terminal, at any time, also before anything was trained."""
    before = listing(folder)
    shown = marin_scale("status", "tiny.yaml", cwd=folder).stdout.splitlines()
    assert [line.split()[:3] for line in shown[1:5]] == [
        [budget, width, "waiting"] for budget in ("1e10", "2e10") for width in ("8", "12")
    ]
    assert shown[-1] == "0 of 4 runs are recorded, 0 in training; 0% of the FLOPs done."
    assert listing(folder) == before


def test_a_dry_run_of_a_part_shows_that_part(folder: Path) -> None:
    """`--only` means the same runs as in training, and an unknown one is refused."""
    shown = marin_scale("ladder", "tiny.yaml", "--dry-run", "--only", "2e10/12", cwd=folder).stdout.splitlines()
    assert [line.split()[:2] for line in shown[1 : shown.index("")]] == [["2e10", "12"]]
    assert_refused(marin_scale("ladder", "tiny.yaml", "--dry-run", "--only", "5e10", cwd=folder), "5e10", "1e10, 2e10")


def test_a_rung_has_one_row_with_all_its_seeds(folder: Path) -> None:
    """Four rungs of two seeds are four rows."""
    (folder / "tiny.yaml").write_text(LADDER + "seeds: [0, 7]\n")
    shown = marin_scale("ladder", "tiny.yaml", "--dry-run", cwd=folder).stdout.splitlines()
    head, *rows = shown[: shown.index("")]
    assert head.split()[-1] == "seeds"
    assert [line.split()[-1] for line in rows] == ["0,7"] * 4


def test_a_dry_run_of_a_sweep_is_about_the_sweep(folder: Path) -> None:
    """Each setting has a row; bowls, the fit and the target are those of the ladder."""
    sweep = ("ladder", "tiny.yaml", "--sweep", "learning_rate=0.5,1,2", "--dry-run")
    shown = marin_scale(*sweep, cwd=folder).stdout
    assert len(shown.splitlines()[1 : shown.splitlines().index("")]) == 4 * 3
    assert "runs/tiny-sweep" in shown
    assert "target" not in shown
    document = json.loads(marin_scale(*sweep, "--json", cwd=folder).stdout)
    assert "target" not in document
    assert not {"few-widths", "few-budgets", "edge-of-recipe"} & {found["code"] for found in document["findings"]}


OTHER_TOKENS = """\
name: tiny
recipe: delphi
rungs: [{budget_flops: 3e18, sizes: 3}]
target: {budget_flops: 1e21}
"""
"""A ladder whose recipe has other tokens than its data, which are bytes."""


@pytest.mark.parametrize("as_json", [(), ("--json",)])
def test_a_dry_run_fails_for_data_that_cannot_be_trained_on(folder: Path, as_json: tuple[str, ...]) -> None:
    """With the finding on standard output."""
    (folder / "tiny.yaml").write_text(OTHER_TOKENS)
    done = marin_scale("ladder", "tiny.yaml", "--dry-run", *as_json, cwd=folder)
    assert (done.returncode, done.stderr) == (1, "")
    assert "128256" in done.stdout
