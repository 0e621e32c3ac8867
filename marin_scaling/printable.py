"""Untrusted text for people: one line, of bounded length, without characters that are invisible or that a terminal obeys."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from marin_scaling.limits import JOINED, VALUE_CHARACTERS

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
