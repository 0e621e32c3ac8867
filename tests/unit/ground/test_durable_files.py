"""Files appear whole or not at all, and are never overwritten unless that is asked for."""

import os
import resource
from pathlib import Path

import pytest

from marin_scaling.errors import StorageError
from marin_scaling.files import new_folder, publish_folder, read_bytes, replace_file, write_once


def test_a_file_is_written_once(tmp_path: Path) -> None:
    """The second writer is refused, and the first content stays."""
    write_once(tmp_path / "a", b"first")
    with pytest.raises(StorageError, match=r"a cannot be written: file exists"):
        write_once(tmp_path / "a", b"second")
    assert (tmp_path / "a").read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["a"]


def test_a_folder_appears_with_all_its_files(tmp_path: Path) -> None:
    """All files are there, no temporary ones are left, and a second folder of that name is refused."""
    publish_folder(tmp_path / "run", {"a": b"1", "b": b"2"})
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == {"a": b"1", "b": b"2"}
    with pytest.raises(StorageError, match="exists"):
        publish_folder(tmp_path / "run", {"a": b"3"})
    assert os.listdir(tmp_path) == ["run"]


def test_a_folder_that_is_filled_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    """Not while it is filled, nor when that ends in an error; an empty one is taken, and one with a file in it refused."""

    def fill(folder: Path) -> None:
        with new_folder(folder) as temporary:
            (temporary / "a").write_bytes(b"1")
            raise RuntimeError("half-way")

    with pytest.raises(RuntimeError, match="half-way"):
        fill(tmp_path / "model")
    assert os.listdir(tmp_path) == []
    (tmp_path / "model").mkdir()
    with new_folder(tmp_path / "model") as folder:
        (folder / "a").write_bytes(b"1")
        assert os.listdir(tmp_path / "model") == []
    assert os.listdir(tmp_path / "model") == ["a"]
    with pytest.raises(StorageError, match="model cannot be written: it exists"), new_folder(tmp_path / "model"):
        pass
    assert os.listdir(tmp_path) == ["model"]


def test_replacing_leaves_no_other_file(tmp_path: Path) -> None:
    """The new content stands, and nothing else."""
    replace_file(tmp_path / "a", b"1")
    replace_file(tmp_path / "a", b"2")
    assert read_bytes(tmp_path / "a") == b"2"
    assert os.listdir(tmp_path) == ["a"]


def test_a_file_that_cannot_be_replaced_leaves_no_other(tmp_path: Path) -> None:
    """A folder stands where the file should go."""
    (tmp_path / "a").mkdir()
    with pytest.raises(StorageError, match="is a directory"):
        replace_file(tmp_path / "a", b"1")
    assert os.listdir(tmp_path) == ["a"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """The error names the path and what to do."""
    with pytest.raises(StorageError, match=r"nowhere.json cannot be read: no such file") as caught:
        read_bytes(tmp_path / "nowhere.json")
    assert caught.value.fix


@pytest.mark.parametrize("write", [write_once, replace_file])
def test_a_disk_that_takes_no_more_leaves_nothing_behind(tmp_path: Path, write, monkeypatch) -> None:
    """When the system refuses a write half-way, the error says so and no half-written file is left."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(StorageError, match="a cannot be written"):
            write(tmp_path / "a", b"x" * 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(tmp_path) == []


def test_a_folder_on_a_disk_that_takes_no_more_leaves_nothing_behind(tmp_path: Path) -> None:
    """A folder whose second file does not fit does not appear."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(StorageError, match="run cannot be written"):
            publish_folder(tmp_path / "run", {"a": b"1", "b": b"x" * 10_000})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(tmp_path) == []


def test_a_path_below_a_file_is_refused(tmp_path: Path) -> None:
    """A store that cannot be made says which path and why."""
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(StorageError, match="cannot be written"):
        publish_folder(tmp_path / "runs" / "x", {"a": b"1"})
