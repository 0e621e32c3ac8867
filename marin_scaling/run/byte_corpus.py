"""Text as bytes: the sources of the reader's own Python standard library, split by file into training and validation.

Real text that lies on every machine, so that nothing has to be downloaded. The split is by a hash of each file's path within
the library, so it does not change when files are added; the digest names the exact bytes. Tokens are bytes (vocabulary 256).
"""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marin_scaling.canonical_json import digest_of, sha256_hex
from marin_scaling.durable_files import replace_file
from marin_scaling.errors import DataError

SOURCE = "python-standard-library"
BYTE_VOCABULARY = 256
_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "__pycache__"}
_VALIDATION_SHARE = 1 / 16


@dataclass(frozen=True, kw_only=True)
class ByteCorpus:
    """Training and validation bytes, each an array of shape (bytes,) and type uint8."""

    source: str
    train: NDArray[np.uint8]
    validation: NDArray[np.uint8]

    @property
    def digest(self) -> str:
        """SHA-256 over the digests of both parts."""
        return digest_of({"train": sha256_hex(self.train.tobytes()), "validation": sha256_hex(self.validation.tobytes())})


def standard_library_corpus(library: Path | None = None) -> ByteCorpus:
    """The `.py` files of a Python standard library (by default this interpreter's), split by file.

    Tests, IDLE, lib2to3 and installed packages are left out. Raises `DataError` where the sources are not there.
    """
    root = library or Path(sysconfig.get_paths()["stdlib"])
    parts: dict[bool, list[bytes]] = {True: [], False: []}
    for path in _source_files(root):
        content = path.read_bytes()
        parts[_is_validation(path.relative_to(root).as_posix())].append(content)
    train, validation = b"\n".join(parts[False]), b"\n".join(parts[True])
    if len(train) < 1_000_000 or len(validation) < 50_000:
        raise DataError(
            f"{root} holds only {len(train)} bytes of Python source to train on and {len(validation)} to validate on.",
            why="The quickstart trains on the sources of the standard library; this Python came without them.",
            fix="Use a Python that ships its sources (python.org, pyenv, conda, Debian's python3 all do).",
        )
    return ByteCorpus(source=SOURCE, train=_as_array(train), validation=_as_array(validation))


def write_corpus(corpus: ByteCorpus, folder: Path) -> None:
    """Lay the corpus down as `train.bin` and `validation.bin`, for worker processes to map."""
    replace_file(folder / "train.bin", corpus.train.tobytes())
    replace_file(folder / "validation.bin", corpus.validation.tobytes())


def map_corpus(folder: Path, *, source: str) -> ByteCorpus:
    """The corpus that `write_corpus` laid down, mapped from disk and not copied."""
    train, validation = (np.memmap(folder / f"{part}.bin", dtype=np.uint8, mode="r") for part in ("train", "validation"))
    return ByteCorpus(source=source, train=train, validation=validation)


def shuffled_window_starts(corpus_bytes: int, *, seq_len: int, seed: int) -> NDArray[np.int64]:
    """Starts of all full, disjoint windows in an order drawn from `seed`, which may have 64 bits.

    >>> sorted(shuffled_window_starts(10, seq_len=3, seed=7).tolist())
    [0, 3, 6]
    """
    starts = np.arange(corpus_bytes // seq_len, dtype=np.int64) * seq_len
    return np.random.default_rng(seed).permutation(starts)


def require_windows(corpus_bytes: int, *, seq_len: int, windows: int) -> None:
    """`DataError` with the numbers when that many disjoint windows do not fit into the held-out bytes."""
    if windows * seq_len > corpus_bytes:
        raise DataError(
            f"{windows} evaluation windows of {seq_len} bytes do not fit into {corpus_bytes} held-out bytes.",
            why="Overlapping windows would count the same text twice.",
            fix="Lower evaluation.windows in the ladder file.",
        )


def evaluation_window_starts(corpus_bytes: int, *, seq_len: int, windows: int) -> NDArray[np.int64]:
    """Starts of `windows` disjoint windows, spread evenly over the held-out bytes.

    >>> evaluation_window_starts(100, seq_len=10, windows=4).tolist()
    [0, 30, 60, 90]
    """
    require_windows(corpus_bytes, seq_len=seq_len, windows=windows)
    return np.linspace(0, corpus_bytes - seq_len, windows).round().astype(np.int64)


def _source_files(root: Path) -> Iterator[Path]:
    return (path for path in sorted(root.rglob("*.py")) if not _LEFT_OUT.intersection(path.relative_to(root).parts))


def _is_validation(relative_path: str) -> bool:
    first_bytes = hashlib.sha256(relative_path.encode()).digest()[:8]
    return int.from_bytes(first_bytes) < _VALIDATION_SHARE * 2**64


def _as_array(content: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(content, dtype=np.uint8)
