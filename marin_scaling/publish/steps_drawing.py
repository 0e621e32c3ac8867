"""Draw how an experiment was made: its steps from left to right, each after what it took, with how long it ran.

A still picture (SVG) that also shows without scripts. More steps than `MOST` are not drawn; a table beside it has them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from graphlib import TopologicalSorter

from marin_scaling.experiment.experiment import Step
from marin_scaling.publish.svg import picture, plain

MOST = 60
_WIDE, _HIGH, _ACROSS, _DOWN, _EDGE = 190, 46, 44, 14, 8
_LETTERS = 24
_COLOURS = {"failed": "#d55e00", "running": "#e69f00", "waiting": "#999999", "reused": "#009e73"}


def steps_drawing(steps: Sequence[Step]) -> bytes:
    """The picture as SVG; empty where there are too few or too many steps for one.

    >>> drawn = steps_drawing([Step(name="text"), Step(name="train", inputs=("text",))])
    >>> drawn.count(b"<rect"), drawn.count(b"<path")
    (3, 1)
    """
    if not 2 <= len(steps) <= MOST:
        return b""
    columns = _columns(steps)
    places = {step.name: (depth, row) for depth, column in enumerate(columns) for row, step in enumerate(column)}
    width = 2 * _EDGE + len(columns) * _WIDE + (len(columns) - 1) * _ACROSS
    height = 2 * _EDGE + max(map(len, columns)) * (_HIGH + _DOWN) - _DOWN
    parts = [*_arrows(steps, places), *(part for step in steps for part in _box(step, places[step.name]))]
    return picture(parts, width=width, height=height)


def _columns(steps: Sequence[Step]) -> list[list[Step]]:
    """The steps by how many must come before them, in a row."""
    inputs, depths = {step.name: step.inputs for step in steps}, dict[str, int]()
    for name in TopologicalSorter(inputs).static_order():
        depths[name] = max((depths[each] + 1 for each in inputs[name]), default=0)
    found: list[list[Step]] = [[] for _ in range(max(depths.values()) + 1)]
    for step in steps:
        found[depths[step.name]].append(step)
    return found


def _corner(place: tuple[int, int]) -> tuple[int, int]:
    depth, row = place
    return _EDGE + depth * (_WIDE + _ACROSS), _EDGE + row * (_HIGH + _DOWN)


def _arrows(steps: Sequence[Step], places: Mapping[str, tuple[int, int]]) -> Iterator[str]:
    for step in steps:
        x, y = _corner(places[step.name])
        for name in dict.fromkeys(step.inputs):
            from_x, from_y = _corner(places[name])
            start, middle = (from_x + _WIDE, from_y + _HIGH // 2), _ACROSS // 2
            curve = f"C{start[0] + middle},{start[1]} {x - middle},{y + _HIGH // 2} {x},{y + _HIGH // 2}"
            yield f'<path d="M{start[0]},{start[1]}{curve}" fill="none" stroke="#999999"/>'


def _box(step: Step, place: tuple[int, int]) -> Iterator[str]:
    x, y = _corner(place)
    colour = _COLOURS.get(step.status or "", "#0072b2")
    yield f"<g><title>{plain(f'{step.name}: {step.what}' if step.what else step.name)}</title>"
    yield f'<rect x="{x}" y="{y}" width="{_WIDE}" height="{_HIGH}" rx="4" fill="white" stroke="{colour}" stroke-width="1.5"/>'
    yield f'<text x="{x + 8}" y="{y + 19}" fill="#222222" font-weight="600">{plain(_short(step.name))}</text>'
    yield f'<text x="{x + 8}" y="{y + 36}" fill="#444444">{plain(_short(_under(step)))}</text></g>'


def _under(step: Step) -> str:
    said = [step.status or "", duration(step.seconds)]
    return ", ".join(each for each in said if each) or (step.what or "")


def _short(words: str) -> str:
    return words if len(words) <= _LETTERS else f"{words[: _LETTERS - 1]}…"


def duration(seconds: float | None) -> str:
    """Seconds for a reader; empty where they are not known.

    >>> duration(93.4), duration(7200.0), duration(None)
    ('93 s', '2.0 h', '')
    """
    if seconds is None:
        return ""
    if seconds < 600:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
