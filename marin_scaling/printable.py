"""Text for output: without control characters, and wrapped; output streams that pass only such text."""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

from marin_scaling.limits import JOINED, VALUE_CHARACTERS

_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_BLANKS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_SELECTORS = (range(0x180B, 0x1810), range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0))


def printable(text: str) -> str:
    r"""Return the text with hidden characters and line ends as escapes: control, direction, zero width, lone surrogates.

    The escapes are those of JSON, so that JSON keeps its meaning.

    >>> print(printable("a\x1b[2J\nb\u202e"))
    a\u001b[2J\u000ab\u202e
    """
    return text if text.isascii() and text.isprintable() else "".join(map(_shown, text))


def shortened(text: str, most: int = VALUE_CHARACTERS) -> str:
    """Return the text, or its beginning and end with the number of characters between.

    >>> shortened("a" * 100 + "end", 50)
    'aaaaaaaaaaaaaaaaaaaaaaaaaaaaa…(64 more)…aaaaaaaend'
    """
    if len(text) <= most:
        return text
    tail = most // 5
    head = most - tail - 11
    return f"{text[:head]}…({len(text) - head - tail} more)…{text[len(text) - tail :]}"


def quoted(text: object, most: int = VALUE_CHARACTERS) -> str:
    """Return a name or value of an untrusted file for a message: printable and of bounded length."""
    return printable(shortened(str(text), most))


def joined(names: Iterable[str], *, most: int = JOINED, separator: str = ", ") -> str:
    """Join the first names, each of bounded length, and the number of the others.

    >>> joined(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    listed = list(names)
    rest = len(listed) - most
    return separator.join(map(quoted, listed[:most])) + (f" and {rest} more" if rest > 0 else "")


def is_hidden(character: str) -> bool:
    """Return True for a character that is invisible, ends a line, or that a terminal obeys."""
    if unicodedata.category(character) in _HIDDEN_CATEGORIES or character in _BLANKS:
        return True
    return any(ord(character) in block for block in _SELECTORS)


def _shown(character: str) -> str:
    if not is_hidden(character):
        return character
    code = ord(character)
    if code < 0x10000:
        return f"\\u{code:04x}"
    return f"\\u{0xD800 + ((code - 0x10000) >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


_COMMAND = re.compile(r"^([^\S\n]*):(?=:)|#(?=#\w*\[)", re.MULTILINE)
"""Workflow commands of GitHub (`::error`, `##[error]`), Azure (`##vso[`) and TeamCity (`##teamcity[`)."""


def plain(text: str) -> str:
    r"""Return the text without control characters except line ends and tabs, and without commands of CI systems.

    >>> print(plain("a\x1b[2J\n::error::no"))
    a\u001b[2J
    \u003a:error::no
    """
    if not (text.isascii() and text.isprintable()):
        text = "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))
    return _COMMAND.sub(lambda match: "\\u0023" if match[0] == "#" else f"{match[1]}\\u003a", text)


class PlainOutput(io.TextIOBase):
    """Text stream that writes `plain` text to another stream; bytes written to its `buffer` are treated as text."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Encoding of the underlying stream."""
        return self._stream.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        """Treatment of characters that the encoding lacks."""
        return self._stream.errors

    @property
    def buffer(self) -> io.RawIOBase:
        """Stream of UTF-8 bytes, which are written as text."""
        return _Bytes(self)

    @property
    def terminal(self) -> TextIO:
        """Underlying stream, for a progress bar, which moves the cursor and must make its own words printable."""
        return self._stream

    def write(self, text: str) -> int:
        """Write the text as `plain` text."""
        self._stream.write(plain(text))
        return len(text)

    def writable(self) -> bool:
        """Return True."""
        return True

    def isatty(self) -> bool:
        """Return True if the underlying stream is a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Return the number of the underlying file."""
        return self._stream.fileno()

    def flush(self) -> None:
        """Flush the underlying stream."""
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
    """Make standard output and standard error plain in this block."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = PlainOutput(sys.stdout), PlainOutput(sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def terminal_below(stream: TextIO) -> TextIO:
    """Return the stream under a plain one, or the stream itself."""
    return stream.terminal if isinstance(stream, PlainOutput) else stream


TABLE_WIDTH = 80
_COPIED = re.compile(
    r"(?:\b(?:marin-scale|git|pip|ssh-keygen|chown|rm) |\S+ namespaces=)(?:'[^']*'|[^'])*?(?=[.;,:)]+ | \(|[.;,)]*$)"
    r"|--[a-z-]+ (?:'[^']*'|[^\s']+)"
)
"""Commands, options and lines of `allowed_signers` that readers copy."""


def terminal_width() -> int:
    """Return the columns of the terminal, or of the variable COLUMNS; 80 where the output is no terminal."""
    return shutil.get_terminal_size((TABLE_WIDTH, 24)).columns


def wrapped(text: str, indent: str = "", *, hang: int = 2, width: int = TABLE_WIDTH) -> str:
    """Wrap a paragraph with a hanging indent, without breaking words, hyphens or commands.

    >>> wrapped("status: Usable", "  ")
    '  status: Usable'
    """
    filled = textwrap.fill(
        _COPIED.sub(lambda match: match[0].replace(" ", "\0"), text),
        width=width,
        initial_indent=indent,
        subsequent_indent=indent + " " * hang,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return filled.replace("\0", " ")


def wrapped_lines(text: str, *, hang: int = 2) -> str:
    """Return a text whose lines of more than 80 columns are wrapped with an indent; tables and commands are not broken.

    >>> print(wrapped_lines("done\\n  Next: marin-scale verify all"))
    done
      Next: marin-scale verify all
    """
    return "\n".join(line if len(line) <= TABLE_WIDTH else _narrowed(line, hang=hang) for line in text.split("\n"))


def _narrowed(line: str, *, hang: int) -> str:
    text = line.lstrip(" ")
    indent = line[: len(line) - len(text)]
    return wrapped(text, indent, hang=max(hang - len(indent), 2), width=terminal_width())


def wrapped_error(error: object) -> str:
    """Return the text of an error with its lines wrapped below each other.

    >>> print(wrapped_error("runs.csv is empty.\\n  fix: Give a table."))
    error: runs.csv is empty.
      fix: Give a table.
    """
    lines = [(line.lstrip(" "), line[: len(line) - len(line.lstrip(" "))]) for line in f"error: {error}".split("\n")]
    return "\n".join(wrapped(text, ind, hang=len("error: ") - len(ind), width=terminal_width()) for text, ind in lines)
