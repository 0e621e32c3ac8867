"""Untrusted text in pull request comments, the faults of a base branch, and the length of comments.

Forges turn names, numbers and addresses into mentions and links, even when written as entities, but not inside code
elements.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby

from marin_scaling.markdown import preformatted
from marin_scaling.preregistration.review.changes import BaseFault
from marin_scaling.printable import CELL_CHARACTERS, FAULTS_NAMED, TABLE_WIDTH, joined, printable, shortened, wrapped
from marin_scaling.units import counted

_PLAIN = re.compile(r"(?:[A-Za-z0-9 ,;()%=+'?-]|[.:](?=[ \d]|$)|(?<=[A-Za-z])[/_](?=[A-Za-z]))*")
_REFERENCE = re.compile(r"\b[0-9a-f]{7,40}\b|\bgh-\d|www|http", re.IGNORECASE)
"""Commit, issue or address that a forge links although it has only letters, digits and hyphens."""


def escape(text: object) -> str:
    """Return text for a line or cell: unchanged if a forge reads nothing into it, else as code with entities.

    A code element ends at an @, because mail addresses are linked even inside code.

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


_OUTPUT = re.compile(r'(<pre class="output"><code>.*?</code></pre>)', re.DOTALL)
_MARKUP = re.compile(r"</?(?:code|pre|details|summary)(?: class=\"output\")?>|\*\*|`")
_DRAWING = re.compile(r"```mermaid\n.*?\n```\n*", re.DOTALL)


def readable(comment: str) -> str:
    """Return a comment as plain text for a terminal: headings underlined, tables aligned, without drawings.

    >>> print(readable("## Held\\n\\n- [ ] <code>&#64;</code><code>ada &#35;1</code>"))
    Held
    ----
    <BLANKLINE>
    [ ] @ada #1
    """
    parts = _OUTPUT.split(_DRAWING.sub("", comment))  # alternates text and verbatim output
    return "".join(_verbatim(part) if number % 2 else _text(part) for number, part in enumerate(parts))


def _text(markup: str) -> str:
    blocks = groupby(markup.split("\n"), key=lambda line: line.startswith("|"))
    return "\n".join(_table(list(block)) if is_table else "\n".join(map(_line, block)) for is_table, block in blocks)


def _verbatim(markup: str) -> str:
    """Return output with long lines wrapped."""
    return "\n".join(_wrapped(_plain(line)) for line in markup.removesuffix("\n</code></pre>").split("\n"))


def _line(line: str) -> str:
    heading = re.fullmatch(r"(#{1,3}) (.*)", line)
    text = _plain(heading[2] if heading else line.replace("- [ ] ", "[ ] ", 1))
    return f"{text}\n{'=-'[len(heading[1]) > 1] * len(text)}" if heading else _wrapped(text)


def _wrapped(line: str) -> str:
    text = line.lstrip(" ")
    return wrapped(text, indent=line[: len(line) - len(text)]) if text else ""


def _plain(markup: str) -> str:
    return printable(html.unescape(_MARKUP.sub("", markup)))


def _table(lines: Sequence[str]) -> str:
    import pandas as pd

    from marin_scaling.forecast.report import table_text

    head, _rule, *rows = ([_plain(cell.strip()) for cell in line.strip("|").split("|")] for line in lines)
    if _least_width([head, *rows]) > TABLE_WIDTH:
        return "\n".join(map(partial(_record, head=head), rows))
    return table_text(pd.DataFrame(rows, columns=head), indent=0)


def _least_width(rows: Sequence[Sequence[str]]) -> int:
    """Return the width of a table that breaks no word."""
    words = (max((len(word) for cell in column for word in cell.split()), default=0) for column in zip(*rows, strict=True))
    return sum(width + 2 for width in words)


def _record(row: Sequence[str], *, head: Sequence[str]) -> str:
    """Return a row of a table that is too wide as a paragraph below its first cell."""
    named = "; ".join(f"{name}: {cell}" for name, cell in zip(head[1:], row[1:], strict=True) if cell)
    return f"{row[0]}\n{wrapped(named, '  ')}"


def length(text: str) -> int:
    """Return an upper bound of the characters that a forge counts if a workflow adds one after every @."""
    return len(text.encode()) + text.count("@")


def fitting(head: str, details: Sequence[str], *, most: int | None) -> tuple[list[str], list[int]]:
    """Return the head with the details that fit, and the numbers of those that do not."""
    kept, left, room = [head], [], float("inf") if most is None else most - length(head)
    for number, detail in enumerate(details):
        if (needed := length(detail) + 2) <= room:
            kept.append(detail)
            room -= needed
        else:
            left.append(number)
    return kept, left


def fault_parts(faults: Sequence[BaseFault]) -> Iterator[str]:
    """Yield the files that changed in the base after its log recorded them: those still changed, and those restored."""
    standing = [fault for fault in faults if not fault.restored]
    restored = [str(fault.path) for fault in faults if fault.restored]
    if standing:
        named = "\n".join(f"{fault.path}\n  fix: {fault.fix}" for fault in standing[:FAULTS_NAMED])
        yield (
            f"**Refused, the base itself**: {counted(len(standing), 'file')} of it changed after its log recorded them. "
            f"Restore them in a change of its own, and merge that first:\n\n{preformatted(named)}"
        )
    if restored:
        yield (
            f"**The base is refused as it is**: {counted(len(restored), 'file')} of it changed after its log recorded them. "
            f"This branch restores the recorded bytes: {escape(joined(restored, most=FAULTS_NAMED))}"
        )
