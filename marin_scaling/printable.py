"""Text for output: limits of its length, no control characters, wrapping; output streams that pass only such text."""

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

MESSAGE_CHARACTERS = 3000
"""Characters of one line of an error."""
MESSAGE_LINES = 24
"""Lines of an error that lists several faults or quotes a program."""
VALUE_CHARACTERS = 80
"""Characters of a key, name or value that a message quotes."""
FAULTS_NAMED = 10
"""Faults of one file that a message lists; the others are counted."""
UNKNOWN_KEYS_NAMED = 5
"""Unknown keys that a message lists."""

CELL_CHARACTERS = 2000
"""Characters of a cell, from a file, of a page's table."""
TITLE_CHARACTERS = 200
"""Characters of a page's title, and of a link's text."""
LISTED = 200
"""Rows of a table, or items of a list, that a page shows of one file."""
RUNS_LISTED = 2000
"""Runs of one ladder that its page shows; the page of a larger table has no back-test."""
RUNS_DRAWN = 500
"""Runs of one ladder that its figures show, evenly by cost."""
FORECASTS_DRAWN = 40
"""Forecasts of one group that the figure of all intervals shows."""
JOINED = 12
"""Names that one line or cell lists."""
PREFORMATTED_CHARACTERS = 20_000
"""Characters of a text that a page shows verbatim."""
PREFORMATTED_LINES = 400
"""Lines of a text that a page shows verbatim."""
COMMENT_CHARACTERS = 55_000
"""Characters of a review as a comment; GitHub refuses more than 65,536, and the workflow that posts it cuts at 60,000."""
REVIEWED_NAMED = 100
"""Verdicts that a review lists before its details; refused ones come first."""

SIGNERS_BYTES = 1024 * 1024
"""Bytes of `allowed_signers`: about 9,000 lines."""
SIGNERS_CHANGED = 200
"""Lines of `allowed_signers` that one pull request may change, since a reviewer reads each."""

YAML_BYTES = 1024 * 1024
"""Bytes of a YAML file: ladder, recipe, track, entry, policy, experiment."""
NUMBER_CHARACTERS = 400
"""Characters of a number in a YAML file; a long YAML 1.1 number to base 60 (`1:59:59`) takes quadratic time."""
TEXT_CHARACTERS = 1000
"""Characters of a run's name, seed or status in a table."""
MALFORMED_LINES = 100
"""Lines of one file of experiments; the rest is not read."""
EXPERIMENTS_NAMED = 200
"""Experiments with findings that a terminal shows; `--json` has all."""
NAME_BYTES = 200
"""Bytes of one part of a path; file systems allow 255, and some file names extend a given name."""
SITE_SECONDS = 1800
"""Seconds for mkdocs to build the whole site; 20,000 submissions take 200 s."""
FIRST_YEAR, LAST_YEAR = 1970, 9000
"""First and last year of a time in a file."""
COMMITS_SEARCHED = 100
"""Commits, the newest that changed a file, in which a version of it is searched."""
VERSIONS_BYTES = 64 * 1024 * 1024
"""Bytes of all versions of a file that are read in such a search."""
IMPORTED_FILES, IMPORTED_BYTES = 50_000, 512 * 1024 * 1024
"""Files, and bytes of them, of a registry that is imported from another repository; 1,000 forecasts have about 9,000 files."""


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
