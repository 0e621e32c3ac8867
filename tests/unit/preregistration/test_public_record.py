"""The record of public forecasts: read strictly, scored as points, and never among those that were signed."""

import json
from pathlib import Path
from typing import Any

import pytest
from registration_factory import make_registration
from typer.testing import CliRunner

from marin_scaling.cli.app import app
from marin_scaling.errors import RunTableError
from marin_scaling.preregistration.layout import RECORD_NAME
from marin_scaling.preregistration.public_record import (
    COLUMNS,
    Late,
    PublicForecast,
    PublicState,
    public_totals,
    read_public_record,
)

CELLS = {
    "run": "a run",
    "registered_date": "2026-03-03",
    "registered_where": "https://example.org/issues/1",
    "forecast_loss_nats": "2.4",
    "interval": "none",
    "source": "its post",
}


def write_record(path: Path, *rows: dict[str, str]) -> Path:
    """A record with these rows, each like `CELLS` but for what it says."""
    lines = [",".join((CELLS | row).get(column, "") for column in COLUMNS) for row in rows]
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join([",".join(COLUMNS), *lines]) + "\n", encoding="utf-8")
    return path


def only(tmp_path: Path, **cells: str) -> PublicForecast:
    """The one forecast of a record of one row."""
    (forecast,) = read_public_record(write_record(tmp_path / RECORD_NAME, cells))
    return forecast


def test_the_scores_of_a_point_are_those_that_it_can_have(tmp_path: Path) -> None:
    """Delphi at 1e23: 2.4 was posted and 2.3546 measured, 1.93 % too high, and 10 % of what lies above 1.9."""
    forecast = only(tmp_path, observed_loss_nats="2.3546", asymptote_nats="1.9")
    assert forecast.state is PublicState.SCORED
    assert vars(forecast.scores) == pytest.approx(
        {"crps": 0.0454, "signed_error": 0.0454, "per_cent_of_loss": 1.928, "per_cent_of_reducible_loss": 9.987}, abs=5e-4
    )


def test_what_is_not_stated_is_not_scored(tmp_path: Path) -> None:
    """Without an asymptote no share of the reducible loss, without a value nothing, without a number not even a wait."""
    scores = only(tmp_path, observed_loss_nats="2.3").scores
    assert scores is not None
    assert scores.per_cent_of_reducible_loss is None
    waiting, empty = only(tmp_path), only(tmp_path, forecast_loss_nats="", observed_loss_nats="2.3")
    assert (waiting.state, waiting.scores) == (PublicState.OPEN, None)
    assert (empty.state, empty.scores) == (PublicState.EMPTY, None)


@pytest.mark.parametrize(
    ("posted", "began", "late"),
    [
        ("2026-04-24", "2026-04-11", Late.WHOLE),
        ("2026-04-10/2026-04-13", "2026-04-11", Late.PART),
        ("2026-04-11", "before 2026-04-11", Late.WHOLE),
        ("2026-04-10/2026-04-11", "before 2026-04-11", Late.PART),
        ("2026-04-10", "2026-04-11", None),
        ("2026-04-11", "2026-04-11", None),
        ("2026-04", "2026-04-11", None),
        ("2026-05", "2026-04-11", Late.WHOLE),
        ("2026-04-24", "", None),
        ("", "2026-04-11", None),
    ],
)
def test_only_what_is_known_to_be_late_is_late(tmp_path: Path, posted: str, began: str, late: Late | None) -> None:
    """The same day, the same month, or a start that no source tells may be either."""
    assert only(tmp_path, registered_date=posted, run_began_date=began).late is late


def test_the_denominators_come_first_and_the_late_ones_are_apart(tmp_path: Path) -> None:
    """Five registered: two scored, of which one late; two open, one empty."""
    late = {"registered_date": "2026-04-24", "run_began_date": "2026-04-11"}
    rows: list[dict[str, str]] = [{"observed_loss_nats": "2.3"}, {"observed_loss_nats": "2.7", **late}]
    totals = public_totals(
        read_public_record(write_record(tmp_path / RECORD_NAME, *rows, {}, late, {"forecast_loss_nats": ""}))
    )
    assert totals.registered == 5
    assert totals.states == {PublicState.SCORED: 2, PublicState.OPEN: 2, PublicState.EMPTY: 1}
    assert totals.late == {Late.WHOLE: 2}
    assert totals.mean_absolute_error == pytest.approx(0.2)
    assert totals.mean_absolute_error_late == pytest.approx(0.3)
    assert totals.mean_absolute_error_of_others == pytest.approx(0.1)


