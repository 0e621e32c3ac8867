"""Limits of what is shown, text without control characters, and output streams that pass only such text."""

from __future__ import annotations

import contextlib
import io
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

MESSAGE_CHARACTERS = 3000
"""Of one line of an error."""
MESSAGE_LINES = 24
"""Of an error that lists several faults or quotes a program."""
VALUE_CHARACTERS = 80
"""Of a key, name or value that a message quotes."""
FAULTS_NAMED = 10
"""Faults of one file that a message names; the others are counted."""
UNKNOWN_KEYS_NAMED = 5
"""Unknown keys among them."""

CELL_CHARACTERS = 2000
"""Of one cell of a page's table that comes from a file."""
TITLE_CHARACTERS = 200
"""Of a page's title, and of the words of a link."""
LISTED = 200
"""Rows of a table, or items of a list, that a page shows of one file."""
RUNS_LISTED = 2000
"""Runs of one ladder that its page shows."""
JOINED = 12
"""Names that one line or cell shows beside each other."""
PREFORMATTED_CHARACTERS = 20_000
"""Of a text that a page shows as it is."""
PREFORMATTED_LINES = 400
"""Of the same."""
COMMENT_CHARACTERS = 55_000
"""Of a review as a comment: GitHub refuses more than 65,536, and the workflow that posts it cuts at 60,000."""
REVIEWED_NAMED = 100
"""Verdicts that a review lists before its details; refused ones come first."""

SIGNERS_BYTES = 1024 * 1024
"""Of `allowed_signers`: about 9,000 lines."""
SIGNERS_CHANGED = 200
"""Lines of `allowed_signers` that one pull request may change: a reviewer reads each."""

YAML_BYTES = 1024 * 1024
"""Of a YAML file: ladder, recipe, track, entry, policy, experiment."""
NUMBER_CHARACTERS = 400
"""Of a number in a YAML file: `1:59:59` to the base of 60, which YAML 1.1 has, takes quadratic time."""
TEXT_CHARACTERS = 1000
"""Of a run's name, seed or status in a table."""
MALFORMED_LINES = 100
"""Lines of one file of experiments; below the last of so many the file is not read."""
EXPERIMENTS_NAMED = 200
"""Experiments with findings that a terminal shows; `--json` has all."""
NAME_BYTES = 200
"""Of one part of a path: file systems have 255, and the files that are made of a name have longer ones."""
SITE_SECONDS = 1800
"""Of mkdocs, which builds the whole site: 20,000 submissions take it 200 s."""
FIRST_YEAR, LAST_YEAR = 1970, 9000
"""Of a time in a file."""


_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_BLANKS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_SELECTORS = (range(0x180B, 0x1810), range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0))


def printable(text: str) -> str:
    r"""The text with hidden characters and line ends as escapes: control, direction, zero width, lone surrogates.

    Escapes are those of JSON, so that a JSON text keeps its meaning.

    >>> print(printable("a\x1b[2J\nb\u202e"))
    a\u001b[2J\u000ab\u202e
    """
    return text if text.isascii() and text.isprintable() else "".join(map(_shown, text))


def shortened(text: str, most: int = VALUE_CHARACTERS) -> str:
    """The text, or its beginning and end with the number of characters that are left out.

    >>> shortened("a" * 100 + "end", 50)
    'aaaaaaaaaaaaaaaaaaaaaaaaaaaaa…(64 more)…aaaaaaaend'
    """
    if len(text) <= most:
        return text
    tail = most // 5
    head = most - tail - 11
    return f"{text[:head]}…({len(text) - head - tail} more)…{text[len(text) - tail :]}"


def quoted(text: object, most: int = VALUE_CHARACTERS) -> str:
    """A name or value of an untrusted file for a sentence: printable and of bounded length."""
    return printable(shortened(str(text), most))


def joined(names: Iterable[str], *, most: int = JOINED, separator: str = ", ") -> str:
    """Names beside each other: the first ones, each of bounded length, and how many more there are.

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
