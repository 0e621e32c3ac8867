"""Further attacks with texts: addresses that run code, numbers that take quadratic time, and output without an end."""

import contextlib
import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import assert_refused, marin_scale
from submission_factory import submission_document

from marin_scaling.canonical_json import dump_canonical
from marin_scaling.data.documents import files_at, hub_documents
from marin_scaling.errors import DataError, RunTableError, SiteError, VerificationError
from marin_scaling.preregistration.events.seal import read_seal
from marin_scaling.printable import EXPERIMENTS_NAMED, MALFORMED_LINES, TEXT_CHARACTERS
from marin_scaling.publish.build import build_site, make_user_repository, require_plain_settings, write_generated_pages
from marin_scaling.run.store import is_moment
from marin_scaling.run.table import read_run_table
from marin_scaling.untrusted_files import UnsafeTreeError, require_regular_tree

LADDER = """\
name: a
recipe: quickstart
data:
  source: theirs
  train: {train}
  validation: {{held-out: {{files: v.txt}}}}
  tokenizer: {tokenizer}
rungs:
  - {{budget_flops: 1e10, hidden_dims: [8, 12, 16]}}
target: {{budget_flops: 1e12}}
hardware: {hardware}
"""
TEMPLATE = "{{ cycler.__init__.__globals__.os.system('touch ran') }}"
REFERENCES = {"version": 1, "templates": {}, "refs": {}, "gen": [{"key": "x.jsonl", "url": TEMPLATE, "dimensions": {"i": [0]}}]}
ADDRESS = "reference://x.jsonl::file://refs.json"
PLACES = {
    "a file": {"train": f'{{files: "{ADDRESS}"}}'},
    "one of several files": {"train": f'{{files: [a.txt, "{ADDRESS}"]}}'},
    "a cached reference": {"train": '{files: "simplecache::reference://x.jsonl::file://refs.json"}'},
    "a protocol without a chain": {"train": '{files: "reference://x.jsonl"}'},
    "a cache of tokens": {"train": f'{{cache: "{ADDRESS}"}}'},
    "a folder with the name of an address": {"train": f'{{dataset: "{ADDRESS}"}}'},
    "a reader that unpickles": {"train": "{dataset: pandas}"},
    "a reader of a database": {"train": "{dataset: sql, config: x}"},
    "a tokenizer": {"tokenizer": f'"{ADDRESS}"'},
    "a shared place": {"hardware": f'{{storage: "{ADDRESS}"}}'},
}
HARMLESS = {"train": "{files: a.txt}", "tokenizer": "bytes", "hardware": "{}"}


