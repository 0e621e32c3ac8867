"""The bytes are split by file, the same way every time, and windows cover them without overlap."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_scaling.errors import DataError
from marin_scaling.run.byte_corpus import (
    ByteCorpus,
    evaluation_window_starts,
    map_corpus,
    shuffled_window_starts,
    standard_library_corpus,
    write_corpus,
)


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
    train, validation = corpus.train.tobytes(), corpus.validation.tobytes()
    for number in range(200):
        line = f"# {number:06}\n".encode()
        assert (line in train) != (line in validation)
    assert b"left out" not in train + validation


def test_a_new_file_does_not_move_the_others(tmp_path: Path) -> None:
    """The split goes by each file's own path."""
    before = standard_library_corpus(library(tmp_path, 200)).validation.tobytes()
    (tmp_path / "zebra.py").write_text("# new\n")
    after = standard_library_corpus(tmp_path).validation.tobytes()
    assert after.startswith(before)


def test_the_digest_names_the_bytes(tmp_path: Path) -> None:
    """Equal bytes have equal digests, also when mapped from disk, and one changed byte has another."""
    corpus = standard_library_corpus(library(tmp_path / "lib" if (tmp_path / "lib").mkdir() is None else tmp_path, 200))
    write_corpus(corpus, tmp_path / "data")
    assert map_corpus(tmp_path / "data", source=corpus.source).digest == corpus.digest
    changed = corpus.train.copy()
    changed[5] ^= 1
    assert ByteCorpus(source=corpus.source, train=changed, validation=corpus.validation).digest != corpus.digest


def test_a_python_without_sources_is_refused(tmp_path: Path) -> None:
    """The error names the folder and the way on."""
    with pytest.raises(DataError, match="0 bytes of Python source"):
        standard_library_corpus(tmp_path)


@given(st.integers(10, 5_000), st.integers(1, 9), st.integers(0, 2**64 - 1))
def test_training_windows_are_disjoint_and_cover_the_bytes(size: int, seq_len: int, seed: int) -> None:
    """Each full window once, in an order that depends on nothing but a seed of up to 64 bits."""
    starts = shuffled_window_starts(size, seq_len=seq_len, seed=seed)
    assert sorted(starts.tolist()) == list(range(0, size - seq_len + 1, seq_len))
    assert np.array_equal(starts, shuffled_window_starts(size, seq_len=seq_len, seed=seed))


@given(st.integers(1, 50), st.integers(2, 20), st.integers(0, 500))
def test_evaluation_windows_are_disjoint_and_inside(windows: int, seq_len: int, spare: int) -> None:
    """However many fit, they neither overlap nor leave the held-out bytes."""
    starts = evaluation_window_starts(windows * seq_len + spare, seq_len=seq_len, windows=windows)
    assert len(starts) == windows
    assert starts[0] == 0
    assert starts[-1] + seq_len <= windows * seq_len + spare
    assert (np.diff(starts) >= seq_len).all()


def test_more_windows_than_fit_are_refused() -> None:
    """The error says how many of how many bytes."""
    with pytest.raises(DataError, match="11 evaluation windows of 10 bytes do not fit into 100"):
        evaluation_window_starts(100, seq_len=10, windows=11)
