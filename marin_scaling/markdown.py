"""Markdown that untrusted text cannot break: escaped words, tables, preformatted blocks, links, front matter.

Names of runs, ladders and signers come from files of pull requests. Escaped text means the same in Markdown, HTML and
attributes: it consists of letters, digits, harmless punctuation and entities. The theme prints a page's title verbatim, so
titles are escaped too.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from urllib.parse import quote

from marin_scaling.printable import (
    CELL_CHARACTERS,
    LISTED,
    PREFORMATTED_CHARACTERS,
    PREFORMATTED_LINES,
    TITLE_CHARACTERS,
    is_hidden,
    printable,
    shortened,
)
from marin_scaling.untrusted_text import can_be_read

_ITEM = re.compile(r"[-*+•] |\d+[.)] ")
_LINKED = re.compile(r"(https?://[A-Za-z0-9._~:/?#\[\]@!$&()*+,;=%-]*[A-Za-z0-9/=_~-])")
_WEB = re.compile(r"https?://[^\s<>\\\"`|\x00-\x20\x7f-\x9f]+")
_PLAIN = frozenset(" .,:;()/%=?+-'")
_BLOCK = re.compile(r"[-+=:?]|\d+(?=[.)])")
"""Start of a list, heading or other block at the beginning of a line."""


class Markdown(str):
    """Text that is Markdown already: `escape` and templates do not escape it again."""

    def __html__(self) -> str:
        return self


def escape(text: object) -> Markdown:
    """Escape text for any place in a Markdown line: it cannot end a cell, open a tag, or change the line's direction.

    `Markdown` and rendered templates are returned unchanged.

    >>> print(escape("a|b <b>*c*"), escape(escape("*")))
    a&#124;b &#60;b&#62;&#42;c&#42; &#42;
    """
    return Markdown(text.__html__() if hasattr(text, "__html__") else "".join(map(_escaped, str(text))))


def _escaped(sign: str) -> str:
    if sign in "\n\r\t":
        return " "
    if is_hidden(sign):
        return "&#65533;"
    return sign if sign.isalnum() or sign in _PLAIN else f"&#{ord(sign)};"


def cell(text: object, most: int = CELL_CHARACTERS) -> Markdown:
    """Return escaped text of bounded length; Markdown is returned unchanged."""
    return escape(text if hasattr(text, "__html__") else shortened(str(text), most))


def listed(items: Sequence[str], *, separator: str = ", ", most: int) -> Markdown:
    """Join the first Markdown items, and the number of the others.

    >>> listed(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    rest = len(items) - most
    return Markdown(separator.join(items[:most]) + (f" and {rest} more" if rest > 0 else ""))


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Sequence[int] = (),
    most: int | None = None,
    rest_in: str = "its file",
) -> Markdown:
    """Return a table of Markdown cells (escape other text first); columns in `right` are right-aligned.

    A line below counts the rows after the first `most`, and names the file with all rows.

    >>> print(table(["run", "loss"], [["a", "2.5"], ["b", "2.4"]], right=[1], most=1, rest_in="runs.csv"))
    | run | loss |
    | --- | ---: |
    | a | 2.5 |
    <BLANKLINE>
    1 more in runs.csv.
    """
    rows = list(rows)
    rule = ["---:" if number in right else "---" for number in range(len(header))]
    lines = "\n".join("| " + " | ".join(cells) + " |" for cells in [header, rule, *rows[:most]])
    return Markdown(f"{lines}\n\n{_more(len(rows) - most, rest_in)}" if most is not None and len(rows) > most else lines)


def bullets(items: Sequence[str], *, rest_in: str, most: int = LISTED) -> Markdown:
    """Return a list of the first Markdown items; a line below counts the others and names the file with all items."""
    lines = "\n".join(f"- {_within_block(item)}" for item in items[:most])
    return Markdown(f"{lines}\n\n{_more(len(items) - most, rest_in)}" if len(items) > most else lines)


def _more(count: int, place: str) -> str:
    return f"{count} more in {cell(place, TITLE_CHARACTERS)}."


def preformatted(text: str, *, rest_in: str = "") -> Markdown:
    """Return a block that shows `text` verbatim, including blank lines, fences and tags.

    Hidden characters are shown as escapes. A long text is cut; a line below counts the rest and names its file.

    >>> print(preformatted("a <b>"))
    <pre class="output"><code>a &lt;b&gt;
    </code></pre>
    """
    shown = html.escape(_beginning(text.rstrip(), rest_in), quote=False)
    shown = shown.replace("`", "&#96;").replace("~", "&#126;")  # Markdown parses fences before HTML
    return Markdown(f'<pre class="output"><code>{shown}\n</code></pre>')


