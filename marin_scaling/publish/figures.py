"""The figure files of a page: a static picture that needs nothing, and the same figure to move about in, without network.

Draws nothing itself; a page decides which chart it shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from marin_scaling.publish.charts import chart_bytes
from marin_scaling.publish.markdown import escape, link

PLOTTER_NAME = "vega.js"
"""What draws the figures to move about in: once for all of them, at the root of the generated pages."""

_LIVE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Figure</title><script src="{plotter}"></script>
</head>
<body><div id="figure"></div>
<script type="application/json" id="drawn">{spec}</script>
<script>vegaEmbed("#figure", JSON.parse(document.getElementById("drawn").textContent), {{renderer: "svg"}});</script>
</body>
</html>
"""


def figure_files(panels: Mapping[str, Any], whole: Any, *, page_stem: str) -> dict[str, bytes]:
    """`PANEL.svg` for each panel, `whole.svg` and `interactive.html`, by path in a folder of the page's own.

    `page_stem` is the page's path without `.md`. The folder's name ends in `.figures`, so that no two pages share a file.
    """
    folder = f"{page_stem}.figures"
    files = {f"{folder}/{name}.svg": chart_bytes(panel, suffix=".svg") for name, panel in panels.items()}
    files[f"{folder}/whole.svg"] = chart_bytes(whole, suffix=".svg")
    return {**files, f"{folder}/interactive.html": _live(whole, plotter=f"{'../' * (folder.count('/') + 1)}{PLOTTER_NAME}")}


def plotter() -> bytes:
    """The program that `interactive.html` asks for: Vega and what it needs, from the installed vl-convert."""
    import vl_convert

    text: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return text.encode()


def _live(chart: Any, *, plotter: str) -> bytes:
    spec = chart_bytes(chart, suffix=".json").decode().replace("<", "\\u003c")  # no name may end the page's script
    return _LIVE.format(plotter=plotter, spec=spec).encode()


def show_figure(page_name: str, captions: Mapping[str, str]) -> str:
    """The Markdown that shows the panels with what is to be seen on them, beside each other where there is room.

    `page_name` is the name of the page's file without `.md`; the figures lie beside it.
    """
    folder = f"{page_name}.figures"
    pictures = "\n".join(f"![{escape(caption)}]({quote(folder)}/{name}.svg)" for name, caption in captions.items())
    return f"{pictures}\n\n{link('The same figure, to move about in', f'{folder}/interactive.html')}"