def test_an_empty_record_has_no_means(tmp_path: Path) -> None:
    """None, not a number that nobody measured."""
    totals = public_totals(read_public_record(write_record(tmp_path / RECORD_NAME)))
    assert (totals.registered, totals.mean_absolute_error) == (0, None)


@pytest.mark.parametrize(
    ("column", "cell", "said"),
    [
        ("run", "", "is empty"),
        ("registered_where", " ", "is empty"),
        ("source", "", "is empty"),
        ("registered_where", "issue 1337", "holds 'issue'"),
        ("registered_where", "https://example.org/x)[y", "holds 'https://example.org/x)[y'"),
        ("registered_where", "javascript:alert(1)", "holds 'javascript:alert(1)'"),
        ("registered_date", "~2026-03", "which is no date"),
        ("registered_date", "2026-02-30", "which is no date"),
        ("registered_date", "2026-13", "which is no date"),
        ("run_began_date", "2026-04", "which is no date"),
        ("observed_date", "20 May 2026", "which is no date"),
        ("target_flops", "-1e23", "must be above zero"),
        ("forecast_loss_nats", "~2.4", "which is not a number"),
        ("asymptote_nats", "about 1.9", "which is not a number"),
        ("observed_loss_nats", "nan", "holds nan"),
        ("interval", "2.5 to 2.3", "holds '2.5 to 2.3'"),
    ],
)
def test_a_cell_that_cannot_stand_there_is_named_by_file_line_and_column(
    tmp_path: Path, column: str, cell: str, said: str
) -> None:
    """In the second row, which is line 3."""
    path = write_record(tmp_path / RECORD_NAME, {}, {column: cell})
    with pytest.raises(RunTableError) as refused:
        read_public_record(path)
    assert refused.value.what.startswith(f"{path}, line 3, column {column!r} ")
    assert said in refused.value.what


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace("metric,", "", 1), "line 1: column 'metric' is missing"),
        (lambda text: text.replace("source\n", "source,error\n", 1), "line 1: there is no column 'error'"),
        (lambda text: text.replace("its post", "its, post", 1), "line 2 has 14 cells"),
        (lambda text: text + "\n", "line 3 has 0 cells"),
        (lambda text: text + '"open', "is not CSV in UTF-8"),
        (lambda text: text.encode() + b"\xff", "is not CSV in UTF-8"),
        (lambda text: "", "line 1: column 'run' is missing"),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path: Path, change: Any, said: str) -> None:
    """A column too few or too many, a row of another length, or no table at all."""
    path = write_record(tmp_path / RECORD_NAME, {})
    changed = change(path.read_text())
    path.write_bytes(changed if isinstance(changed, bytes) else changed.encode())
    with pytest.raises(RunTableError) as refused:
        read_public_record(path)
    assert said in refused.value.what


def test_a_record_beside_them_changes_nothing_about_those_that_were_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`verify all` and `check all` say the same with it as without it, whatever is in it, and count it in no record."""
    monkeypatch.chdir(tmp_path)
    make_registration(tmp_path)
    without = [said(*command) for command in COMMANDS]
    for content in (b"", b"no record at all", write_record(tmp_path / RECORD_NAME, {"observed_loss_nats": "2.3"}).read_bytes()):
        Path("preregistrations", RECORD_NAME).write_bytes(content)
        assert [said(*command) for command in COMMANDS] == without
    assert "ada@example.org: 1 registered" in without[1]
    assert len(json.loads(without[2])) == 1


COMMANDS = (("verify", "all"), ("check", "all"), ("check", "all", "--json"))


def said(*command: str) -> str:
    """What a command prints when all is well."""
    done = CliRunner().invoke(app, list(command))
    assert done.exit_code == 0, done.output
    return done.stdout
