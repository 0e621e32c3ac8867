"""Registries of other repositories: copied from a commit, verified, and compared."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from git_repository import commit, git
from made_once import made_once
from outside_factory import LOSS, PARAMS, TOKENS, copy_of_registered, write_files, write_key, write_log
from typer.testing import CliRunner

import marin_scaling as ms
from marin_scaling.cli.app import app
from marin_scaling.errors import MarinScalingError, StatementError, UsageError, VerificationError
from marin_scaling.preregistration.imported import ImportedRegistry, imported_registries
from marin_scaling.preregistration.outcome import State
from marin_scaling.publish.build import generated_pages
from marin_scaling.scoring import crps

BOB = "bob@example.org"


@dataclass(frozen=True)
class Two:
    """Two repositories: `here` is the current directory, `there` has a forecast of the same run by somebody else."""

    here: Path
    there: Path

    @property
    def head(self) -> str:
        """The commit checked out there."""
        return _asked(self.there, "HEAD")

    @property
    def forecast(self) -> Path:
        """Bob's forecast."""
        return next((self.there / "preregistrations").glob("*-hero"))

    def take(self, **choices: str) -> ImportedRegistry:
        """Import the registry there as it is committed."""
        return ms.import_registry(str(self.there), **{"commit": self.head, "name": "there", **choices})

    def settle(self) -> None:
        """Bob records the outcome, and commits it."""
        log = str(write_log(self.there))
        quiet = {"on_message": lambda _: None}
        ms.record_outcome(self.forecast, log, registry=self.forecast.parent, key=self.there / "key", signer=BOB, **quiet)
        commit(self.there)


