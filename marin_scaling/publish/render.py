"""Render pages from `templates/pages/`: every value that is not Markdown already is escaped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marin_scaling import markdown
from marin_scaling.limits import JOINED, LISTED, TITLE_CHARACTERS
from marin_scaling.markdown import Markdown, chip, escape
from marin_scaling.preregistration.outcome import State
from marin_scaling.printable import joined
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
