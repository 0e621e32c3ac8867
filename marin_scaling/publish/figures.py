"""The figure files of a page: a static picture that needs nothing, and the same figure to move about in, without network.

Draws nothing itself; a page decides which chart it shows.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from marin_scaling.publish.charts import chart_bytes
from marin_scaling.publish.markdown import escape, link


def figure_files(chart: Any, *, stem: str) -> dict[str, bytes]:
    """`STEM.svg` and `STEM-interactive.html` of a chart, by path."""
    return {f"{stem}.svg": chart_bytes(chart, suffix=".svg"), f"{stem}-interactive.html": chart_bytes(chart, suffix=".html")}


def show_figure(stem: str, *, caption: str) -> str:
    """The Markdown that shows the picture `STEM.svg`, which says in `caption` what is to be seen, and links to the other."""
    return f"![{escape(caption)}]({quote(stem)}.svg)\n\n{link('The same figure, to move about in', f'{stem}-interactive.html')}"