def _asked(root: Path, name: str) -> str:
    return subprocess.run(["git", "rev-parse", name], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


def _make(place: Path) -> None:
    place.mkdir()
    write_files(place)
    write_key(place / "key", number=1)
    with contextlib.chdir(place):
        ms.preregister_table("runs.csv", "hero.yaml", key="key", signer=BOB, on_message=lambda _: None)
    git(place, "init", "-q", "-b", "main")
    commit(place)


@pytest.fixture
def two(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Two:
    """Ada's forecast here, Bob's there."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    copy_of_registered(here, factory=tmp_path_factory)
    shutil.copytree(made_once("outside-registered-by-bob", _make, factory=tmp_path_factory), there)
    monkeypatch.chdir(here)
    return Two(here=here, there=there)


def files_below(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_registry_is_copied_byte_by_byte(two: Two) -> None:
    assert files_below(two.take().folder) == files_below(two.there / "preregistrations")


def test_the_tree_is_that_of_git(two: Two) -> None:
    """Also with a file that is marked as a program."""
    (two.there / "preregistrations/allowed_signers").chmod(0o755)
    commit(two.there)
    assert two.take().source.tree == _asked(two.there, "HEAD:preregistrations")


def test_importing_again_changes_nothing(two: Two) -> None:
    before = two.take() and files_below(Path("registries"))
    two.take()
    assert files_below(Path("registries")) == before


def test_an_outcome_there_scores_the_forecast_here(two: Two) -> None:
    two.settle()
    two.take()
    frame = ms.compare_forecasts()
    assert sorted(zip(frame.registry, frame.state, frame.observed, strict=True)) == [
        ("here", State.PENDING, LOSS),
        ("there", State.HELD, LOSS),
    ]
    (own,) = Path("preregistrations").glob("*-hero/statement.json")
    quantiles = json.loads(own.read_bytes())["predicate"]["forecast"]["quantiles"]
    expected = crps({float(level): value for level, value in sorted(quantiles.items())}, observed=LOSS)
    assert frame[frame.registry == "here"].crps.item() == pytest.approx(expected)


def test_the_better_forecast_comes_first(two: Two) -> None:
    two.settle()
    two.take()
    assert ms.compare_forecasts().crps.is_monotonic_increasing


def test_without_an_import_nothing_is_compared(two: Two) -> None:
    assert ms.compare_forecasts().empty


def test_a_forecast_in_two_registries_counts_once(two: Two) -> None:
    two.take()
    two.take(name="there-again")
    assert sorted(ms.compare_forecasts().registry) == ["here", "there"]


def test_a_later_commit_replaces_the_copy(two: Two) -> None:
    assert [each.state for each in two.take().verdicts] == [State.PENDING]
    two.settle()
    assert [each.state for each in two.take().verdicts] == [State.HELD]


def test_an_earlier_commit_does_not(two: Two) -> None:
    first = two.head
    two.settle()
    two.take()
    before = files_below(Path("registries"))
    with pytest.raises(VerificationError):
        two.take(commit=first)
    assert files_below(Path("registries")) == before


def test_a_changed_copy_is_refused(two: Two) -> None:
    path = two.take().folder / "allowed_signers"
    path.write_bytes(path.read_bytes() + b"# one more line\n")
    with pytest.raises(VerificationError, match=r"marin-scale registry import"):
        imported_registries()


def test_a_file_that_is_added_to_a_copy_is_refused(two: Two) -> None:
    (two.take().folder / "policy.yaml").write_text("reviewers: 1\n")
    with pytest.raises(VerificationError):
        imported_registries()


def test_a_forged_forecast_is_kept_as_refused(two: Two) -> None:
    """Its maintainers committed it; hiding it would hide what they did."""
    path = two.forecast / "forecast.json"
    path.write_bytes(path.read_bytes().replace(b"2.", b"1.", 1))
    commit(two.there)
    assert [each.state for each in two.take().verdicts] == [State.REFUSED]
    assert ms.compare_forecasts().empty


def test_a_forecast_that_the_log_has_lost_refuses_the_registry(two: Two) -> None:
    shutil.rmtree(two.forecast)
    commit(two.there)
    with pytest.raises(VerificationError):
        two.take()
    assert not list(Path("registries").iterdir())


def test_an_outcome_that_the_log_has_and_the_folder_lost_refuses_the_forecast(two: Two) -> None:
    """Else a miss would be a forecast to come, scored by the outcome of somebody else."""
    two.settle()
    (two.forecast / "outcome.json").unlink()
    shutil.rmtree(two.forecast / "observed")
    commit(two.there)
    assert [each.state for each in two.take().verdicts] == [State.REFUSED]


def test_check_refuses_an_outcome_that_the_log_has_and_the_folder_lost(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    two.settle()
    (two.forecast / "outcome.json").unlink()
    shutil.rmtree(two.forecast / "observed")
    monkeypatch.chdir(two.there)
    with pytest.raises(VerificationError):
        ms.check(two.forecast.name)


def sign_here(two: Two, **changes: object) -> None:
    """A further forecast of the run here, by Carol."""
    write_files(two.here, **changes)
    write_key(two.here / "carol", number=2)
    quiet = {"on_message": lambda _: None}
    ms.preregister_table("runs.csv", "hero.yaml", key="carol", signer="carol@example.org", slug="hero-by-carol", **quiet)


def test_a_run_with_an_imported_outcome_cannot_be_forecast(two: Two) -> None:
    two.settle()
    two.take()
    with pytest.raises(StatementError):
        sign_here(two)


def test_a_forecast_signed_after_the_outcome_is_not_scored(two: Two) -> None:
    """It could be signed, since the outcome was not imported yet."""
    two.settle()
    time.sleep(1.1)
    sign_here(two)
    two.take()
    frame = ms.compare_forecasts().set_index("registrant")
    assert np.isnan(frame.crps["carol@example.org"])
    assert "after the outcome" in frame.note["carol@example.org"]
    assert frame.crps["ada@example.org"] > 0


def test_a_forecast_of_another_size_is_not_scored(two: Two) -> None:
    sign_here(two, tokens=TOKENS / 2, flops=6 * PARAMS * TOKENS / 2)
    two.settle()
    two.take()
    frame = ms.compare_forecasts().set_index("registrant")
    assert np.isnan(frame.crps["carol@example.org"])
    assert "another size" in frame.note["carol@example.org"]


def test_registries_that_disagree_are_named_and_lend_no_outcome(two: Two) -> None:
    two.settle()
    sign_here_first = ms.record_outcome(
        next(Path("preregistrations").glob("*-hero")),
        str(write_log(two.here, loss=LOSS * 1.01)),
        key="key",
        signer="ada@example.org",
        on_message=lambda _: None,
    )
    two.take()
    frame = ms.compare_forecasts()
    assert sign_here_first.outcome is not None
    assert sorted(frame.observed) == pytest.approx([LOSS, LOSS * 1.01])
    assert all("disagree" in note for note in frame.note)


def test_a_copy_without_its_source_is_refused(two: Two) -> None:
    (two.take().folder.parent / "source.json").unlink()
    with pytest.raises(VerificationError):
        ms.compare_forecasts()


def test_a_copy_is_continued_from_its_own_address(two: Two, tmp_path: Path) -> None:
    two.take()
    moved = two.there.rename(tmp_path / "moved")
    with pytest.raises(VerificationError):
        ms.import_registry(str(moved), commit=_asked(moved, "HEAD"), name="there")


def test_a_link_in_a_registry_is_refused(two: Two) -> None:
    path = two.there / "preregistrations/public-record.csv"
    path.symlink_to("/etc/hostname")
    commit(two.there)
    with pytest.raises(VerificationError):
        two.take()
    assert not Path("registries").exists()


@pytest.mark.parametrize(
    "choices",
    [
        {"commit": "main"},
        {"commit": "0123abc"},
        {"commit": "f" * 40},
        {"name": "../there"},
        {"name": "UPPER"},
        {"name": ".hidden"},
    ],
)
def test_a_wrong_commit_or_name_is_refused(two: Two, choices: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        two.take(**choices)
    assert not Path("registries").exists()


def test_a_repository_without_a_registry_is_refused(two: Two) -> None:
    git(two.there, "rm", "-rq", "preregistrations")
    commit(two.there)
    with pytest.raises(UsageError):
        two.take()


@pytest.mark.parametrize(
    "address", ["ext::touch ran", "--upload-pack=touch ran", "fd::17", "no/such/place", "http://127.0.0.1:1/x"]
)
def test_an_address_runs_no_program(two: Two, address: str) -> None:
    with pytest.raises(MarinScalingError):
        ms.import_registry(address, commit=two.head, name="there")
    assert not Path("ran").exists()
    assert not Path("registries").exists()


def test_hooks_and_filters_of_a_repository_do_not_run(two: Two) -> None:
    (two.there / ".gitattributes").write_text("* filter=evil\n")
    git(two.there, "config", "filter.evil.smudge", f"touch {two.here}/ran")
    hook = two.there / ".git/hooks/post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {two.here}/ran\n")
    hook.chmod(0o755)
    commit(two.there)
    two.take()
    assert not Path("ran").exists()


def test_check_all_prints_both_forecasts_within_80_columns(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    two.settle()
    monkeypatch.setenv("COLUMNS", "80")
    done = CliRunner().invoke(app, ["registry", "import", str(two.there), "--commit", two.head, "--name", "there"])
    assert done.exit_code == 0
    assert "registries/there" in done.stdout
    printed = CliRunner().invoke(app, ["check", "all"]).stdout
    assert f"observed {LOSS:.4f}" in printed
    assert {"ada@example.org, here", f"{BOB}, there"} <= {line.split("  ")[-1].strip() for line in printed.splitlines()}
    assert max(map(len, printed.splitlines())) <= 80


def test_the_index_shows_imported_forecasts(two: Two) -> None:
    two.settle()
    two.take()
    index = generated_pages(two.here)["index.md"].decode()
    assert two.head[:12] in index
    assert index.count("bob") == 2  # among the forecasts of one run, and in the registry
    assert f"{LOSS:.4f}" in index


def test_the_index_names_a_changed_copy(two: Two) -> None:
    (two.take().folder / "allowed_signers").write_text("")
    assert "source.json" in generated_pages(two.here)["index.md"].decode()


@pytest.mark.parametrize(
    "address", ["https://x.example/](javascript:alert(1))<script>alert(1)</script>", "`<img src=x onerror=alert(1)>`|"]
)
def test_an_address_cannot_become_markup(two: Two, address: str) -> None:
    """It comes with a pull request, like everything in a copy."""
    path = two.take().folder.parent / "source.json"
    document = json.loads(path.read_bytes())
    path.write_text(json.dumps(document | {"address": address}))
    shown = generated_pages(two.here)["index.md"].decode().partition("## Registries of other repositories")[2]
    assert two.head[:12] in shown
    assert not any(sign in shown for sign in ("<script", "<img", "](javascript"))
