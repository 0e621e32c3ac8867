"""Text as bytes: the sources of the reader's own Python standard library, split by file into training and validation.

Real text that lies on every machine, so that nothing has to be downloaded. The split is by a hash of each file's path within
the library, so it does not change when files are added; the digest names the exact bytes. Tokens are bytes (vocabulary 256).
"""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marin_scaling.data.token_corpus import TokenCorpus, byte_corpus
from marin_scaling.errors import DataError
from marin_scaling.ladder.ladder_file import STANDARD_LIBRARY

_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "__pycache__"}
_VALIDATION_SHARE = 1 / 16


def standard_library_corpus(library: Path | None = None) -> TokenCorpus:
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
    return byte_corpus(source=STANDARD_LIBRARY, train=_as_array(train), validation=_as_array(validation))


def _source_files(root: Path) -> Iterator[Path]:
    return (path for path in sorted(root.rglob("*.py")) if not _LEFT_OUT.intersection(path.relative_to(root).parts))


def _is_validation(relative_path: str) -> bool:
    first_bytes = hashlib.sha256(relative_path.encode()).digest()[:8]
    return int.from_bytes(first_bytes) < _VALIDATION_SHARE * 2**64


def _as_array(content: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(content, dtype=np.uint8)
