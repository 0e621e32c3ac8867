"""What a statement says beside its number: words, a baseline, a test of the number, one run in all files."""

import json
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from registration_factory import (
    CREATED_AT,
    PRINCIPAL,
    evidence,
    forecast_document,
    make_registration,
    store_ladder,
    target_spec,
)
from scipy import stats

from marin_scaling.errors import DocumentError, StatementError
from marin_scaling.ladder.config import Assumption, Promise
from marin_scaling.preregistration.format import LEVELS, SUBJECT_FILES
from marin_scaling.preregistration.register import declared_fields
from marin_scaling.preregistration.registry import read_registration
from marin_scaling.preregistration.statement import derived_fields, line_through_the_best, require_samples_of, thinned

PROMISE = Promise(
    resolver="carol@example.org",
    reviewers=("bob@example.org",),
    due=date(2027, 3, 1),
    void_if=("the evaluation text is withdrawn",),
    assumptions=(Assumption(text="the tokenizer stays", if_false="units change"), Assumption(text="no z-loss")),
    known_differences=("the batch is four times as large",),
    related_runs_seen=("an earlier run of the same size",),
)


def test_what_a_person_says_stands_in_the_statement(tmp_path: Path) -> None:
    """In their own words, each where a reader looks for it."""
    predicate = make_registration(tmp_path, promise=PROMISE).statement.predicate
    assert predicate["reviewers"] == ["bob@example.org"]
    assert predicate["resolution"] == {
        "resolver": "carol@example.org",
        "due": "2027-03-01T23:59:59Z",
        "ifOverdue": "It counts as missed.",
        "voidIf": ["the evaluation text is withdrawn"],
    }
    assert [each["id"] for each in predicate["assumptions"]] == ["A1", "A2"]
    assert predicate["assumptions"][0]["ifFalse"] == "units change"
    assert predicate["recipe"]["knownDifferencesFromLadder"] == ["the batch is four times as large"]
    assert predicate["knowledge"]["relatedRunsSeen"] == ["an earlier run of the same size"]


def test_where_nothing_is_said_the_registrant_resolves_within_half_a_year() -> None:
    """A forecast without a day on which it is due could stay open for ever."""
    said = declared_fields(Promise(), registrant=PRINCIPAL, created_at=CREATED_AT, ladder_rule="all")
    assert said["resolution"]["resolver"] == PRINCIPAL
    assert datetime.fromisoformat(said["resolution"]["due"]) - CREATED_AT == timedelta(days=180)


def test_a_promise_that_is_due_before_it_is_made_is_refused(tmp_path: Path) -> None:
    """It could not be kept."""
    with pytest.raises(StatementError, match="2026-11-01"):
        make_registration(tmp_path, promise=Promise(due=date(2026, 11, 1)))


def test_two_promises_never_have_one_name(tmp_path: Path) -> None:
    """128 random bits, so that a tracker can name the run before anything is signed."""
    said = [declared_fields(Promise(), registrant=PRINCIPAL, created_at=CREATED_AT, ladder_rule="all") for _ in range(2)]
    first, second = (each["targetRun"]["uid"] for each in said)
    assert first != second
    assert len(first) == 32


def test_words_of_two_lines_are_refused() -> None:
    """What steers a terminal is no promise."""
    with pytest.raises(ValueError, match="one line"):
        Promise(void_if=("a\nb",))


def spoiled(rows: list[dict[str, Any]], **changes: Any) -> Any:
    """The factory's evidence with a part exchanged."""
    shown = evidence(rows)
    return {name: changes.get(name, getattr(shown, name)) for name in ("forecast", "losses", "recipe", "target")}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"recipe": {"recipe": "quickstart", "numbers": [], "constants": []}}, "recipe.json gives another recipe"),
        (
            {
                "recipe": {
                    "recipe": "delphi",
                    "numbers": [{"name": "learning_rate", "value": 0.02, "formula": "", "source": ""}],
                    "constants": [],
                }
            },
            "recipe.json gives another learning_rate",
        ),
    ],
)
def test_a_recipe_of_another_run_is_refused(tmp_path: Path, change: Mapping[str, Any], reason: str) -> None:
    """What is shown to the reader must be what is trained."""
    rows = store_ladder(tmp_path / "runs")
    with pytest.raises(StatementError, match=reason):
        make_registration(tmp_path, rows=rows, **spoiled(rows, **change))


@pytest.mark.parametrize("missing", ["backtest", "warnings"])
def test_a_forecast_that_was_not_tested_is_refused(tmp_path: Path, missing: str) -> None:
    """An empty test is one that was made."""
    document = {name: value for name, value in forecast_document().items() if name != missing}
    with pytest.raises(DocumentError, match=missing):
        make_registration(tmp_path, forecast=document)


def test_a_forecast_without_what_it_hangs_on_is_refused(tmp_path: Path) -> None:
    """One number for one choice is what is posted without a tool."""
    document = forecast_document()
    document["predictions"][0]["sensitivity"] = []
    with pytest.raises(StatementError, match="sensitivity"):
        make_registration(tmp_path, forecast=document)


