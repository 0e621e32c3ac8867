"""What every audit of runs hands on: reasons to leave runs out, and doubts about runs that stay. Decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_NAMED = 3


@dataclass(frozen=True, kw_only=True)
class Findings:
    """Positions of runs to leave out, each with its reason, and a sentence for each doubt about runs that stay."""

    reasons: dict[int, str]
    doubts: tuple[str, ...]


def name_some(names: Sequence[str]) -> str:
    """The first three names, and how many more there are.

    >>> name_some(["a", "b", "c", "d"])
    'a, b, c and 1 more'
    """
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
