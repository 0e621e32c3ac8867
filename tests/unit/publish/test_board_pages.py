"""The speedrun pages: every submission is on them, also a refused and a malformed one, and no text leaves its cell."""

import csv
import io
import json
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from submission_factory import changed, retrained, seed_document, submission

from marin_scaling.publish.board_page import read_speedruns, speedrun_pages
from marin_scaling.speedrun.submission import Submission, parse_submission, write_confirmation, write_submission
from marin_scaling.speedrun.track import read_tracks

pytest.importorskip("altair", reason="comes with the site extra")


def pages(root: Path, *submissions: Submission) -> dict[str, str]:
    """The text files of a repository's speedrun pages."""
    for each in submissions:
        write_submission(root / "speedruns", each)
    return {
        name: content.decode()
        for name, content in speedrun_pages(read_speedruns(root), root=root).items()
        if not name.endswith((".html", ".svg"))
    }


def other(name: str, **changes: object) -> Submission:
    """Another submission, with a run of its own."""
    seed = seed_document(seed=7, bits_per_byte=1.3, log=f"https://example.org/{name}", log_sha256="9" * 64)
    return submission(name=name, seeds=[seed], **changes)


def test_a_repository_without_submissions_says_how_to_make_the_first(tmp_path: Path) -> None:
    """No empty table."""
    assert "marin-scale speedrun submit RUN" in pages(tmp_path)["speedrun/index.md"]


def test_the_board_is_there_as_a_table_a_figure_and_data(tmp_path: Path) -> None:
    """JSON and CSV say the same as the table."""
    found = pages(tmp_path, submission(), other("moe/130m"))
    assert "2 accepted, 0 refused; 1 on the Pareto front" in found["speedrun/index.md"]
    assert "index.fineweb-edu.figures/front.svg" in found["speedrun/index.md"]
    rows = json.loads(found["speedrun/board.json"])["entries"]
    assert [row["name"] for row in rows] == ["llama/130m", "moe/130m"]
    assert [row["name"] for row in csv.DictReader(io.StringIO(found["speedrun/board.csv"]))] == ["llama/130m", "moe/130m"]


def test_a_submission_has_a_page_with_its_figures_and_its_own_file(tmp_path: Path) -> None:
    """And says who beats it, what was found, how to run and to cite it."""
    found = pages(tmp_path, submission(), other("moe/130m", lineage={"parent": "llama/130m", "changes": ["experts"]}))
    page = found["speedrun/moe~130m.md"]
    assert "[llama/130m](llama~130m.md) is as cheap and better" in page
    assert "## Made from [llama/130m](llama~130m.md)\n\n- experts" in page
    assert "git checkout " + "a" * 40 in page
    assert "@misc{moe-130m," in page
    assert parse_submission(found["speedrun/llama~130m.submission.json"].encode(), name="x") == submission()


def test_an_entry_without_a_record_is_shown_as_self_reported(tmp_path: Path) -> None:
    """On its page, in the board's warnings and in its data; nothing claims a comparison that was not made."""
    found = pages(tmp_path, submission())
    (row,) = json.loads(found["speedrun/board.json"])["entries"]
    assert row["verification"] == "self-reported, no record here"
    assert "| front, record, no record here | no-record, track |" in found["speedrun/index.md"]
    page = found["speedrun/llama~130m.md"]
    assert "self&#45;reported, no record here" in page.replace("self-reported, no", "self&#45;reported, no")
    assert "compared with the records" not in page


def test_a_confirmed_entry_is_shown_with_who_reproduced_it_and_when(tmp_path: Path) -> None:
    """And with the mean that came out again."""
    path = write_submission(tmp_path / "speedruns", submission())
    write_confirmation(path, retrained(), by="Bob", at=datetime(2026, 11, 21, tzinfo=UTC))
    found = pages(tmp_path)
    (row,) = json.loads(found["speedrun/board.json"])["entries"]
    assert row["verification"] == "reproduced by Bob, 2026-11-21"
    assert f"by Bob on 2026-11-21: {submission().bits_per_byte:.4f} bits per byte" in found["speedrun/llama~130m.md"]


