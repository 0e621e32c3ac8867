"""Public records of other boards: figures of a CSV file as a board."""

from pathlib import Path

import pytest

from marin_scaling.errors import DocumentError
from marin_scaling.publish.board_page import PublicBoard, read_public_board
from marin_scaling.speedrun.import_files import COLUMNS
from marin_scaling.speedrun.leaderboard import FIRST_AXIS, front, points

MARIN = Path(__file__).parents[3] / "speedruns" / "public" / "marin.csv"
ROW = {
    "run": "llama/130m",
    "authors": "Ada; Bo",
    "params": "154147328",
    "tokens": "2599944192",
    "model_flops": "1.777e18",
    "hardware_flops": "8.26e18",
    "bits_per_byte": "1.186",
    "training_seconds": "1124.7",
    "finished_at": "2025-06-28T06:42:45Z",
    "log": "https://example.org/log",
    "source": "https://example.org/board.json",
}


@pytest.fixture(scope="module")
def marin() -> PublicBoard:
    """The record of Marin's discontinued board."""
    return read_public_board(MARIN)


def write(path: Path, *rows: dict[str, str], columns: tuple[str, ...] = COLUMNS) -> Path:
    """Write a record."""
    lines = [",".join(columns), *(",".join(row[name] for name in columns) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_marins_record_has_all_entries_and_its_front(marin: PublicBoard) -> None:
    """96 entries, of which four repeat a run; 24 are not dominated, and 20 where costs within 0.5 % are one."""
    assert len(marin.board.rows) == 96
    assert marin.repeated == 4
    submissions = [row.submission for row in marin.board.rows]
    assert len(front(points(submissions, axis=FIRST_AXIS))) == 24
    assert sum(FIRST_AXIS in row.on_front for row in marin.board.rows) == 20
    assert all(log.startswith("https://wandb.ai/") for log in marin.logs.values())


def test_scaling_groups_of_few_sizes_share_their_ranks(marin: PublicBoard) -> None:
    """Four runs a group do not tell the groups apart at 1e22 FLOPs."""
    ranked = [each for each in marin.groups if each.forecast]
    assert len(ranked) == 14
    assert {each.ranks for each in ranked} == {(1, 14)}


def test_an_entry_has_the_figures_of_its_row_and_says_what_is_absent(tmp_path: Path) -> None:
    """Authors, numbers, log; a cell may be empty."""
    (row,) = read_public_board(write(tmp_path / "lab.csv", ROW | {"tokens": ""})).board.rows
    each = row.submission
    assert [author.name for author in each.authors] == ["Ada", "Bo"]
    assert (each.model.params_total, each.bits_per_byte, each.seeds[0].training_seconds) == (154147328, 1.186, 1124.7)
    assert each.data.trained_tokens is None
    assert {"data.trained_tokens", "code", "training"} <= each.absent.keys()


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"log": "javascript:alert(1)"}, "log"),
        ({"source": "x"}, "source"),
        ({"params": "many"}, "many"),
        ({"bits_per_byte": "nan"}, "bits_per_byte"),
        ({"bits_per_byte": ""}, "bits_per_byte"),
        ({"params": "inf"}, "line 2"),
        ({"run": "../up"}, "name"),
        ({"finished_at": "yesterday"}, "yesterday"),
    ],
)
def test_a_cell_that_cannot_be_read_is_named_by_its_line(tmp_path: Path, changes: dict[str, str], key: str) -> None:
    """As a refusal of the file."""
    with pytest.raises(DocumentError, match=r"lab\.csv, line 2") as refusal:
        read_public_board(write(tmp_path / "lab.csv", ROW | changes))
    assert key in str(refusal.value)


def test_other_columns_one_run_twice_and_no_entry_are_refused(tmp_path: Path) -> None:
    """With the file's name and what is wrong."""
    with pytest.raises(DocumentError, match="columns"):
        read_public_board(write(tmp_path / "lab.csv", ROW, columns=COLUMNS[1:]))
    with pytest.raises(DocumentError, match="llama/130m"):
        read_public_board(write(tmp_path / "lab.csv", ROW, ROW))
    with pytest.raises(DocumentError, match="0 entries"):
        read_public_board(write(tmp_path / "lab.csv"))
    with pytest.raises(DocumentError, match="2001 entries"):
        read_public_board(write(tmp_path / "lab.csv", *(ROW | {"run": f"r{number}"} for number in range(2001))))
    (tmp_path / "lab.csv").write_bytes(b"\xff")
    with pytest.raises(DocumentError, match="UTF-8"):
        read_public_board(tmp_path / "lab.csv")