def _beginning(text: str, rest_in: str) -> str:
    kept = "\n".join(text[:PREFORMATTED_CHARACTERS].split("\n")[:PREFORMATTED_LINES])
    lines = ["\t".join(map(printable, line.split("\t"))) for line in kept.replace("\r\n", "\n").split("\n")]
    if left := len(text) - len(kept):
        lines += ["", f"… {left} more characters{f' in {printable(rest_in)}' if rest_in else ''}"]
    return "\n".join(lines)


def whole(text: object) -> Markdown:
    """Return text for a cell that must not wrap, such as a day.

    >>> print(whole("2026-11-23"))
    <span class="whole">2026-11-23</span>
    """
    return Markdown(f'<span class="whole">{escape(text)}</span>' if str(text) else "")


def chip(word: object, kind: str) -> Markdown:
    """Return a word on a colored ground; `kind` is its class in the style sheet, from the program and not from a file.

    >>> print(chip("held", "good"))
    <span class="chip good">held</span>
    """
    return Markdown(f'<span class="chip {kind}">{escape(word)}</span>')


def prose(text: str) -> Markdown:
    """Return a person's plain text as Markdown: paragraphs, lists line by line, addresses as links, all else escaped.

    >>> print(prose("It held:\\n- so\\n- and so\\n\\nSee https://a.org."))
    It held:<br>
    &#45; so<br>
    &#45; and so
    <BLANKLINE>
    See [https://a.org](<https://a.org>).
    """
    paragraphs = [_lines(each) for each in re.split(r"\n\s*\n", text)]
    return Markdown("\n\n".join("<br>\n".join(map(_prose_line, lines)) for lines in paragraphs if lines))


def web_link(words: str, address: str) -> Markdown:
    """Return a link with escaped words to a web address; only the words for any other address.

    >>> print(web_link("a*", "https://example.org"), web_link("b", "https://[x"), web_link("c", "javascript:x"))
    [a&#42;](<https://example.org>) b c
    """
    is_web = _WEB.fullmatch(address) and can_be_read(address)
    return Markdown(f"[{cell(words)}](<{address}>)") if is_web else cell(words)


def _lines(paragraph: str) -> list[str]:
    """Join wrapped lines of a paragraph; list items start lines of their own."""
    found: list[str] = []
    for line in filter(None, (" ".join(each.split()) for each in paragraph.split("\n"))):
        if found and not _ITEM.match(line):
            found[-1] += f" {line}"
        else:
            found.append(line)
    return found


def _prose_line(line: str) -> str:
    parts = _LINKED.split(line)  # alternates text and address
    return _within_block("".join(web_link(each, each) if number % 2 else escape(each) for number, each in enumerate(parts)))


def _within_block(line: str) -> str:
    """Return a line of Markdown that cannot start a list or an indented block."""
    line = line.strip()
    first = _BLOCK.match(line)
    return "".join(f"&#{ord(sign)};" for sign in first[0]) + line[first.end() :] if first else line


def without_root(text: str, root: PurePath) -> str:
    """Return the text with paths below `root` made relative, so that published pages do not show the machine's folders.

    >>> without_root("/home/ada/lab/runs/tiny is empty; /home/ada/lab-book is not.", PurePath("/home/ada/lab"))
    'runs/tiny is empty; /home/ada/lab-book is not.'
    """
    below = text.replace(f"{root}/", "")
    return re.sub(rf"{re.escape(str(root))}(?![\w.-])", ".", below)


def malformed_section(noun: str, found: Sequence[tuple[str, str]], root: PurePath) -> Markdown:
    """Return a section that lists malformed files with the reasons; empty if there are none."""
    rows = [[cell(without_root(each, root)) for each in line] for line in found]
    shown = table(["place", "why"], rows, most=LISTED, rest_in="the files themselves")
    return Markdown(f"## Malformed\n\nThese files are not valid {noun}.\n\n{shown}" if rows else "")


def page_name(name: str) -> str:
    """Return the name, without `.md`, of the page about an object of this name.

    Names that mkdocs reserves for a folder's page get a suffix. So do names that have the suffix already, so that no two
    objects share a page.

    >>> page_name("delphi"), page_name("index"), page_name("index.page"), page_name("README")
    ('delphi', 'index.page', 'index.page.page', 'README.page')
    """
    return f"{name}.page" if re.fullmatch(r"(index|readme)(\.page)*", name, re.IGNORECASE) else name


def link(words: str, target: str) -> Markdown:
    """Return a link with escaped words to a page or file of the site, by its relative path.

    >>> print(link("law", "ladders/delphi.md"))
    [law](ladders/delphi.md)
    """
    return Markdown(f"[{cell(words, TITLE_CHARACTERS)}]({quote(target, errors='surrogateescape')})")


def code(words: str) -> Markdown:
    """Return words as code if they are letters, digits and signs of a path, else escaped.

    >>> print(code("runs/tiny/0a1b"), code("a`b"))
    `runs/tiny/0a1b` a&#96;b
    """
    return Markdown(f"`{words}`") if re.fullmatch(r"[\w./-]+", words, re.ASCII) else cell(words)