def test_an_entry_with_a_record_is_shown_as_compared_with_it(tmp_path: Path) -> None:
    """Its page gives the command that retrains it, and no commit that lacks the entry."""
    root = Path(__file__).parents[3]
    shutil.copytree(root / "runs" / "speedrun-cpu-dense-24", tmp_path / "runs" / "speedrun-cpu-dense-24")
    for folder in ("cpu/dense-24", "tracks", "entries"):
        shutil.copytree(root / "speedruns" / folder, tmp_path / "speedruns" / folder)
    page = pages(tmp_path)["speedrun/cpu~dense-24.md"]
    assert "compared with the records" in page
    assert "no record here" not in page
    assert "marin-scale speedrun confirm speedruns/cpu/dense-24/submission.json" in page
    assert "git checkout" not in page


def test_a_refused_one_is_listed_with_what_was_found_and_has_its_page(tmp_path: Path) -> None:
    """Not silently dropped."""
    found = pages(tmp_path, changed(name="wrong", compute__hardware__chips=32))
    assert "## Refused" in found["speedrun/index.md"]
    assert "a v5p&#45;32 has 16 chips" in found["speedrun/index.md"].replace("v5p-32", "v5p&#45;32")
    assert "\n# wrong\n\n**Refused.**" in found["speedrun/wrong.md"]


def test_a_malformed_one_is_listed_with_its_reason_and_breaks_no_other(tmp_path: Path) -> None:
    """By its path in the repository, not on this machine."""
    (tmp_path / "speedruns/bad").mkdir(parents=True)
    (tmp_path / "speedruns/bad/submission.json").write_text("{")
    found = pages(tmp_path, submission())
    index = found["speedrun/index.md"]
    assert "1 accepted" in index
    assert "speedruns/bad/submission.json" in index
    assert str(tmp_path) not in "".join(found.values())


def test_no_text_of_a_stranger_leaves_its_cell(tmp_path: Path) -> None:
    """Tags, pipes, links and fences in names, descriptions, changes, reasons and settings."""
    evil = "<script>alert(1)</script> | [x](javascript:alert(1)) ``` *b* {% x %}"
    made = other(
        "evil",
        description=evil,
        authors=[{"name": evil, "affiliation": evil}],
        lineage={"parent": "none", "changes": [evil]},
        training={"batch_size": 128, "seq_len": 4096, "steps": 4959, "config": {evil: "</code></pre>" + evil}},
        evaluation={"name": evil, "digest": "d" * 64, "bytes": 1000000, "tokenizer_sha256": "e" * 64},
    )
    for name, text in pages(tmp_path, made).items():
        if name.endswith(".md"):
            assert "<script>" not in text, name
            assert text.count("</code></pre>") == text.count("<pre class"), name
            outside = re.sub(r"<pre class.*?</code></pre>", "", text, flags=re.DOTALL)  # nothing is Markdown inside of these
            assert "](javascript" not in outside, name
            assert "*b*" not in outside, name


@pytest.mark.parametrize(("one", "same"), [("a/b", "a--b"), ("index", "index.page"), ("board", "board.json"), ("a/b", "a.b")])
def test_no_two_submissions_share_a_page(tmp_path: Path, one: str, same: str) -> None:
    """Whatever they are called."""
    seed = seed_document(seed=9, bits_per_byte=1.4)
    found = pages(tmp_path, other(one), submission(name=same, seeds=[seed]))
    titles = [text.splitlines()[1] for name, text in found.items() if name.endswith(".md")]
    assert len(titles) == 3
    assert len(set(titles)) == 3


