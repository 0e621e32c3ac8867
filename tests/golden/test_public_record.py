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
}
"""Forecast over observed minus 1, in per cent, to two digits."""


def test_the_errors_of_the_public_forecasts_are_the_known_ones() -> None:
    """Seven were scored, each to the digits in which its error was known."""
    scored = {each.run: each.scores.per_cent_of_loss for each in read_public_record(RECORD) if each.scores}
    assert {run: round(error, 2) for run, error in scored.items()} == KNOWN


def test_the_error_of_the_large_mixture_is_small_against_its_loss_and_not_against_what_can_be_reduced() -> None:
    """2.252 for 2.234: 0.81 % of the loss, 2.84 % of what lies above 1.6."""
    (run,) = [each for each in read_public_record(RECORD) if each.run == "MoE 1e23 (129B-A16B)"]
    assert run.scores is not None
    assert run.scores.per_cent_of_reducible_loss == pytest.approx(2.84, abs=0.005)


def test_nine_were_registered_and_all_are_counted() -> None:
    """Seven scored, the 535B run open, an empty issue; two posted after their run began, of one the fit before."""
    totals = public_totals(read_public_record(RECORD))
    assert totals.registered == 9
    assert totals.states == {PublicState.SCORED: 7, PublicState.OPEN: 1, PublicState.EMPTY: 1}
    assert totals.late == {Late.WHOLE: 1, Late.PART: 1}


def test_the_mean_absolute_errors_are_those_of_pen_and_paper() -> None:
    """0.20805 nats over seven; 0.018 and 0.061 of those are of the two that were posted late."""
    totals = public_totals(read_public_record(RECORD))
    assert totals.mean_absolute_error == pytest.approx(0.20805 / 7)
    assert totals.mean_absolute_error_late == pytest.approx((0.018 + 0.061) / 2)
    assert totals.mean_absolute_error_of_others == pytest.approx((0.00814 + 0.01921 + 0.0454 + 0.0433 + 0.013) / 5)
