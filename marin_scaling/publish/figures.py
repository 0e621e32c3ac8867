"""Render pages from `templates/pages/`, and figures from Vega-Lite.

On a page, every value that is not Markdown already is escaped. Figures have one theme, as SVG, PNG, HTML or JSON; SVGs are
cached by the digest of their spec.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from xml.sax.saxutils import escape as escape_xml

import altair as alt

from marin_scaling import markdown
from marin_scaling.canonical_json import sha256_hex
from marin_scaling.errors import StorageError, UsageError
from marin_scaling.files import replace_file
from marin_scaling.markdown import Markdown, chip, escape, link
from marin_scaling.preregistration.outcome import State
from marin_scaling.printable import JOINED, LISTED, TITLE_CHARACTERS, joined
from marin_scaling.units import counted, format_count, format_duration, format_flops

if TYPE_CHECKING:
    from jinja2 import Environment


TEMPLATES = Path(__file__).parent / "templates" / "pages"
SITE_ASSETS = ("forecasts.css", "names.js", "iframe-worker.js")
"""Style and scripts of every site, named in `mkdocs.yml` below `generated/assets/`."""


def asset(path: str) -> bytes:
    """Return the bytes of a file in `templates/`."""
    return (TEMPLATES.parent / path).read_bytes()


def render(template: str, **values: Any) -> Markdown:
    """Render a template with `values`. Strings are escaped and never read as templates."""
    return Markdown(_environment().get_template(template).render(values).strip() + "\n")


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        finalize=escape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters = dict(_FILTERS)  # Jinja's own escape for HTML only
    made.globals = {**_FUNCTIONS, "LISTED": LISTED, "JOINED": JOINED}
    return made


def _table(header: Sequence[object], rows: Iterable[Sequence[object]], **options: Any) -> Markdown:
    return markdown.table(list(map(escape, header)), [list(map(escape, row)) for row in rows], **options)


def _bullets(items: Iterable[object], **options: Any) -> Markdown:
    return markdown.bullets(list(map(escape, items)), **options)


def _listed(items: Iterable[object], **options: Any) -> Markdown:
    return markdown.listed(list(map(escape, items)), **{"most": JOINED, **options})


def _number(value: float | None, spec: str = ".4f", unknown: str = "") -> str:
    """Format a number; `unknown` if it is None."""
    return unknown if value is None else format(value, spec)


def _span(low_high: Sequence[float], spec: str = ".4f") -> str:
    low, high = low_high
    return f"{low:{spec}} to {high:{spec}}"


def sentence(text: str) -> str:
    """Return the text with a capital first letter."""
    return text[:1].upper() + text[1:]


_CHIPS = {
    State.SEALED: "open",
    State.PENDING: "open",
    State.OVERDUE: "warn",
    State.HELD: "good",
    State.MISSED: "bad",
    State.WITHDRAWN: "",
    State.WITHDRAWN_LATE: "warn",
    State.VOID: "",
    State.REFUSED: "bad",
}


def state_chip(state: State) -> Markdown:
    """Return the state of a forecast as a word on a color."""
    return chip(state, _CHIPS[state])


_FILTERS: Mapping[str, Callable[..., Any]] = {
    "bullets": _bullets,
    "cell": markdown.cell,
    "code": markdown.code,
    "count": format_count,
    "duration": format_duration,
    "flops": format_flops,
    "join": lambda items, separator: Markdown(separator.join(map(escape, items))),
    "joined": joined,
    "length": len,
    "listed": _listed,
    "number": _number,
    "prose": markdown.prose,
    "sentence": sentence,
    "span": _span,
    "title": lambda text: markdown.cell(text, TITLE_CHARACTERS),
    "whole": markdown.whole,
}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "counted": counted,
    "link": markdown.link,
    "preformatted": markdown.preformatted,
    "table": _table,
    "web_link": markdown.web_link,
}


LAW_COLOUR, OUTCOME_COLOUR, POINT_COLOUR = "#0072B2", "#D55E00", "#222222"
"""Blue and vermilion of Okabe and Ito's palette, and near black."""
PNG_SCALE = 2.0
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


_THEME = {
    "font": "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif",
    "axis": {
        "gridColor": "#e6e6e6",
        "labelFontSize": 11,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelOverlap": True,
    },
    "legend": {"labelFontSize": 11, "titleFontSize": 11, "titleFontWeight": 400, "orient": "bottom", "columns": 4},
    "title": {"fontSize": 13, "anchor": "start", "fontWeight": 600, "frame": "group"},
    "view": {"stroke": "#cccccc"},
}


def figure(chart: Any, description: str) -> Any:
    """Return a chart in the theme of all figures; `description` is the text for screen readers.

    Figures have a white background; the site's style sheet inverts their lightness on dark pages.
    """
    return chart.properties(background="white", padding=12, description=description, config=_THEME)


def tooltips(*columns: str) -> list[Any]:
    """Return tooltips of columns. For a bare name, Altair hashes all its schemas to find their class: milliseconds each."""
    return [alt.Tooltip(column) for column in columns]


def save_chart(chart: Any, path: Path) -> None:
    """Write a chart atomically by its suffix: .html (works offline), .svg, .png or .json (Vega-Lite)."""
    suffix = path.suffix.lower()
    if suffix not in _WRITERS:
        raise UsageError(
            f"{path}: figures are not written as {path.suffix or 'a file without suffix'!r}.",
            why="The suffix selects the format.",
            fix=f"Use one of: {', '.join(_WRITERS)}",
        )
    replace_file(path, chart_bytes(chart, suffix=suffix))


def chart_bytes(chart: Any, *, suffix: str) -> bytes:
    """Return the content of a figure file: ".html", ".svg", ".png" or ".json"."""
    return _WRITERS[suffix](chart_spec(chart))


