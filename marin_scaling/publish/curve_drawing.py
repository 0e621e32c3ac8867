"""Draw the loss curves of a submission, a line for each of its first seeds: a still picture (SVG)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from marin_scaling.publish.plot_area import PlotArea, with_room
from marin_scaling.publish.submission_curves import Curve
from marin_scaling.publish.svg import picture, round_steps, words

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")


def curve_drawing(curves: Sequence[Curve]) -> bytes:
    """The picture of the first six; empty where none has two points.

    >>> drawn = curve_drawing([Curve(label="seed 0", axis="loss", points=[(0, 3.0), (10, 2.0)])])
    >>> drawn.count(b"<polyline"), b"seed 0" in drawn
    (1, True)
    """
    drawn = [curve for curve in curves if len(curve.points) > 1][: len(_COLOURS)]
    if not drawn:
        return b""
    area = _area([point for curve in drawn for point in curve.points])
    axes = area.axes(round_steps(*area.across), label="{:,.0f}".format, below="step", above=drawn[0].axis)
    return picture([*axes, *_lines(area, drawn)], width=area.width, height=area.height)


def _area(points: Sequence[tuple[float, float]]) -> PlotArea:
    steps, losses = [step for step, _ in points], [loss for _, loss in points]
    across = (min(steps), max(max(steps), min(steps) + 1))
    return PlotArea(width=640, height=300, across=across, losses=with_room(losses), right=90)


def _lines(area: PlotArea, curves: Sequence[Curve]) -> Iterator[str]:
    for number, (curve, colour) in enumerate(zip(curves, _COLOURS, strict=False)):
        points = " ".join(f"{area.x(step):.1f},{area.y(loss):.1f}" for step, loss in curve.points)
        yield f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.3"/>'
        yield words(area.width - area.right + 8, area.top + 12 + 16 * number, curve.label, colour=colour)
