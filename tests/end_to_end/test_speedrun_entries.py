"""Entries to the speedrun: planned, trained, submitted and trained again, from the command line."""

import json
import re
import shutil
from pathlib import Path

import pytest
from command_line import marin_scale_process
from git_repository import commit, git

from marin_scaling.canonical_json import dump_canonical

pytest.importorskip("levanter", reason="the train extra is not installed")
pytestmark = pytest.mark.train

ROOT = Path(__file__).parents[2]
TRACK = """\
name: tiny
title: A tiny track
limits: {model_flops: 6.0e+9}
hardware: [cpu]
seeds_at_least: 2
retrained_by_ci: true
"""
ENTRY = """\
name: cpu/first
track: tiny
author: {name: Ada}
recipe: quickstart
budget_flops: 5.0e+9
hidden_dim: 12
seeds: [0, 1]
trials: 2
evaluation: {windows: 64}
"""


def said(root: Path, *arguments: object, status: int = 0) -> str:
    """Return what the command prints; it must end with that status."""
    done = marin_scale_process("speedrun", *arguments, cwd=root)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def test_an_entry_is_planned_trained_submitted_and_comes_out_again(tmp_path: Path) -> None:
    """To the last digit, on one machine; the runs that are made for it are not kept."""
    entry = tmp_path / "speedruns" / "entries" / "first.yaml"
    for path, text in ((entry, ENTRY), (tmp_path / "speedruns" / "tracks" / "tiny.yaml", TRACK)):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    planned = said(tmp_path, "info", entry.relative_to(tmp_path))
    assert all(part in planned for part in ("5.02e9", "levanter-full-attention-with-lm-head", "2 seeds"))
    made = said(tmp_path, "run", entry.relative_to(tmp_path))
    assert "the mean of 2" in made
    assert "git add speedruns/cpu/first runs/speedrun-cpu-first speedruns/entries/first.yaml\n" in made
    assert "1 accepted (0 with warnings)" in said(tmp_path, "validate")
    again = said(tmp_path, "run", entry.relative_to(tmp_path), status=1)
    assert again == ""

    confirmed = said(tmp_path, "confirm", "--by", "Grace")
    assert "cpu/first  confirmed" in confirmed
    stored = tmp_path / "speedruns" / "cpu" / "first" / "confirmation.json"
    assert json.loads(stored.read_bytes())["by"] == "Grace"
    assert "1 accepted (0 with warnings)" in said(tmp_path, "validate")
    assert confirmed.count(" +0.000000 ") == 3
    assert not list((tmp_path / ".marin-scaling").glob("again-*"))

    git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / ".gitignore").write_text(".marin-scaling/\n")
    commit(tmp_path)
    assert said(tmp_path, "confirm").startswith("0 of 1 ")
    path = tmp_path / "speedruns" / "cpu" / "first" / "submission.json"
    document = json.loads(path.read_bytes())
    document["seeds"][0]["bits_per_byte"] -= 0.2
    path.write_bytes(dump_canonical(document))
    assert "seeds.bits_per_byte" in (found := said(tmp_path, "validate", status=1))
    assert "another version" in found
    stored.unlink()
    refused = said(tmp_path, "confirm", "--base", "main", status=1)
    assert "cpu/first  NOT confirmed" in refused
    assert re.search(r"-0\.200000 .*OUTSIDE", refused)
    shutil.rmtree(tmp_path / "runs")
    assert "2 of 2 runs have no record" in said(tmp_path, "validate")


@pytest.mark.nightly
def test_every_entry_of_this_repositorys_own_track_comes_out_again() -> None:
    """Trained again here, on the text of the Python that the track names; on another Python there is other text."""
    from marin_scaling.data.documents import standard_library_corpus
    from marin_scaling.speedrun.track import read_tracks

    track = read_tracks(ROOT / "speedruns" / "tracks")["cpu-5e11"]
    if standard_library_corpus().digest != track.data_sha256:
        pytest.skip("the standard library of this Python is not that of 3.11.7, whose sources the track is on")
    lines = [line for line in said(ROOT, "confirm", "--all").splitlines() if "confirmed" in line]
    assert len(lines) == len(list((ROOT / "speedruns" / "cpu").iterdir()))
    assert all("  confirmed," in line for line in lines)
