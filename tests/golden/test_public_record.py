"""The public forecasts that this repository keeps, against the errors that were computed apart from it."""

from pathlib import Path

import pytest

from marin_scaling.preregistration.public_record import Late, PublicState, public_totals, read_public_record

RECORD = Path(__file__).parents[2] / "preregistrations" / "public-record.csv"
KNOWN = {
    "Delphi 1e21": -0.30,
    "Delphi 1e22": 0.76,
    "Delphi 1e23 (25B, 628B tokens)": 1.93,
    "MoE 1e22 (moe-v7 d3200, 34.6B-A4.7B)": -1.78,
    "MoE 1e23 (129B-A16B)": 0.81,
    "MoE 1e23 (129B-A16B), alternative by VPNLS": 2.73,
    "MoE 67B-A2B 10T, stage 1 (8T tokens)": 0.58,
    "quickstart, 2.4e12 FLOPs (98.6k parameters)": -3.19,
    "quickstart, 2.5e12 FLOPs (98.6k parameters)": -3.63,
    "bytes-dense, 2.4e12 FLOPs": -0.06,
    "bytes-moe, 2.4e12 FLOPs": 19.74,
    "d1536 with a new data mix after 25 % of the run": 0.01,
    "MoE 1e21 (v16, d2560)": -0.03,
}
"""Forecast over observed minus 1, in per cent, to two digits."""


def test_the_errors_of_the_public_forecasts_are_the_known_ones() -> None:
    """Thirteen were scored, each to the digits in which its error was known."""
    scored = {each.run: each.scores.per_cent_of_loss for each in read_public_record(RECORD) if each.scores}
    assert {run: round(error, 2) for run, error in scored.items()} == KNOWN


def test_the_error_of_the_large_mixture_is_small_against_its_loss_and_not_against_what_can_be_reduced() -> None:
    """2.252 for 2.234: 0.81 % of the loss, 2.84 % of what lies above 1.6."""
    (run,) = [each for each in read_public_record(RECORD) if each.run == "MoE 1e23 (129B-A16B)"]
    assert run.scores is not None
    assert run.scores.per_cent_of_reducible_loss == pytest.approx(2.84, abs=0.005)


def test_this_projects_earlier_forecasts_keep_their_intervals_and_the_miss() -> None:
    """Four signed in a format that is no longer read: three held, the mixture's did not."""
    own = [each for each in read_public_record(RECORD) if each.registered_where[0].startswith("bb852e9:")]
    assert [each.held for each in own] == [True, True, True, False]
    assert own[-1].interval == (1.54626, 1.6743)


def test_all_registered_ones_are_counted() -> None:
    """Thirteen scored; open are the 535B run, 19 points of its curve and a run with two forecasts; one issue is empty."""
    totals = public_totals(read_public_record(RECORD))
    assert totals.registered == 36
    assert totals.states == {PublicState.SCORED: 13, PublicState.OPEN: 22, PublicState.EMPTY: 1}
    assert totals.late == {Late.WHOLE: 2, Late.PART: 1}


def test_the_mean_absolute_errors_are_those_of_pen_and_paper() -> None:
    """Of others 0.20805 nats over seven, .00034 and .00069; three of them are late. 0.36180 over this project's four."""
    totals = public_totals(read_public_record(RECORD))
    assert totals.mean_absolute_error == pytest.approx((0.20805 + 0.36180 + 0.00034 + 0.00069) / 13)
    assert totals.mean_absolute_error_late == pytest.approx((0.018 + 0.061 + 0.00034) / 3)
    known = 0.00814 + 0.01921 + 0.0454 + 0.0433 + 0.013 + 0.00069 + 0.36180
    assert totals.mean_absolute_error_of_others == pytest.approx(known / 10)
