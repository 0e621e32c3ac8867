"""The board's data for the browser say what the entries say, and stay short; its figure shows all of the front."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from submission_factory import seed_document, submission

from marin_scaling.publish.board_page import COLUMNS, board_chart, live_board, row_values
from marin_scaling.speedrun.checks import validate
from marin_scaling.speedrun.leaderboard import FIRST_AXIS, Board, boards

COUNT = 400


@pytest.fixture(scope="module")
def board() -> Board:
    """Four hundred entries, each with a loss of its own to many digits; names with a slash."""
    made = []
    for number in range(COUNT):
        loss = 1.0 + ((number * 7919) % COUNT + 1) / 771.3
        seed = seed_document(seed=number, bits_per_byte=loss, log=f"https://example.org/{number}", log_sha256=f"{number:064x}")
        made.append(submission(name=f"group/run-{number}", seeds=[seed]))
    (found,) = boards(validate(made, at=datetime(2026, 11, 23, tzinfo=UTC)))
    return found


def decoded(board: Board, pages: dict[str, str]) -> dict[str, Any]:
    """The board in the script, as a program would read it."""
    script = live_board([board], pages=pages)["board-data.js"].decode()
    found: dict[str, Any] = json.loads(script.partition("\n")[0].partition("=")[2].strip().removesuffix(";"))[board.track]
    return found


def values(column: dict[str, Any], count: int) -> list[Any]:
    if "same" in column:
        return [column["same"]] * count
    return [column["words"][at] for at in column["at"]] if "words" in column else column["values"]


def test_every_value_is_that_of_its_entry(board: Board) -> None:
    """Losses to nine digits, other numbers to six, times to the minute."""
    data = decoded(board, {row.submission.name: "x.md" for row in board.rows})
    assert data["count"] == len(board.rows) == COUNT
    for column, told in zip(COLUMNS, data["columns"], strict=True):
        assert (told["key"], told["kind"]) == (column.key, column.kind)
        for row, value in zip(board.rows, values(told, COUNT), strict=True):
            wanted = row_values(row)[column.key]
            if isinstance(wanted, float):
                assert value == pytest.approx(wanted, rel=1e-8 if column.kind == "loss" else 1e-5)
            elif column.key == "finished_at" and wanted:
                assert value == wanted[:16].replace("T", " ")
            else:
                assert value == (", ".join(wanted) if isinstance(wanted, list) else wanted)


def test_only_pages_with_other_names_are_listed(board: Board) -> None:
    """The others follow from the name: a ~ for each /."""
    pages = {row.submission.name: f"{row.submission.name.replace('/', '~')}.md" for row in board.rows}
    other = board.rows[3].submission.name
    assert decoded(board, pages | {other: "index.page.md"})["pages"] == {other: "index.page.html"}


def test_what_is_the_same_everywhere_is_said_once(board: Board) -> None:
    """A board of many entries has to come fast."""
    pages = {row.submission.name: f"{row.submission.name.replace('/', '~')}.md" for row in board.rows}
    authors = next(column for column in decoded(board, pages)["columns"] if column["key"] == "authors")
    assert isinstance(authors["same"], str)
    assert len(live_board([board], pages=pages)["board-data.js"]) < 150 * COUNT


def test_of_many_entries_the_figure_shows_the_front_and_the_best_of_the_others(board: Board) -> None:
    """And says how many it leaves out."""
    pytest.importorskip("altair", reason="comes with the site extra")
    spec = board_chart(board).to_dict()
    drawn = max(spec["datasets"].values(), key=len)
    standing = {row.submission.name for row in board.rows if FIRST_AXIS in row.on_front}
    assert standing <= {row["name"] for row in drawn}
    assert len(drawn) == 300 + len(standing)
    assert f"the {len(drawn)} best of {COUNT}" in str(spec["title"])
