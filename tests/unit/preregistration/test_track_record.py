"""How a registrant's forecasts have done: all of them are in the denominator, and few of them say little."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from marin_scaling.preregistration.outcome import State, Verdict
from marin_scaling.preregistration.track_record import exact_interval, record_text, track_records


def verdict(
    state: State, *, pit: float | None = None, skill: float | None = None, who: str | None = "ada@example.org"
) -> Verdict:
    """One forecast that came out as it says."""
    scores = None if pit is None else {"pit": pit, "hit": 0.05 <= pit <= 0.95}
    outcome: dict[str, Any] | None = (
        {"scores": scores, "baseline": {"skill": skill}} if state in (State.HELD, State.MISSED) else None
    )
    return Verdict(id="x", state=state, sentence="", outcome=outcome, registrant=who)


def test_every_forecast_is_counted_and_what_is_not_there_is_missed() -> None:
    """Two held, one missed, one diverged, one overdue, one pending; and one that nobody signed."""
    verdicts = [
        verdict(State.HELD, pit=0.5, skill=0.8),
        verdict(State.HELD, pit=0.93, skill=0.2),
        verdict(State.MISSED, pit=0.99),
        verdict(State.MISSED),
        verdict(State.OVERDUE),
        verdict(State.PENDING),
        verdict(State.REFUSED, who=None),
    ]
    ada, nobody = track_records(verdicts)
    assert (ada.settled, ada.inside_90, ada.inside_50) == (5, 2, 1)
    assert ada.pit_histogram == (0, 0, 1, 0, 2)
    assert nobody.counts == {State.REFUSED: 1}
    assert record_text(ada).splitlines() == [
        "ada@example.org: 6 registered: 1 pending, 1 overdue, 2 held, 2 missed, 0 refused",
        "  in their 90 % intervals 2 of 5 (exact 95 % interval of the share 5% to 85%), in their 50 % intervals 1",
        "  observed values by fifths of their forecasts: 0 0 1 0 2; mean skill +0.50 over 2 with a baseline",
    ]
    assert record_text(nobody) == "not authentic: 1 registered: 0 pending, 0 overdue, 0 held, 0 missed, 1 refused"


def test_the_interval_of_nine_in_ten_is_the_textbooks() -> None:
    """Clopper & Pearson's for 9 of 10, as every table of it has."""
    assert exact_interval(9, 10) == pytest.approx((0.5550, 0.9975), abs=5e-5)


@settings(max_examples=40)
@given(st.integers(1, 30), st.floats(0.01, 0.99))
def test_the_exact_interval_covers_at_least_as_often_as_it_says(count: int, share: float) -> None:
    """Whatever the true share is: the sum of the probabilities of all counts whose interval holds it."""
    covered = sum(
        stats.binom.pmf(hits, count, share)
        for hits in range(count + 1)
        if exact_interval(hits, count)[0] <= share <= exact_interval(hits, count)[1]
    )
    assert covered >= 0.95 - 1e-9
