"""A board: who is where on which axis, who beats whom, what was a record, and what one run's chance is."""

import json
from datetime import timedelta
from pathlib import Path

import pytest
from submission_factory import FINISHED_AT, SHAPE, changed, seed_document, submission, submission_document

from marin_scaling.recipe.model_shape import WITH_LM_HEAD, training_flops
from marin_scaling.speedrun.checks import validate
from marin_scaling.speedrun.leaderboard import Board, boards, pooled_noise, record_history
from marin_scaling.speedrun.submission import Submission, read_submissions

ROOT = Path(__file__).parents[3]
NOW = FINISHED_AT + timedelta(days=9)
UNKNOWN = {"compute.hardware": "not told", "compute.cost_usd": "not told"}


def entry(name: str, *, losses: tuple[float, ...], day: int = 0, seconds: float = 1200.0, **changes: object) -> Submission:
    """A submission that costs what all cost, but for its time; each with runs of its own."""
    seeds = [
        seed_document(
            seed=number,
            bits_per_byte=loss,
            training_seconds=seconds,
            hardware_flops=seconds * 16 * 459e12,
            finished_at=(FINISHED_AT + timedelta(days=day)).isoformat(),
            log=f"https://example.org/{name}/{number}",
            log_sha256=f"{hash((name, number)) % 2**256:064x}",
        )
        for number, loss in enumerate(losses)
    ]
    return submission(name=name, seeds=seeds, **changes)


def board_of(*submissions: Submission) -> Board:
    """The one board of these."""
    (board,) = boards(validate(submissions, at=NOW))
    return board


def test_who_is_as_cheap_and_better_beats_and_a_faster_one_stays_on_the_front_of_time() -> None:
    """Two axes, two answers."""
    good, fast = entry("good", losses=(1.1,)), entry("fast", losses=(1.2,), seconds=600.0, day=1)
    first, second = board_of(fast, good).rows
    assert (first.submission.name, first.beaten_by) == ("good", None)
    assert first.on_front == (
        "model FLOPs",
        "hardware FLOPs",
        "chip-seconds",
        "seconds",
        "US dollars",
        "parameters",
        "trained tokens",
    )
    assert (second.submission.name, second.beaten_by) == ("fast", "good")
    assert second.on_front == ("hardware FLOPs", "chip-seconds", "seconds")


def test_a_record_is_what_nobody_beat_when_it_came() -> None:
    """In the order of time, not of names or files."""
    late, early, middle = (
        entry(name, losses=(loss,), day=day) for name, loss, day in (("a", 1.3, 3), ("b", 1.4, 1), ("c", 1.2, 2))
    )
    assert {each.submission.name: each.record for each in board_of(late, early, middle).rows} == {
        "a": False,
        "b": True,
        "c": True,
    }


def test_each_record_says_what_lay_behind_the_front_then() -> None:
    """The first has the highest cost and loss: nothing. Then a decade of cost times .1, and times .3."""
    data = submission_document()["data"]
    dear, cheap, better = (
        entry(
            name,
            losses=(loss,),
            day=day,
            compute={"model_flops": training_flops(SHAPE, tokens=tokens, convention=WITH_LM_HEAD)},
            data={**data, "trained_tokens": tokens},
            absent=UNKNOWN,
        )
        for name, loss, day, tokens in (("dear", 1.4, 1, 10**9), ("cheap", 1.3, 2, 10**8), ("better", 1.1, 3, 10**8))
    )
    history = record_history([better, cheap, dear])
    assert [each.submission.name for each in history] == ["dear", "cheap", "better"]
    assert [each.hypervolume for each in history] == pytest.approx([0.0, 0.1, 0.3])


def test_the_noise_of_one_run_is_pooled_over_seeds() -> None:
    """Variances 2e-4 with one degree of freedom and 1e-4 with two: the square root of 4e-4 / 3."""
    two, three, one = entry("two", losses=(1.0, 1.02)), entry("three", losses=(1.0, 1.01, 1.02)), entry("one", losses=(1.5,))
    assert pooled_noise([two, three, one]) == pytest.approx((4e-4 / 3) ** 0.5)
    assert pooled_noise([one]) is None


def test_within_noise_of_the_front_is_tied() -> None:
    """Neither of the two is better for certain, and both say so."""
    best, close, far = entry("best", losses=(1.10, 1.102)), entry("close", losses=(1.103,)), entry("far", losses=(1.2,))
    tied = {each.submission.name: each.tied for each in board_of(best, close, far).rows}
    assert "model FLOPs" in tied["close"]
    assert "model FLOPs" in tied["best"]
    assert tied["far"] == ()


def test_what_is_refused_beats_nobody() -> None:
    """And stands apart, not on the board."""
    wrong = changed(name="wrong", compute__hardware__chips=32)
    board = board_of(entry("good", losses=(2.0,)), wrong)
    assert [each.submission.name for each in board.rows] == ["good"]
    assert [each.submission.name for each in board.refused] == ["wrong"]
    assert board.rows[0].beaten_by is None


def test_each_track_has_a_board_of_its_own() -> None:
    """What is measured on other text cannot be compared."""
    one, other = entry("one", losses=(1.0,)), entry("other", losses=(2.0,), track="cpu")
    found = boards(validate([one, other], at=NOW))
    assert [(board.track, len(board.rows)) for board in found] == [("cpu", 1), ("fineweb-edu", 1)]
    assert all(board.rows[0].on_front for board in found)


def test_a_row_of_the_data_is_plain_json() -> None:
    """For other people's programs."""
    (row,) = board_of(submission()).rows
    assert json.loads(json.dumps(row.to_document(), allow_nan=False))["model_flops"] == submission().compute.model_flops


def test_the_submissions_of_this_repository_are_accepted() -> None:
    """All runs of its ladders, and its entries to the track that CI trains again; each is as its record says."""
    found = read_submissions(ROOT / "speedruns")
    assert len(found) == 56 + len(list((ROOT / "speedruns" / "entries" / "cpu").iterdir()))
    judged = validate([each.submission for each in found if each.submission], at=NOW + timedelta(days=365))
    assert len(judged) == len(found)
    assert all(each.accepted for each in judged)
