"""Markdown that strangers' text cannot break: escaped words, tables, preformatted blocks, links.

Names of runs, ladders and signers come from files that anyone may send in a pull request. What a page is about is not
known here.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from urllib.parse import quote

from marin_scaling.web_links import can_be_read

_ITEM = re.compile(r"[-*+•] |\d+[.)] ")
_LINKED = re.compile(r"(https?://[A-Za-z0-9._~:/?#\[\]@!$&()*+,;=%-]*[A-Za-z0-9/=_~-])")
_PLAIN = frozenset(" .,:;()/%=?!+-'")


def escape(text: object) -> str:
    """Text for anywhere in a Markdown line: no sign in it can end a cell, open a tag, or turn the line's direction.

    >>> print(escape("a|b <b>*c*"))
    a&#124;b &#60;b&#62;&#42;c&#42;
    """
    return "".join(_escaped(sign) for sign in str(text))


def _escaped(sign: str) -> str:
    if sign.isalnum() or sign in _PLAIN:
        return sign
    if sign in "\n\r\t":
        return " "
    return "&#65533;" if unicodedata.category(sign).startswith("C") else f"&#{ord(sign)};"


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = ()) -> str:
    """A table of cells that are Markdown already (escape first what is not); columns in `right` are right-aligned.

    >>> print(table(["run", "loss"], [["a", "2.5"]], right=[1]))
    | run | loss |
    | --- | ---: |
    | a | 2.5 |
    """
    rule = ["---:" if number in right else "---" for number in range(len(header))]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [header, rule, *rows])


def preformatted(text: str) -> str:
    """A block that shows `text` as it is, also where it holds blank lines, fences or tags.

    >>> print(preformatted("a <b>"))
    <pre class="output"><code>a &lt;b&gt;
    </code></pre>
    """
    shown = html.escape(text.rstrip(), quote=False).replace("`", "&#96;").replace("~", "&#126;")  # fences are read first
    return f'<pre class="output"><code>{shown}\n</code></pre>'


def whole(text: object) -> str:
    """Text for a cell that is not to be broken over two lines: a day, one word with a hyphen.

    >>> print(whole("2026-11-23"))
    <span class="whole">2026-11-23</span>
    """
    return f'<span class="whole">{escape(text)}</span>' if str(text) else ""


def prose(text: str) -> str:
    """A person's plain text: its paragraphs, its lists line by line, its addresses as links; no other sign of it is Markdown.

    >>> print(prose("It held:\\n- so\\n- and so\\n\\nSee https://a.org."))
    It held:<br>
    &#45; so<br>
    &#45; and so
    <BLANKLINE>
    See [https://a.org](<https://a.org>).
    """
    paragraphs = [_lines(each) for each in re.split(r"\n\s*\n", text)]
    return "\n\n".join("<br>\n".join(map(_prose_line, lines)) for lines in paragraphs if lines)


def web_link(words: str, address: str) -> str:
    """A link with escaped words to an address on the web; only the words where no program could take that apart.

    >>> print(web_link("a*", "https://example.org"), web_link("b", "https://[x"))
    [a&#42;](<https://example.org>) b
    """
    return f"[{escape(words)}](<{address}>)" if can_be_read(address) else escape(words)


def _lines(paragraph: str) -> list[str]:
    """Its items on lines of their own; other lines go on where the one before ended."""
    found: list[str] = []
    for line in filter(None, (" ".join(each.split()) for each in paragraph.split("\n"))):
        if found and not _ITEM.match(line):
            found[-1] += f" {line}"
        else:
            found.append(line)
    return found


def _prose_line(line: str) -> str:
    parts = _LINKED.split(line)  # text, address, text, ...
    shown = "".join(web_link(each, each) if number % 2 else _without_pictures(each) for number, each in enumerate(parts))
    return re.sub(r"^([-+]|\d+(?=\.))", lambda match: "".join(f"&#{ord(sign)};" for sign in match[1]), shown)


def _without_pictures(text: str) -> str:
    """Escaped, and without the sign that makes a picture of the link after it, or three of which begin a note of the site's."""
    return escape(text).replace("!", "&#33;")


def without_root(text: str, root: PurePath) -> str:
    """The text with paths below `root` told from there: what is published does not say where on a machine it was made.

    >>> without_root("/home/ada/lab/runs/tiny is empty; /home/ada/lab-book is not.", PurePath("/home/ada/lab"))
    'runs/tiny is empty; /home/ada/lab-book is not.'
    """
    below = text.replace(f"{root}/", "")
    return re.sub(rf"{re.escape(str(root))}(?![\w.-])", ".", below)


def malformed_section(noun: str, found: Sequence[tuple[str, str]], root: PurePath) -> str:
    """Files that are none of what they should be: where each lies and why; empty where there is none."""
    rows = [[escape(without_root(each, root)) for each in line] for line in found]
    return f"## Malformed\n\nThese are no {noun}.\n\n{table(['place', 'why'], rows)}" if rows else ""


def page_name(name: str) -> str:
    """The name, without `.md`, of the page about what has this name; names that mkdocs keeps for the page of a folder get a
    suffix, and so does what has the suffix already, so that no two share a page.

    >>> page_name("delphi"), page_name("index"), page_name("index.page"), page_name("README")
    ('delphi', 'index.page', 'index.page.page', 'README.page')
    """
    return f"{name}.page" if re.fullmatch(r"(index|readme)(\.page)*", name, re.IGNORECASE) else name


def link(words: str, target: str) -> str:
    """A link with escaped words to a page or file of the site, by its relative path.

    >>> print(link("law", "ladders/delphi.md"))
    [law](ladders/delphi.md)
    """
    return f"[{escape(words)}]({quote(target)})"


def page(title: str, *parts: str) -> str:
    """A whole page: the title, escaped, and its parts with a blank line between them; empty parts are left out."""
    return "\n\n".join([f"# {escape(title)}", *(part for part in parts if part)]) + "\n"
