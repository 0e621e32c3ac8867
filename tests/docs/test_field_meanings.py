"""The tables of the reference that are made from the code say of every key what it means."""

from pathlib import Path

import pytest

REFERENCE = Path(__file__).parents[2] / "site" / "reference"


@pytest.mark.parametrize(("name", "least"), [("ladder-file.md", 15), ("run-store.md", 60), ("experiment-files.md", 45)])
def test_every_key_of_a_file_has_its_meaning(name: str, least: int) -> None:
    """A field without a docstring would leave its cell empty; annotations of Python's do not reach the reader."""
    rows = [line for line in (REFERENCE / name).read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert len(rows) >= least
    assert [row for row in rows if not row.removesuffix(" |").rsplit("| ", 1)[-1].strip()] == []
    assert [row for row in rows if "Annotated" in row or "FieldInfo" in row] == []
