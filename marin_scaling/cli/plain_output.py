"""Output streams that pass text only: no control character, and no line that a CI system takes for a command.

What a command prints may hold strings of untrusted files. Escapes are those of JSON, so that `--json` keeps its meaning.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from marin_scaling.printable import printable

_COMMAND = re.compile(r"^([ \t]*):(?=:)|#(?=#\w*\[)", re.MULTILINE)
"""Workflow commands of GitHub (`::error`, `##[error]`), Azure (`##vso[`) and TeamCity (`##teamcity[`)."""


def plain(text: str) -> str:
    r"""The text without control characters but line ends and tabs, and without commands of CI systems.

    >>> print(plain("a\x1b[2J\n::error::no"))
    a\u001b[2J
    \u003a:error::no
    """
    if not (text.isascii() and text.isprintable()):
        text = "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))
    return _COMMAND.sub(lambda match: "\\u0023" if match[0] == "#" else f"{match[1]}\\u003a", text)


class PlainOutput(io.TextIOBase):
    """A text stream that writes `plain` text into another one; bytes that are written into its `buffer` are text as well."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of the stream below."""
        return self._stream.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        """What becomes of characters that the encoding does not have."""
        return self._stream.errors

    @property
    def buffer(self) -> io.RawIOBase:
        """A stream of bytes in UTF-8, which are written as text."""
        return _Bytes(self)

    @property
    def terminal(self) -> TextIO:
        """The stream below, for a progress bar, which moves the cursor; it has to make its own words printable."""
        return self._stream

    def write(self, text: str) -> int:
        """Write the text as `plain` text."""
        self._stream.write(plain(text))
        return len(text)

    def writable(self) -> bool:
        """Return True."""
        return True

    def isatty(self) -> bool:
        """Return True if a person sees it."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """The number of the file below."""
        return self._stream.fileno()

    def flush(self) -> None:
        """Let all that was written reach the file below."""
        self._stream.flush()


class _Bytes(io.RawIOBase):
    def __init__(self, output: PlainOutput) -> None:
        self._output = output

    def writable(self) -> bool:
        return True

    def write(self, raw: Any) -> int:
        self._output.write(bytes(raw).decode("utf-8", "backslashreplace"))
        return len(raw)

    def flush(self) -> None:
        self._output.flush()


@contextlib.contextmanager
def plain_output() -> Iterator[None]:
    """Let standard output and standard error be plain in this block."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = PlainOutput(sys.stdout), PlainOutput(sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def terminal_below(stream: TextIO) -> TextIO:
    """The stream below a plain one, or the stream itself."""
    return stream.terminal if isinstance(stream, PlainOutput) else stream
