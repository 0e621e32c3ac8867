"""The area of a still plot: where a point lies, its grid, its ticks and the words around it. Draws no data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from marin_scaling.publish.svg import FRAME_COLOUR, GRID_COLOUR, line, round_steps, words

_ROOM = 0.05  # of the losses' range, above and below


@dataclass(frozen=True, kw_only=True)
class PlotArea:
    """Costs or steps from left to right, on a logarithmic scale where `is_log`, and losses from below."""

    width: int
    height: int
    across: tuple[float, float]
    losses: tuple[float, float]
    is_log: bool = False
    left: int = 64
    right: int = 130
    top: int = 34
    bottom: int = 48

    def x(self, value: float) -> float:
        """From the left edge of the picture."""
        low, high = map(self._scaled, self.across)
        return self.left + (self._scaled(value) - low) / (high - low) * (self.width - self.left - self.right)

    def y(self, loss: float) -> float:
        """From its upper edge."""
        low, high = self.losses
        return self.top + (high - loss) / (high - low) * (self.height - self.top - self.bottom)

    def axes(self, ticks: Iterable[float], *, label: Callable[[float], str], below: str, above: str) -> Iterator[str]:
        """Grid and frame, with a `label` at each of the `ticks` below, and what is drawn said `below` and `above` it."""
        bottom, right = self.height - self.bottom, self.width - self.right
        for tick in ticks:
            yield line(self.x(tick), self.top, self.x(tick), bottom, colour=GRID_COLOUR)
            yield words(self.x(tick), bottom + 16, label(tick), anchor="middle")
        for loss in round_steps(*self.losses):
            yield line(self.left, self.y(loss), right, self.y(loss), colour=GRID_COLOUR)
            yield words(self.left - 6, self.y(loss) + 4, f"{loss:.4g}", anchor="end")
        size = f'x="{self.left}" y="{self.top}" width="{right - self.left}" height="{bottom - self.top}"'
        yield f'<rect {size} fill="none" stroke="{FRAME_COLOUR}"/>'
        yield words((self.left + right) / 2, self.height - 10, below, anchor="middle")
        yield words(self.left, self.top - 12, above, weight=600)

    def _scaled(self, value: float) -> float:
        return math.log(value) if self.is_log else value


def with_room(losses: Sequence[float]) -> tuple[float, float]:
    """From somewhat below the lowest to somewhat above the highest.

    >>> with_room([2.0, 3.0])
    (1.95, 3.05)
    """
    room = _ROOM * ((max(losses) - min(losses)) or 1.0)
    return min(losses) - room, max(losses) + room
