"""Files and folders at an address are there whole or not at all, and what cannot be reached is said so."""

from pathlib import Path

import pytest

from marin_scaling.errors import StorageError
from marin_scaling.train.shared_storage import SharedStorage


@pytest.fixture(params=["file", "memory"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> SharedStorage:
    """Storage in a folder, and in memory, where a file appears when it is closed, as in an object store."""
    return SharedStorage(f"file://{tmp_path}/shared" if request.param == "file" else f"memory://{tmp_path.name}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a folder in it."""
    here = tmp_path / "here"
    (here / "inner").mkdir(parents=True)
    (here / "inner" / "array").write_bytes(bytes(range(256)))
    (here / "marker").write_bytes(b"done")
    return here


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_comes_back_as_it_was(shared: SharedStorage, folder: Path, tmp_path: Path) -> None:
    """Byte for byte; and a name that was never written is nothing, not an error."""
    shared.put_folder(folder, "a/b", last="marker")
    assert shared.get_folder("a/b", tmp_path / "back", last="marker")
    assert content(tmp_path / "back") == content(folder)
    assert (shared.names("a"), shared.names("a/b"), shared.names("c")) == (["b"], ["inner", "marker"], [])
    assert shared.read("a/c") is None


def test_a_folder_without_its_last_file_is_not_there_yet(shared: SharedStorage, folder: Path, tmp_path: Path) -> None:
    """As it lies while it is copied, or where the copying died: nothing appears here."""
    shared.put_folder(folder, "a", last="marker")
    shared.remove("a/marker")
    assert not shared.get_folder("a", tmp_path / "back", last="marker")
    assert not (tmp_path / "back").exists()


def test_the_last_file_is_written_last(shared: SharedStorage, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When it is written, all others are there."""
    before: list[str] = []
    write = shared.write
    monkeypatch.setattr(shared, "write", lambda name, content: (before.extend(shared.names("a")), write(name, content)))
    shared.put_folder(folder, "a", last="marker")
    assert before == ["inner"]


def test_files_are_written_over_and_removed(shared: SharedStorage, folder: Path) -> None:
    """And what is not there can be removed, too."""
    shared.write("lease", b"1")
    shared.write("lease", b"2")
    assert shared.read("lease") == b"2"
    shared.put_folder(folder, "a", last="marker")
    shared.remove("a")
    shared.remove("a")
    assert (shared.names("a"), shared.names("")) == ([], ["lease"])


def test_an_address_that_cannot_be_used_is_named() -> None:
    """With why, and how to go on."""
    with pytest.raises(StorageError, match="nowhere://bucket cannot be reached: Protocol not known") as caught:
        SharedStorage("nowhere://bucket")
    assert "hardware.storage" in caught.value.why
    with pytest.raises(StorageError, match="/proc/nothing/a cannot be written"):
        SharedStorage("file:///proc/nothing").write("a", b"")
