"""The figure files of a page: a static picture that needs nothing, and the same figure to move about in, without network.

Draws nothing itself; a page decides which chart it shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from marin_scaling.publish.charts import chart_bytes
from marin_scaling.publish.markdown import escape, link


def figure_files(panels: Mapping[str, Any], whole: Any, *, page_stem: str) -> dict[str, bytes]:
    """`PANEL.svg` for each panel, `whole.svg` and `interactive.html`, by path in a folder of the page's own.

    `page_stem` is the page's path without `.md`. The folder's name ends in `.figures`, so that no two pages share a file.
    """
    folder = f"{page_stem}.figures"
    files = {f"{folder}/{name}.svg": chart_bytes(panel, suffix=".svg") for name, panel in panels.items()}
    files[f"{folder}/whole.svg"] = chart_bytes(whole, suffix=".svg")
    return {**files, f"{folder}/interactive.html": chart_bytes(whole, suffix=".html")}


def show_figure(page_name: str, captions: Mapping[str, str]) -> str:
    """The Markdown that shows the panels with what is to be seen on them, beside each other where there is room.

    `page_name` is the name of the page's file without `.md`; the figures lie beside it.
    """
    folder = f"{page_name}.figures"
    pictures = "\n".join(f"![{escape(caption)}]({quote(folder)}/{name}.svg)" for name, caption in captions.items())
    return f"{pictures}\n\n{link('The same figure, to move about in', f'{folder}/interactive.html')}"
