"""Deviations of outside runs: the first forecast is scored with words about them; a forecast under one is a row of its own."""

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from outside_factory import LOSS, PARAMS, PRINCIPAL, RUN, TOKENS, copy_of_registered, write_key, write_part
from typer.testing import CliRunner

from marin_scaling.cli.app import app
from marin_scaling.errors import MarinScalingError, SigningError, UsageError
from marin_scaling.preregistration.outcome import State, Verdict
from marin_scaling.preregistration.outside import record_outcome
from marin_scaling.preregistration.preregister import sign_notice
from marin_scaling.preregistration.registry import allow_signer, read_registration
from marin_scaling.preregistration.signing.keys import load_signing_key
from marin_scaling.preregistration.track_record import track_records
from marin_scaling.preregistration.verdict import check
from marin_scaling.publish.forecast_page import forecast_page
from marin_scaling.scoring import score

WHOLE = range(10, 201, 10)


@pytest.fixture
def root(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a signed forecast, as the current folder."""
    copy_of_registered(tmp_path, factory=tmp_path_factory)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def folder(root: Path) -> Path:
    """The folder of the forecast."""
    return next((root / "preregistrations").glob("*-hero"))


def record(folder: Path, log: str) -> Verdict:
    return record_outcome(folder, log, key="key", signer=PRINCIPAL, on_message=lambda _: None)


def deviate(folder: Path, *, signer: str = PRINCIPAL, key: str = "key", **content) -> Path:
    """A signed notice that the mix changed, from step 54 if nothing else is said."""
    content = {"from_step": 54, **content}
    return sign_notice(
        folder, "deviate", reason="a new mix", key=Path(key), signer=signer, on_message=lambda _: None, **content
    )


def forecast_file(
    folder: Path, *, by: float = 0.0, metric: str = "nats_per_token", count: int = 1, flops: float = 6 * PARAMS * TOKENS
) -> Path:
    """A file as `fit --json` writes it, with the signed quantiles moved."""
    quantiles = {f"{level:g}": value + by for level, value in read_registration(folder).quantiles.items()}
    Path("forecast.json").write_text(
        json.dumps({"metric": metric, "predictions": [{"flops": flops, "quantiles": quantiles}] * count})
    )
    return Path("forecast.json")


def test_the_first_forecast_is_scored_with_words_about_the_deviation(folder: Path, root: Path) -> None:
    """Its place, its day, and the day of the signature; the scores are those of the statement."""
    deviate(folder, from_step=None, from_tokens=0.27 * TOKENS, changed_on="2026-11-20")
    words = "from 5.40B tokens on 2026-11-20"
    assert words in check(folder).sentence
    verdict = record(folder, write_part(root, RUN, WHOLE))
    assert verdict.state is State.HELD
    assert words in verdict.sentence
    assert f"signed {datetime.now(UTC):%Y-%m-%d})" in verdict.sentence
    assert verdict.outcome["scores"]["crps"] == pytest.approx(score(read_registration(folder).quantiles, observed=LOSS).crps)
    page = next(text.decode() for name, text in forecast_page(root, folder).files.items() if name.endswith(".md"))
    assert "left the recipe from 5.40B tokens" in page


def test_a_forecast_under_a_deviation_is_scored_in_a_row_of_its_own(folder: Path, root: Path) -> None:
    """Neither the outcome nor the record of its registrant has it."""
    deviate(folder, forecast=forecast_file(folder, by=0.3), steps_seen=60)
    assert "conditional on notice-1-deviate" in check(folder).sentence
    time.sleep(1.1)  # times are in whole seconds
    verdict = record(folder, write_part(root, RUN, WHOLE))
    (later,) = verdict.amendments
    assert verdict.outcome["scores"]["hit"]
    assert not later["scores"]["hit"]
    assert (later["name"], later["steps_seen"]) == ("conditional on notice-1-deviate", 60)
    (record_of,) = track_records([verdict])
    assert (record_of.settled, record_of.counts) == (1, {State.HELD: 1})
    page = next(text.decode() for name, text in forecast_page(root, folder).files.items() if name.endswith(".md"))
    assert "conditional on notice-1-deviate" in page


def test_a_forecast_after_the_end_of_the_run_is_not_scored(folder: Path, root: Path) -> None:
    """By the times of the log."""
    deviate(folder, forecast=forecast_file(folder), steps_seen=60)
    log = write_part(root, RUN, (199, 200), timestamp=read_registration(folder).created_at.isoformat())
    (later,) = record(folder, log).amendments
    assert later["scores"] is None
    assert "after the run had ended" in later["why_not_scored"]


def test_after_the_outcome_a_deviation_is_named_as_such(folder: Path, root: Path) -> None:
    """And takes no forecast."""
    record(folder, write_part(root, RUN, WHOLE))
    with pytest.raises(UsageError):
        deviate(folder, forecast=forecast_file(folder), steps_seen=60)
    time.sleep(1.1)  # times are in whole seconds
    deviate(folder)
    assert "after the outcome" in check(folder).sentence


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ({"from_step": None}, "neither"),
        ({"from_tokens": 1.0}, "from_step and from_tokens"),
        ({"from_step": None, "from_tokens": TOKENS}, "2e\\+10 tokens"),
        ({"changed_on": "yesterday"}, "changed_on"),
        ({"changed_on": "2999-01-01"}, "2999-01-01"),
        ({"forecast": {"metric": "bits_per_byte"}, "steps_seen": 1}, "bits_per_byte"),
        ({"forecast": {"count": 2}, "steps_seen": 1}, "2 forecasts"),
        ({"forecast": {"flops": 1.3e17}, "steps_seen": 1}, "1.3e17"),
        ({"forecast": {"by": -9.0}, "steps_seen": 1}, "outside"),
        ({"forecast": {}}, "--steps-seen"),
    ],
)
def test_a_deviation_that_cannot_be_is_refused(folder: Path, content: dict, named: str) -> None:
    """Nothing is written."""
    before = sorted(folder.rglob("*"))
    if "forecast" in content:
        content = {**content, "forecast": forecast_file(folder, **content["forecast"])}
    with pytest.raises(MarinScalingError, match=named):
        deviate(folder, **content)
    assert sorted(folder.rglob("*")) == before


def test_one_deviation_is_signed_once(folder: Path) -> None:
    """The same place and words again are refused with the standing notice; another place is another deviation."""
    first = deviate(folder)
    with pytest.raises(SigningError, match=first.name):
        deviate(folder)
    assert deviate(folder, from_step=55).name == "notice-2-deviate"


def test_only_the_registrant_forecasts_under_a_deviation(folder: Path, root: Path) -> None:
    """Anyone who may sign reports one."""
    write_key(root / "other", number=7)
    known = load_signing_key(root / "other", note="").public_key
    allow_signer(folder.parent, principal="bob@example.org", key=known, at=datetime.now(UTC) - timedelta(days=1))
    bob = {"signer": "bob@example.org", "key": "other"}
    with pytest.raises(MarinScalingError, match="bob"):
        deviate(folder, forecast=forecast_file(folder), steps_seen=1, **bob)
    assert deviate(folder, **bob).is_dir()


def test_the_commands_write_and_sign_the_forecast(folder: Path) -> None:
    """From the table of runs, as typed."""
    Path("changed.csv").write_text(f"params,tokens\n{PARAMS},{TOKENS}\n")
    made = CliRunner().invoke(app, ["fit", "runs.csv", "--predict-runs", "changed.csv", "--json"])
    assert made.exit_code == 0, made.output
    Path("forecast.json").write_text(made.stdout)
    said = ["registry", "deviate", folder.name, "--from-tokens", "5.4e9", "--on", "2026-11-20", "--reason", "a new mix"]
    done = CliRunner().invoke(
        app, [*said, "--forecast", "forecast.json", "--steps-seen", "60", "--key", "key", "--as", PRINCIPAL]
    )
    assert done.exit_code == 0, str(done.exception)
    assert check(folder).amendments[0]["point"] == pytest.approx(LOSS, rel=0.05)
