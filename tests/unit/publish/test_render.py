"""Templates of pages: whatever a file says stays text."""

import re

import pytest
from jinja2 import UndefinedError

from marin_scaling.markdown import Markdown, escape
from marin_scaling.publish.figures import TEMPLATES, render

HOSTILE = "<script>x</script> | [a](b) {{ 7 * 7 }}"


def test_a_value_is_escaped_and_never_read_as_a_template() -> None:
    """Title, preformatted block: no tag, no cell end, no expression."""
    shown = render("refused.md.j2", title=HOSTILE, reason=HOSTILE)
    assert "<script>" not in shown
    assert "49" not in shown
    assert "[a](b)" not in shown.partition("<pre")[0]
    assert f"# {escape(HOSTILE)}" in shown


def test_cells_are_escaped_unless_they_are_markdown() -> None:
    """A link stays a link."""
    link = Markdown("[a](a.md)")
    shown = render("ladders.md.j2", title="Ladders", rows=[[link, HOSTILE, "", "", ""]])
    assert f"| [a](a.md) | {escape(HOSTILE)} |  |  |  |" in shown


def test_a_value_that_is_missing_ends_the_rendering() -> None:
    """A page with a hole would look as if nothing were to be said."""
    with pytest.raises(UndefinedError):
        render("refused.md.j2", title="x")


@pytest.mark.parametrize("path", sorted(TEMPLATES.iterdir()), ids=lambda path: path.name)
def test_no_template_joins_with_a_tilde_or_marks_as_safe(path) -> None:
    """`~` and `safe` would escape for HTML only, or not at all."""
    source = path.read_text(encoding="utf-8")
    assert "~" not in source
    assert not re.search(r"\|\s*safe\b", source)