class _Touch:
    """An object whose unpickling leaves the file `ran`."""

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        import os

        return os.system, ("touch ran",)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with files that run code when certain readers open them."""
    (tmp_path / "refs.json").write_text(json.dumps(REFERENCES))
    (tmp_path / "train.pkl").write_bytes(pickle.dumps(_Touch()))
    (tmp_path / "a.txt").write_text("text of theirs")
    (tmp_path / "v.txt").write_text("other text")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("form", PLACES)
def test_an_address_in_a_ladder_names_no_reader_that_runs_code(form: str, here: Path) -> None:
    """It is refused with the file, before anything is opened."""
    (here / "a.yaml").write_text(LADDER.format(**HARMLESS | PLACES[form]))
    assert_refused(marin_scale("ladder", "a.yaml", "--dry-run", cwd=here), "a.yaml, line ")
    assert not (here / "ran").exists()


@pytest.mark.parametrize("address", [ADDRESS, f"dir::{ADDRESS}", "reference://x.jsonl"])
def test_documents_are_not_read_by_a_reader_that_runs_code(address: str, here: Path) -> None:
    """Whoever names the address."""
    with pytest.raises(DataError):
        files_at(address)
    assert not (here / "ran").exists()


def test_a_data_set_names_no_reader_that_runs_code(here: Path) -> None:
    """Neither by its name, nor by an address in its README."""
    pytest.importorskip("datasets", reason="the train extra is not installed")
    (here / "lab").mkdir()
    path = f"reference://x.jsonl::file://{here}/refs.json"
    files = {"configs": [{"config_name": "default", "data_files": [{"split": "train", "path": path}]}]}
    (here / "lab" / "README.md").write_text(f"---\n{json.dumps(files)}\n---\n")
    for name in ("pandas", "lab", "./lab"):
        with pytest.raises(DataError):
            next(hub_documents(name, config=None, revision=None, split="train", text_key="text"))
    assert not (here / "ran").exists()


NUMBERS = {
    "to the base of 60": "1" + ":59" * 100_000,
    "a fraction to the base of 60": "1" + ":59" * 100_000 + ".5",
    "with a tag": '!!int "1' + ":59" * 100_000 + '"',
    "hexadecimal": "0x" + "f" * 200_000,
}


@pytest.mark.parametrize("form", NUMBERS)
def test_a_number_that_no_person_writes_is_refused_unread(form: str, tmp_path: Path) -> None:
    """A number to the base of 60 takes quadratic time: 0.4 s for 120 kB, 1.5 s for 240 kB."""
    (tmp_path / "a.yaml").write_text(f"name: a\nrecipe: {NUMBERS[form]}\n")
    assert_refused(marin_scale("ladder", "a.yaml", "--dry-run", cwd=tmp_path), "a.yaml", "line 2", "more than 400")


def test_settings_of_a_site_have_no_number_that_no_person_writes(tmp_path: Path) -> None:
    """They are refused before mkdocs reads them."""
    (tmp_path / "mkdocs.yml").write_text("site_name: 1" + ":59" * 50_000 + "\n")
    with pytest.raises(SiteError, match="400"):
        require_plain_settings(tmp_path)


def test_of_very_many_malformed_lines_the_first_are_named(tmp_path: Path) -> None:
    """A file of 600 kB gave 47 MB of output."""
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "many.jsonl").write_text("x\n" * 1_000_000)
    done = marin_scale("experiment", "validate", cwd=tmp_path)
    assert done.returncode == 1
    assert len(done.stdout) < 400 * MALFORMED_LINES
    assert f"lines after {MALFORMED_LINES}" in done.stdout


def test_of_very_many_findings_the_first_are_shown(tmp_path: Path) -> None:
    """Refusals come first."""
    (tmp_path / "experiments").mkdir()
    many = [{"name": f"e{number}", "title": "t", "outcome": "worked"} for number in range(3000)]
    many[-1]["baseline"] = "nothing"
    (tmp_path / "experiments" / "many.jsonl").write_text("\n".join(map(json.dumps, many)))
    done = marin_scale("experiment", "validate", cwd=tmp_path)
    assert f"{len(many) - EXPERIMENTS_NAMED} more experiments" in done.stdout
    assert done.stdout.startswith("e2999\n")
    assert len(done.stdout) < 400 * EXPERIMENTS_NAMED


@pytest.mark.parametrize("column", ["run", "seed"])
def test_a_very_long_name_of_a_run_is_refused(column: str, tmp_path: Path) -> None:
    """It would be printed with the fit, as long as it is."""
    rows = [{"run": f"r{n}", "flops": n * 1e18, "params": 1e8, "tokens": 1e9, "loss": 3, "seed": "1"} for n in (1, 2, 3)]
    rows[1][column] = "x" * (TEXT_CHARACTERS + 1)
    (tmp_path / "runs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(RunTableError, match=f"line 2.*{column}.*{TEXT_CHARACTERS + 1}"):
        read_run_table(tmp_path / "runs.jsonl")


@pytest.mark.parametrize("name", ["x" * 201, "x" * 255, "\u00e9" * 101], ids=["201", "255", "accents"])
def test_a_name_from_which_no_page_can_be_made_is_refused(name: str, tmp_path: Path) -> None:
    """It is named itself, not a page of it that could not be written."""
    (tmp_path / "runs" / name).mkdir(parents=True)
    with pytest.raises(UnsafeTreeError, match=f"{len(name.encode())} bytes"):
        require_regular_tree([tmp_path / "runs"])


def test_a_page_of_the_longest_name_is_written(tmp_path: Path) -> None:
    """The ladder has a page, and the site is whole."""
    (tmp_path / "runs" / ("x" * 200)).mkdir(parents=True)
    write_generated_pages(tmp_path)
    assert (tmp_path / "site" / "generated" / "ladders" / f"{'x' * 200}.md").is_file()


@pytest.mark.site
def test_a_page_that_takes_markdown_for_ever_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is quadratic: 14 s for 10 kB of open brackets."""
    pytest.importorskip("material", reason="the site extra is not installed")
    make_user_repository(tmp_path)
    (tmp_path / "site" / "x.md").write_text("# x\n\n" + "[" * 30_000)
    monkeypatch.setattr("marin_scaling.publish.build.SITE_SECONDS", 3)
    with pytest.raises(SiteError, match="3 s"):
        build_site(tmp_path)


TIMES = ["9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+14:00"]


@pytest.mark.parametrize("at", TIMES)
def test_a_time_that_other_zones_do_not_have_is_refused(at: str, tmp_path: Path) -> None:
    """In a submission and in a step of an experiment; both have a place in the list of what is malformed."""
    (tmp_path / "speedruns" / "a").mkdir(parents=True)
    document = submission_document()
    document["seeds"][0]["finished_at"] = at
    (tmp_path / "speedruns" / "a" / "submission.json").write_text(json.dumps(document))
    (tmp_path / "experiments" / "a").mkdir(parents=True)
    experiment = {"name": "a", "title": "t", "outcome": "worked", "steps": [{"name": "s", "started_at": at}]}
    (tmp_path / "experiments" / "a" / "experiment.yaml").write_text(json.dumps(experiment))
    write_generated_pages(tmp_path)
    for folder in ("speedrun", "experiments"):
        assert "Malformed" in (tmp_path / "site" / "generated" / folder / "index.md").read_text()


@pytest.mark.parametrize("at", TIMES)
def test_a_time_of_a_run_that_other_zones_do_not_have_is_none(at: str) -> None:
    """No record has it, and no run begins with it."""
    assert not is_moment(at.encode())


def test_a_seal_of_the_last_year_of_the_calendar_is_compared() -> None:
    """There is no time four years after it."""
    document = {"format_version": 1, "kind": "seal", "id": "9999-01-01-x", "by": "ada@example.org", "commitment": "0" * 64}
    until = {"9999-12-31T00:00:00Z": True, "9998-12-31T00:00:00Z": False}
    for reveal_by, is_sound in until.items():
        raw = dump_canonical(document | {"at": "9999-01-01T00:00:00Z", "reveal_by": reveal_by})
        with contextlib.nullcontext() if is_sound else pytest.raises(VerificationError):
            read_seal(raw, name="seal.json")
