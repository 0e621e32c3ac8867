"""Attacks on a terminal and on the log of CI: text that is to be obeyed, or to be taken for a line of the tool's own."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from command_line import marin_scale, marin_scale_process
from submission_factory import submission_document

from marin_scaling.errors import UsageError
from marin_scaling.printable import PlainOutput
from marin_scaling.publish.build import make_user_repository

SIGNS = {
    "escape": "\x1b[2J\x1b]0;title\x07",
    "C1": "\x9b31m\x85next",
    "direction": "\u202egnp\u2066",
    "separators": "a\u2028::error::x\u2029b",
    "line ends": "a\n::error file=a::no\r##[error]no\r\n  signature  ok",
    "zero width": "a\u200bb\ufeffc\u00add\u3164",
    "tag signs": "a\U000e0041\U000e0042",
    "commands": "::error::x ##[error]x ##vso[task.complete]x",
}
NAMES = {key: signs for key, signs in SIGNS.items() if key != "tag signs"}


def require_plain(done: subprocess.CompletedProcess[str]) -> str:
    """What was printed, where it holds nothing that a terminal or a runner of CI obeys."""
    said = done.stdout + done.stderr
    assert "Traceback" not in said
    hidden = [sign for sign in said if not sign.isprintable() and sign not in "\n\t"]
    assert not hidden, said
    for line in said.split("\n"):
        assert not line.strip().startswith("::"), said
        assert not re.search(r"##\w*\[", line), said
    return said


@pytest.mark.parametrize("signs", SIGNS.values(), ids=SIGNS.keys())
def test_an_unknown_key_of_a_ladder_is_shown_as_text(tmp_path: Path, signs: str) -> None:
    """In the message that names it."""
    (tmp_path / "a.yaml").write_text(yaml.safe_dump({"name": "a", signs: 1, f"{signs}b": 2}))
    done = marin_scale("ladder", "a.yaml", "--dry-run", cwd=tmp_path)
    assert done.returncode == 2
    assert "unknown key" in require_plain(done)


@pytest.mark.parametrize("signs", SIGNS.values(), ids=SIGNS.keys())
@pytest.mark.parametrize("form", ["yaml", "jsonl"])
def test_an_unknown_key_of_an_experiment_is_shown_as_text(tmp_path: Path, signs: str, form: str) -> None:
    """Of one's own and of many in a file."""
    document = {"name": "a", "title": "b", "outcome": "worked", signs: 1}
    (tmp_path / "experiments" / "a").mkdir(parents=True)
    if form == "yaml":
        (tmp_path / "experiments" / "a" / "experiment.yaml").write_text(yaml.safe_dump(document))
    else:
        (tmp_path / "experiments" / "many.jsonl").write_text(json.dumps(document))
    done = marin_scale("experiment", "validate", cwd=tmp_path)
    assert done.returncode == 1
    require_plain(done)


@pytest.mark.parametrize("signs", SIGNS.values(), ids=SIGNS.keys())
def test_keys_of_a_submission_are_shown_as_text(tmp_path: Path, signs: str) -> None:
    """Unknown ones, and values of another kind."""
    folder = tmp_path / "speedruns" / "a"
    folder.mkdir(parents=True)
    (folder / "submission.json").write_text(json.dumps(submission_document() | {signs: 1, "track": signs}))
    done = marin_scale("speedrun", "validate", cwd=tmp_path)
    assert done.returncode == 1
    require_plain(done)


@pytest.mark.parametrize("signs", NAMES.values(), ids=NAMES.keys())
def test_names_of_folders_are_one_line_each(tmp_path: Path, signs: str) -> None:
    """Of the registry, the run store, the experiments and the submissions."""
    name = signs.replace("/", "_")
    make_user_repository(tmp_path)
    for place in ("preregistrations", "runs", "experiments", "speedruns"):
        (tmp_path / place / name).mkdir(parents=True)
    (tmp_path / "speedruns" / name / "submission.json").write_text("{")
    for command in (("verify", "all"), ("check", "all"), ("experiment", "validate"), ("speedrun", "validate")):
        done = marin_scale(*command, cwd=tmp_path)
        assert done.returncode in (1, 2)
        said = require_plain(done)
        assert not [line for line in said.split("\n") if line.startswith(("next", "  signature"))]


@pytest.mark.parametrize("signs", NAMES.values(), ids=NAMES.keys())
def test_names_of_runs_and_files_are_one_line_each(tmp_path: Path, signs: str) -> None:
    """Of a table that is fitted, and of one that is not there."""
    rows = [{"run": f"{signs}{n}", "flops": n * 1e18, "params": 1e8, "tokens": 1e9, "loss": 3, signs: 1} for n in (1, 2, 3)]
    (tmp_path / "runs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for table in ("runs.jsonl", f"{signs.replace('/', '_')}.csv"):
        done = marin_scale("fit", table, cwd=tmp_path)
        assert done.returncode == 2
        require_plain(done)


def test_json_keeps_its_meaning(tmp_path: Path) -> None:
    """A program reads the names of the file itself, though no runner of CI finds a command in them."""
    folder = tmp_path / "experiments" / "a"
    folder.mkdir(parents=True)
    document = {"name": "a", "title": "b", "outcome": "worked", "baseline": "c", "configuration": {"##[error]x": 1}}
    (folder / "experiment.yaml").write_text(yaml.safe_dump(document | {"code": {"path": "::x"}}))
    done = marin_scale("experiment", "validate", "--json", cwd=tmp_path)
    require_plain(done)
    assert json.loads(done.stdout)["experiments"]["a"][0]["where"] == "baseline"


def test_an_error_keeps_its_own_lines_and_no_other() -> None:
    """A line end in a name is shown; why and fix stand on lines of their own."""
    error = UsageError(("a\nb is wrong.", "c"), why="d\ne", fix="f")
    assert str(error).split("\n") == ["a\\u000ab is wrong.", "       c", "  why: d\\u000ae", "  fix: f"]


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_every_encoding_of_a_terminal_prints_all_text(tmp_path: Path, encoding: str) -> None:
    """Lone surrogates and letters that it does not have are escapes, and no reason to stop."""
    done = marin_scale_process(
        "fit", "é\udcff\u202e.csv", cwd=tmp_path, environment={"PYTHONIOENCODING": encoding, "PYTHONUTF8": "1"}
    )
    assert done.returncode == 2
    require_plain(done)


def test_bytes_that_are_written_are_text_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    """A command that prints canonical JSON writes bytes."""
    import sys

    PlainOutput(sys.stdout).buffer.write(b"::error::x\x1b[2J\n")
    assert capsys.readouterr().out == "\\u003a:error::x\\u001b[2J\n"
