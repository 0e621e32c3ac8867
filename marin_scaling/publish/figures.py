"""The figure files of a page: a static picture that needs nothing, and the same figure to move about in, without network.

Draws nothing itself; a page decides which chart it shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from marin_scaling.publish.charts import chart_bytes
from marin_scaling.publish.markdown import escape, link


def figure_files(panels: Mapping[str, Any], whole: Any, *, stem: str) -> dict[str, bytes]:
    """`STEM-PANEL.svg` for each panel, `STEM.svg` and `STEM-interactive.html` of the whole, by path."""
    files = {f"{stem}-{name}.svg": chart_bytes(panel, suffix=".svg") for name, panel in panels.items()}
    files[f"{stem}.svg"] = chart_bytes(whole, suffix=".svg")
    return {**files, f"{stem}-interactive.html": chart_bytes(whole, suffix=".html")}


def show_figure(stem: str, captions: Mapping[str, str]) -> str:
    """The Markdown that shows `STEM-PANEL.svg` with what is to be seen on it, beside each other where there is room."""
    pictures = "\n".join(f"![{escape(caption)}]({quote(stem)}-{name}.svg)" for name, caption in captions.items())
    return f"{pictures}\n\n{link('The same figure, to move about in', f'{stem}-interactive.html')}"