def test_a_track_says_its_rules_and_refuses_who_breaks_them(tmp_path: Path) -> None:
    """The rule stands at the board, and beside the submission that broke it."""
    folder = tmp_path / "speedruns" / "tracks"
    folder.mkdir(parents=True)
    (folder / "fineweb-edu.yaml").write_text("name: fineweb-edu\ntitle: One | chip\nlimits: {parameters: 1.0e+6}\n")
    shown = pages(tmp_path, submission())["speedrun/index.md"]
    assert "**One &#124; chip.**" in shown
    assert "- at most 1e6 parameters" in shown
    assert "1.54147e8 parameters; the track allows 1e6" in shown


def test_a_track_that_nobody_has_entered_yet_is_listed_with_its_rules(tmp_path: Path) -> None:
    """So that a reader sees what could be won; also where there is no submission at all."""
    folder = tmp_path / "speedruns" / "tracks"
    folder.mkdir(parents=True)
    (folder / "little.yaml").write_text("name: little\ntitle: Little | text\nunique_tokens_at_most: 1000000\n")
    for shown in (pages(tmp_path), pages(tmp_path, submission())):
        assert "Tracks without an entry yet" in shown["speedrun/index.md"]
        assert "| little | **Little &#124; text.** | at most 1,000,000 unique tokens |" in shown["speedrun/index.md"]


def test_every_track_of_this_repository_can_be_read_and_asks_for_something() -> None:
    """A compute budget, a time on one GPU, little text, and the projected one among them."""
    tracks = read_tracks(Path(__file__).parents[3] / "speedruns" / "tracks").values()
    assert all(track.rules() for track in tracks)
    asked = {key for track in tracks for key in track.limits}
    assert asked == {"model_flops", "seconds"}
    assert any(track.unique_tokens_at_most for track in tracks)
    assert any(track.projected_to_flops for track in tracks)


def test_a_track_that_is_malformed_is_said_in_place_of_the_boards(tmp_path: Path) -> None:
    """Nothing is judged by rules that nobody can read."""
    folder = tmp_path / "speedruns" / "tracks"
    folder.mkdir(parents=True)
    (folder / "fineweb-edu.yaml").write_text("name: other\n")
    assert "fineweb-edu.yaml, line 1: title: field required" in pages(tmp_path, submission())["speedrun/index.md"]


def test_what_differs_from_the_parent_is_shown_whatever_its_author_says(tmp_path: Path) -> None:
    """Setting by setting, and the difference of the losses with what chance makes of it."""
    lineage = {"parent": "llama/130m", "changes": ["nothing at all"]}
    child = other(
        "llama/other", lineage=lineage, training={"batch_size": 128, "seq_len": 4096, "steps": 4959, "config": {"wd": 0.1}}
    )
    shown = pages(tmp_path, submission(), child)["speedrun/llama~other.md"]
    assert "- nothing at all" in shown
    assert "| training.config.wd |  | 0.1 |" in shown
    assert "batch" not in shown.split("## Made from")[1].split("##")[0]
    assert "+0.1250 bits per byte" in shown


def test_a_track_with_gates_shows_each_group_at_each_gate(tmp_path: Path) -> None:
    """Also a gate that cannot be decided yet, with the reason."""
    tracks = tmp_path / "speedruns" / "tracks"
    tracks.mkdir(parents=True)
    gates = "baseline: llama\ngates: [{flops: [1.0e+18]}, {flops: [1.0e+18, 1.0e+19], projected_to_flops: [1.0e+22]}]\n"
    (tracks / "fineweb-edu.yaml").write_text(f"name: fineweb-edu\ntitle: x\n{gates}")
    page = pages(tmp_path, submission(), other("moe/130m"))["speedrun/index.md"]
    table = page.partition("Gates: fineweb-edu")[2]
    for gate in (1, 2):
        (row,) = [line for line in table.splitlines() if line.startswith(f"| moe | {gate} |")]
        assert "| open |" in row
        assert not row.rstrip().endswith("|  |")
