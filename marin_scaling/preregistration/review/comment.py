"""Untrusted text in a comment on a pull request, and the length of a comment.

A forge reads names, numbers and addresses in a comment as mentions and links, also where they are written with entities, but
nothing in a code element.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from marin_scaling.limits import CELL_CHARACTERS
from marin_scaling.printable import printable, shortened

_PLAIN = re.compile(r"(?:[A-Za-z0-9 ,;()%=+'?-]|[.:](?=[ \d]|$)|(?<=[A-Za-z])[/_](?=[A-Za-z]))*")
_REFERENCE = re.compile(r"\b[0-9a-f]{7,40}\b|\bgh-\d|www|http", re.IGNORECASE)
"""A commit, an issue or an address, which a forge links though it holds nothing but letters, digits and hyphens."""


def escape(text: object) -> str:
    """Text for anywhere in a line or cell: as it is if no forge reads anything in it, else as code, all of it in entities.

    A name ends its code element at an @, because an address of mail is a link also within one.

    >>> print(escape("held: 2.5 bits/byte"), escape("@ada #1 <b>"))
    held: 2.5 bits/byte <code>&#64;</code><code>ada &#35;1 &#60;b&#62;</code>
    """
    shown = " ".join(printable(" ".join(shortened(str(text), CELL_CHARACTERS).split("\n"))).split())
    if _PLAIN.fullmatch(shown) and not _REFERENCE.search(shown):
        return shown
    parts = [part for part in re.split("(?<=@)", shown) if part]
    return "".join(f"<code>{re.sub(r'[^A-Za-z0-9 ]|www', _entities, part)}</code>" for part in parts)


def _entities(found: re.Match[str]) -> str:
    return "".join(f"&#{ord(character)};" for character in found[0])


def readable(comment: str) -> str:
    """Return a comment as a person reads it in a terminal: without code elements and entities.

    >>> readable("held: <code>&#64;</code><code>ada &#35;1</code>")
    'held: @ada #1'
    """
    return "\n".join(
        printable(html.unescape(re.sub(r"</?code>|\*\*|</?details>|</?summary>", "", line))) for line in comment.split("\n")
    )


def length(text: str) -> int:
    """An upper bound of the characters that a forge counts, where a workflow puts a sign behind every @."""
    return len(text.encode()) + text.count("@")


def fitting(head: str, details: Sequence[str], *, most: int | None) -> tuple[list[str], list[int]]:
    """The head and the details that fit below it, and the numbers of those that do not."""
    kept, left, room = [head], [], float("inf") if most is None else most - length(head)
    for number, detail in enumerate(details):
        if (needed := length(detail) + 2) <= room:
            kept.append(detail)
            room -= needed
        else:
            left.append(number)
    return kept, left
