"""Strangers' text stays text, whatever stands in it."""

import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_scaling.markdown import escape, preformatted, table
from marin_scaling.printable import is_hidden

HOSTILE = [
    "<script>alert(1)</script>",
    "a|b",
    "`x`",
    "[x](javascript:alert(1))",
    "a\n\n# b",
    "--8<-- 'x'",
    "\u202eexe",
    "{: onclick=x}",
]


@given(st.text())
def test_an_escaped_text_holds_no_sign_that_markdown_or_html_reads(text):
    """Beside entities, only letters, digits and a few harmless signs are left."""
    assert re.fullmatch(r"(?:&#\d+;|\w|[ .,:;()/%=?!'+-]|[^\W_])*", escape(text))
    assert not set(escape(text)) & set('<>|`*[]{}\\\n\r"')


VISIBLE = st.characters(categories=["L", "N", "P", "S"]).filter(lambda character: not is_hidden(character))
"""Some letters are invisible, such as the Hangul filler."""


@given(st.text(alphabet=VISIBLE))
def test_a_reader_sees_the_text_itself(text):
    """Decoding the entities gives the text back."""
    assert html.unescape(escape(text)) == text


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_name_is_shown_by_a_real_markdown_processor_as_text(text):
    """One table of one cell, no tag of the text's own."""
    markdown = pytest.importorskip("markdown", reason="the site extra is not installed")
    shown = markdown.markdown(table(["name"], [[escape(text)]]), extensions=["tables", "attr_list"])
    assert re.findall(r"<(/?\w+)", shown.split("<tbody>")[1]) == ["tr", "td", "/td", "/tr", "/tbody", "/table"]


def test_a_preformatted_text_cannot_end_its_block():
    """Neither a fence nor a closing tag nor a blank line ends it."""
    markdown = pytest.importorskip("markdown", reason="the site extra is not installed")
    shown = markdown.markdown(preformatted("a\n\n</code></pre><b>x</b>\n```\n# b"))
    assert re.findall(r"<(/?\w+)", shown) == ["pre", "code", "/code", "/pre"]
