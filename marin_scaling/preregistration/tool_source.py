"""Which program made a forecast: its version, a digest of its own source, and the libraries that its numbers hang on."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import marin_scaling

_LIBRARIES = ("numpy", "scipy", "pandas")


def tool_document() -> dict[str, Any]:
    """What a statement says of the tool."""
    versions = {"python": platform.python_version(), **{name: version(name) for name in _LIBRARIES}}
    return {
        "name": "marin-scaling",
        "version": marin_scaling.__version__,
        "sourceSha256": source_sha256(),
        "versions": versions,
    }


@cache
def source_sha256() -> str:
    """SHA-256 over the lines "digest, two spaces, path" of all Python files of the package, sorted by path.

    As `sha256sum` prints them in the folder of the package, so that it can be worked out without this tool.

    >>> len(source_sha256())
    64
    """
    root = Path(marin_scaling.__file__).parent
    paths = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.py"))
    lines = [f"{hashlib.sha256((root / path).read_bytes()).hexdigest()}  {path}\n" for path in paths]
    return hashlib.sha256("".join(lines).encode()).hexdigest()