def test_it_is_told_how_far_the_target_lies_beyond_the_ladder(tmp_path: Path) -> None:
    """In FLOPs, parameters and tokens apart: a target may be long and small."""
    rows = store_ladder(tmp_path / "runs")
    beyond = make_registration(tmp_path, rows=rows).statement.predicate["recipe"]["beyondLadder"]
    assert beyond["params"] == target_spec().model.shape().params_total / max(row["params"] for row in rows)
    assert beyond["tokens"] == target_spec().trained_tokens / max(row["tokens"] for row in rows)


def test_the_samples_have_the_quantiles_of_the_forecast(tmp_path: Path) -> None:
    """A thousand of them, rising; of a normal forecast they are its quantiles."""
    registration = make_registration(tmp_path)
    losses = json.loads((registration.folder / "samples.json").read_bytes())["losses"]
    assert len(losses) == 1000
    for level in (0.05, 0.5, 0.95):
        assert np.quantile(losses, level) == pytest.approx(registration.statement.quantiles[level], abs=2e-3)


@given(st.lists(st.floats(0.1, 8.0), min_size=1, max_size=3000))
def test_thinning_keeps_the_mean_and_the_ends(losses: list[float]) -> None:
    """Of however many draws; within what a thousandth of them can carry."""
    kept = thinned(losses)
    assert len(kept) == 1000
    assert kept == sorted(kept)
    assert min(losses) <= kept[0] <= kept[-1] <= max(losses)
    assert np.mean(kept) == pytest.approx(np.mean(losses), abs=(max(losses) - min(losses)) * 2 / min(len(losses), 1000) + 1e-9)


@given(
    st.lists(st.tuples(st.floats(0, 3), st.floats(-0.5, 0.5)), min_size=3, max_size=8, unique_by=lambda each: round(each[0], 2))
)
def test_the_baseline_is_the_textbooks_line(points: list[tuple[float, float]]) -> None:
    """SciPy's least squares, and the formula for a new observation, on the same logarithms."""
    rows = [{"budget_flops": 10**x, "flops": 10**x, "loss": float(np.exp(y))} for x, y in points]
    found = line_through_the_best(rows, flops=1e5)
    x, y = np.log([row["flops"] for row in rows]), np.log([row["loss"] for row in rows])
    line = stats.linregress(x, y)
    at = np.log(1e5)
    variance = ((y - line.slope * x - line.intercept) ** 2).sum() / (len(x) - 2)
    deviation = np.sqrt(variance * (1 + 1 / len(x) + (at - x.mean()) ** 2 / ((x - x.mean()) ** 2).sum()))
    expected = line.slope * at + line.intercept + deviation * stats.norm.ppf(LEVELS)
    np.testing.assert_allclose(np.log(list(found.values())), expected, rtol=1e-6, atol=1e-6)


def test_the_baseline_takes_the_best_run_of_each_budget() -> None:
    """The others are the arms of its bowl."""
    good = [{"budget_flops": c, "flops": c, "loss": 3 * c**-0.1} for c in (1e3, 1e4, 1e5)]
    bad = [{**row, "loss": row["loss"] + 0.1} for row in good]
    assert line_through_the_best(good + bad, flops=1e6) == line_through_the_best(good, flops=1e6)


@pytest.mark.parametrize("count", [1, 2])
def test_of_few_budgets_the_baseline_is_a_point(count: int) -> None:
    """No spread is known; its score is then the absolute error."""
    rows = [{"budget_flops": c, "flops": c, "loss": 3 * c**-0.1} for c in (1e3, 1e4)[:count]]
    assert len(set(line_through_the_best(rows, flops=1e6).values())) == 1


def derive_again(folder: Path, documents: Mapping[str, Any]) -> None:
    """As `verify` does."""
    derived_fields(documents)
    require_samples_of(documents["samples.json"]["losses"], read_registration(folder).quantiles)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda losses: losses[:-1], "does not hold 1000 rising losses"),
        (lambda losses: losses[::-1], "does not hold 1000 rising losses"),
        (lambda losses: [loss - 0.1 for loss in losses], "at the level 0.01, and the forecast"),
        (lambda losses: [*losses[:970], *(loss + 0.2 for loss in losses[970:])], "at the level 0.975, and the forecast"),
    ],
    ids=["one missing", "falling", "all lower", "the upper end higher"],
)
def test_samples_that_tell_another_story_than_the_quantiles_are_refused(
    tmp_path: Path, change: Callable[[list[float]], list[float]], reason: str
) -> None:
    """Also where registrant and tool are one: the statement is derived again by whoever verifies."""
    folder = make_registration(tmp_path).folder
    documents = {name: json.loads((folder / name).read_bytes()) for name in SUBJECT_FILES}
    documents["samples.json"]["losses"] = change(documents["samples.json"]["losses"])
    with pytest.raises(StatementError, match=reason):
        derive_again(folder, documents)


def test_samples_of_another_run_are_refused(tmp_path: Path) -> None:
    """By its FLOPs."""
    folder = make_registration(tmp_path).folder
    documents = {name: json.loads((folder / name).read_bytes()) for name in SUBJECT_FILES}
    documents["samples.json"]["flops"] *= 2
    with pytest.raises(StatementError, match=r"samples\.json.*flops"):
        derived_fields(documents)