def chart_spec(chart: Any) -> dict[str, Any]:
    """Return the chart's Vega-Lite specification without Altair's limit of 5,000 rows."""
    with alt.data_transformers.enable("default", max_rows=None):
        spec: dict[str, Any] = _printable(chart.to_dict(validate=False))
    return spec


def _printable(value: Any) -> Any:
    """Replace characters that XML does not have: vl-convert aborts the process on them."""
    if isinstance(value, str):
        return _NOT_XML.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_printable(key): _printable(each) for key, each in value.items()}
    return list(map(_printable, value)) if isinstance(value, list) else value


def _html(spec: dict[str, Any]) -> bytes:
    import vl_convert

    spec = json.loads(json.dumps(spec).replace("<", "<\\u200b"))  # no name may end the page's script
    page: str = vl_convert.vegalite_to_html(spec, bundle=True)
    return page.encode()


def _png(spec: dict[str, Any]) -> bytes:
    import vl_convert

    raw: bytes = vl_convert.vegalite_to_png(spec, scale=PNG_SCALE)
    return raw


def _json(spec: dict[str, Any]) -> bytes:
    return (json.dumps(spec, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def _svg(spec: dict[str, Any]) -> bytes:
    return _cached(_json(spec), ".svg", lambda: _drawn(spec))


def _drawn(spec: dict[str, Any]) -> bytes:
    import vl_convert

    drawn: str = vl_convert.vegalite_to_svg(spec)
    start, end = drawn.split(">", 1)
    return f'{start} role="img"><title>{escape_xml(spec.get("description", "Figure"))}</title>{end}'.encode()


_WRITERS: dict[str, Callable[[dict[str, Any]], bytes]] = {".html": _html, ".svg": _svg, ".png": _png, ".json": _json}


def _cached(source: bytes, suffix: str, make: Callable[[], bytes]) -> bytes:
    """Return the result of `make` for `source` and the installed vl-convert, from the user's cache if present.

    The cache lies outside of the repository, so no pull request can put a picture into it.
    """
    folder = _cache_folder()
    if folder is None:
        return make()
    path = folder / f"{sha256_hex(source + _renderer().encode())}{suffix}"
    with suppress(OSError):
        digest, _, known = path.read_bytes().partition(b"\n")
        if digest == sha256_hex(known).encode():
            return known
    made = make()
    with suppress(StorageError):
        replace_file(path, sha256_hex(made).encode() + b"\n" + made)
    return made


def _cache_folder() -> Path | None:
    """Return the cache's folder, or None if it would lie in the repository or below the current folder."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    if not base.is_absolute() or base.resolve().is_relative_to(Path.cwd().resolve()):
        return None
    return base / "marin-scaling" / "figures"


@cache
def _renderer() -> str:
    return version("vl-convert-python")


PLOTTER_NAME = "vega.js"
"""Script that draws interactive figures, shared by all of them, at the root of the generated pages."""


def picture_files(panels: Mapping[str, Any], *, page_stem: str) -> dict[str, bytes]:
    """Return `PANEL.svg` for each panel, by its path in the folder `page_stem.figures`.

    `page_stem` is the page's path without `.md`. No two pages share such a folder.
    """
    return {f"{page_stem}.figures/{name}.svg": chart_bytes(panel, suffix=".svg") for name, panel in panels.items()}


def figure_files(panels: Mapping[str, Any], whole: Any, *, page_stem: str, page: str, title: str) -> dict[str, bytes]:
    """Return `picture_files`, and `interactive.html` of the chart `whole` with its title and a link back to the page.

    `page` is the name of the page's file without `.md`.
    """
    folder = f"{page_stem}.figures"
    spec = chart_bytes(whole, suffix=".json").decode().replace("<", "\\u003c")  # no name may end the page's script
    live = Template(asset("figure/interactive.html").decode()).substitute(
        plotter=f"{'../' * (folder.count('/') + 1)}{PLOTTER_NAME}",
        page=f"../{quote(page, errors='surrogateescape')}.html",
        title=escape(title),
        spec=spec,
    )
    return {**picture_files(panels, page_stem=page_stem), f"{folder}/interactive.html": live.encode()}


def plotter() -> bytes:
    """Return the script that `interactive.html` loads: Vega and its dependencies, from the installed vl-convert."""
    return _cached(b"window.vegaEmbed = vegaEmbed;", ".js", _plotter)


def _plotter() -> bytes:
    import vl_convert

    script: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return script.encode()


def show_pictures(page_name: str, captions: Mapping[str, str]) -> Markdown:
    """Return the Markdown that shows panels side by side where there is room.

    `page_name` is the page's file name without `.md`; `captions` maps panel names to captions.
    """
    folder = quote(f"{page_name}.figures")
    return Markdown("\n".join(f"![{escape(caption)}]({folder}/{name}.svg)" for name, caption in captions.items()))


def show_figure(page_name: str, captions: Mapping[str, str]) -> Markdown:
    """Return `show_pictures` and a link to the interactive version."""
    return Markdown(f"{show_pictures(page_name, captions)}\n\n{show_live(page_name)}")


def show_live(page_name: str) -> Markdown:
    """Return a link to the interactive version of a page's figure."""
    return link("Open the interactive version", f"{page_name}.figures/interactive.html")


def show_wide(folder: str, name: str, caption: str) -> Markdown:
    """Return the HTML of one figure over the page's width; telephones are shown `NAME-narrow.svg` of the same folder."""
    place = quote(folder)
    narrow = f'<source media="(max-width: 45em)" srcset="{place}/{name}-narrow.svg">'
    picture = f'<picture>{narrow}<img class="wide" src="{place}/{name}.svg" alt="{escape(caption)}"></picture>'
    return Markdown(f"<figure>{picture}</figure>")
