"""The bytes of the standard library are split by file, the same way every time."""

from pathlib import Path

import pytest

from marin_scaling.data.corpus import HELD_OUT, byte_corpus, map_corpus, write_corpus
from marin_scaling.data.documents import standard_library_corpus
from marin_scaling.errors import DataError, StorageError


def library(folder: Path, files: int) -> Path:
    for number in range(files):
        path = folder / f"package{number % 7}" / f"module{number}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(f"# {number:06}\n".encode() * 2_000)
    (folder / "test").mkdir()
    (folder / "test" / "test_x.py").write_text("left out")
    return folder


def test_every_file_is_in_one_part(tmp_path: Path) -> None:
    """No held-out file is trained on, none is lost, and tests are left out."""
    corpus = standard_library_corpus(library(tmp_path, 200))
    train, validation = corpus.train.tobytes(), corpus.validation[HELD_OUT].tobytes()
    for number in range(200):
        line = f"# {number:06}\n".encode()
        assert (line in train) != (line in validation)
    assert b"left out" not in train + validation


def test_a_new_file_does_not_move_the_others(tmp_path: Path) -> None:
    """The split goes by each file's own path."""
    before = standard_library_corpus(library(tmp_path, 200)).validation[HELD_OUT].tobytes()
    (tmp_path / "zebra.py").write_text("# new\n")
    after = standard_library_corpus(tmp_path).validation[HELD_OUT].tobytes()
    assert after.startswith(before)


def test_the_digest_names_the_bytes(tmp_path: Path) -> None:
    """Equal bytes have equal digests, also when mapped from disk, and one changed byte has another."""
    corpus = standard_library_corpus(library(tmp_path / "lib" if (tmp_path / "lib").mkdir() is None else tmp_path, 200))
    write_corpus(corpus, tmp_path / "data")
    assert map_corpus(tmp_path / "data").digest == corpus.digest
    changed = corpus.train.copy()
    changed[5] ^= 1
    assert byte_corpus(source=corpus.source, train=changed, validation=corpus.validation[HELD_OUT]).digest != corpus.digest


def test_tokens_that_a_disk_changed_are_laid_down_anew_and_not_trained_on(tmp_path: Path) -> None:
    """One byte, at the same length; from a corpus that was itself read there, they are refused by name."""
    (tmp_path / "lib").mkdir()
    corpus, folder = standard_library_corpus(library(tmp_path / "lib", 200)), tmp_path / "data"
    write_corpus(corpus, folder)
    whole = (folder / "train.bin").read_bytes()
    for damage in (b"\0" + whole[1:], whole[:-1]):
        (folder / "train.bin").write_bytes(damage)
        write_corpus(corpus, folder)
        assert (folder / "train.bin").read_bytes() == whole
    (folder / "train.bin").write_bytes(b"\0" + whole[1:])
    with pytest.raises(StorageError, match=r"train\.bin does not hold the \d+ tokens") as caught:
        write_corpus(map_corpus(folder), folder)
    assert f"Remove {folder}" in caught.value.fix


def test_a_python_without_sources_is_refused(tmp_path: Path) -> None:
    """The error names the folder and the way on."""
    with pytest.raises(DataError, match="0 bytes of Python source"):
        standard_library_corpus(tmp_path)
