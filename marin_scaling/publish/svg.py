"""The parts of still pictures (SVG): lines, circles, words, the whole. No text is read as markup; nothing is laid out here."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from xml.sax.saxutils import escape

_FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
GRID_COLOUR, FRAME_COLOUR = "#e6e6e6", "#cccccc"


def picture(parts: Iterable[str], *, width: int, height: int) -> bytes:
    """The whole, on white: it is shown in an <img>, where the page's colours do not reach.

    >>> picture([], width=10, height=5).count(b"<rect")
    1
    """
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{_FONT}" font-size="11" role="img">'
    return "\n".join([head, f'<rect width="{width}" height="{height}" fill="white"/>', *parts, "</svg>", ""]).encode()


def line(x1: float, y1: float, x2: float, y2: float, *, colour: str, width: float = 1.0) -> str:
    """A straight line."""
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{colour}" stroke-width="{width:g}"/>'


def circle(x: float, y: float, radius: float, *, fill: str, stroke: str) -> str:
    """A circle."""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{fill}" stroke="{stroke}" stroke-width="1.6"/>'


def words(x: float, y: float, text: str, *, anchor: str = "start", colour: str = "#222222", weight: int = 400) -> str:
    """A line of text.

    >>> words(1, 2, "a < b")
    '<text x="1.0" y="2.0" text-anchor="start" fill="#222222" font-weight="400">a &lt; b</text>'
    """
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} fill="{colour}" font-weight="{weight}">{plain(text)}</text>'


def plain(text: str) -> str:
    """Text for an SVG: nothing in it is markup, and no sign that XML does not know."""
    return escape(_NO_XML.sub("\ufffd", text))


def round_steps(low: float, high: float, *, about: int = 5) -> list[float]:
    """About so many round numbers between two.

    >>> round_steps(0.0, 1.0)
    [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]
    """
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    return [number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1)]
