"""Forgeries of forecast curves, by a registrant who signs and logs again what he likes, and by others."""

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from forgery import edited, log_now, refused, said_by, sign_again
from git_repository import branch_off, commit
from made_once import made_once
from outside_factory import LOSS, PRINCIPAL, register_with_curves, write_curve_log
from typer.testing import CliRunner

from marin_scaling.cli.app import app
from marin_scaling.preregistration.outside import record_outcome


def make(root: Path) -> None:
    """A repository with a forecast of a whole curve."""
    root.mkdir()
    register_with_curves(root)


@pytest.fixture
def root(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(made_once("outside-curves", make, factory=tmp_path_factory), tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.fixture
def folder(root: Path) -> Path:
    """The folder of the forecast."""
    return next((root / "preregistrations").glob("*-hero"))


def promise_again(folder: Path, name: str, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a file, sign all of it again, and log it as received just now."""
    sign_again(folder, files=edited(folder, name, change))
    log_now(folder.parent)


def rows_of(forecast: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of the signed curve."""
    (prediction,) = forecast["predictions"]
    rows: list[dict[str, Any]] = prediction["curve"]
    return rows


def widened(forecast: dict[str, Any]) -> None:
    """Make every band twice as wide, so that no loss can be outside."""
    for row in rows_of(forecast):
        middle = row["quantiles"]["0.5"]
        row["quantiles"] = {level: middle + 2 * (value - middle) for level, value in row["quantiles"].items()}


def lowered(forecast: dict[str, Any]) -> None:
    """Lower one mark by a tenth of its interval."""
    quantiles = rows_of(forecast)[9]["quantiles"]
    quantiles["0.05"] -= 0.1 * (quantiles["0.95"] - quantiles["0.05"])


FORECASTS: dict[str, Callable[[dict[str, Any]], object]] = {
    "wider bands": widened,
    "one lower mark": lowered,
    "without a mark": lambda said: rows_of(said).pop(3),
    "a mark twice": lambda said: rows_of(said).append(rows_of(said)[-1]),
    "marks in another order": lambda said: rows_of(said).reverse(),
    "marks at other shares": lambda said: rows_of(said)[0].update(fraction=0.04),
    "without a level": lambda said: rows_of(said)[0]["quantiles"].pop("0.05"),
    "another level": lambda said: rows_of(said)[0]["quantiles"].update({"0.01": 2.0}),
    "a negative loss": lambda said: rows_of(said)[0]["quantiles"].update({"0.05": -1.0}),
    "no curve at all": lambda said: said["predictions"][0].pop("curve"),
}


@pytest.mark.parametrize("name", FORECASTS)
def test_another_curve_than_that_of_the_runs_is_refused(root: Path, folder: Path, name: str) -> None:
    """Though its registrant has signed and logged it."""
    promise_again(folder, "forecast.json", FORECASTS[name])
    status, said = said_by("verify", root)
    assert status == 1
    assert "curve" in said or "quantiles" in said


def first_curve(ladder: dict[str, Any]) -> dict[str, Any]:
    """The curve of the first run."""
    curve: dict[str, Any] = ladder["curves"]["runs"][0]
    return curve


LADDERS: dict[str, Callable[[dict[str, Any]], object]] = {
    "a loss of a run": lambda said: first_curve(said)["losses"].__setitem__(4, 9.9),
    "a curve left out": lambda said: said["curves"]["runs"].pop(0),
    "a curve of an unknown run": lambda said: first_curve(said).update(run="someone"),
    "two curves of one run": lambda said: said["curves"]["runs"].append(first_curve(said)),
    "a hidden part of a curve": lambda said: first_curve(said).update(losses=[None] * 10 + first_curve(said)["losses"][10:]),
    "a longer curve": lambda said: first_curve(said)["losses"].append(2.0),
    "another table": lambda said: said["curves"].update(path="runs.csv"),
    "a table elsewhere": lambda said: said["curves"].update(path="../curves.csv"),
    "another digest": lambda said: said["curves"].update(sha256="0" * 64),
    "other columns": lambda said: said["curves"].update(columns={"loss": "step"}),
    "no curves": lambda said: said.pop("curves"),
}


@pytest.mark.parametrize("name", LADDERS)
def test_other_curves_than_those_of_the_table_are_refused(root: Path, folder: Path, name: str) -> None:
    """Though its registrant has signed and logged them."""
    promise_again(folder, "ladder.json", LADDERS[name])
    assert said_by("verify", root)[0] == 1


def test_a_table_of_curves_that_was_changed_is_refused(root: Path) -> None:
    """With both digests."""
    path = root / "curves.csv"
    path.write_text(path.read_text().replace("3.", "3.1", 1))
    refused(root, "curves.csv was changed after signing")


def test_a_link_in_place_of_the_table_is_refused(root: Path) -> None:
    """It could be pointed elsewhere later."""
    (root / "curves.csv").rename(root / "other.csv")
    (root / "curves.csv").symlink_to("other.csv")
    assert said_by("verify", root)[0] == 1


def test_a_pull_request_that_changes_the_table_of_curves_is_refused(root: Path) -> None:
    """Its review names the file, though the forecast's folder is untouched."""
    branch_off(root)
    (root / "curves.csv").write_text((root / "curves.csv").read_text().replace("3.", "3.1", 1))
    commit(root)
    with contextlib.chdir(root):
        done = CliRunner().invoke(app, ["review", "--base", "main"])
    assert done.exit_code == 1
    assert "curves.csv was changed after signing" in " ".join(done.output.split())


def observed(root: Path, folder: Path) -> Path:
    """The signed reading of the run's log."""
    log = write_curve_log(root)
    record_outcome(folder, str(log), registry=folder.parent, key=root / "key", signer=PRINCIPAL, on_message=lambda _: None)
    return folder / "observed" / "observed.json"


def test_an_edited_curve_of_the_run_is_refused(root: Path, folder: Path) -> None:
    """The signature of the reading covers it."""
    path = observed(root, folder)
    document = json.loads(path.read_bytes())
    path.write_bytes(path.read_bytes().replace(repr(document["curve"][3]).encode(), repr(LOSS).encode()))
    assert said_by("verify", root)[0] == 1


def test_a_followed_forecast_that_was_edited_is_refused(root: Path, folder: Path) -> None:
    """`track` does not compare a run with a band that nobody signed."""
    path = folder / "forecast.json"
    path.write_bytes(path.read_bytes().replace(b'"0.5"', b'"0.6"'))
    with contextlib.chdir(root):
        done = CliRunner().invoke(app, ["track", folder.name, "--log", str(write_curve_log(root, done=0.5))])
    assert done.exit_code == 1


def test_another_estimate_of_a_final_loss_is_refused(root: Path, folder: Path) -> None:
    """A registrant may not say that a run of the table was to be completed, to give it another loss."""

    def completed(ladder: dict[str, Any]) -> None:
        ladder["curves"]["complete"] = [ladder["rows"][0]["run"]]
        ladder["rows"][0]["loss"] *= 0.99

    promise_again(folder, "ladder.json", completed)
    assert said_by("verify", root)[0] == 1
