"""Whether a submission comes out again when its entry is trained again. Compares losses only; training is in `run`.

Its mean is compared with the new one, by what the new runs say of chance: the claimed ones could spread as their author likes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, stdev

from marin_scaling.errors import UsageError
from marin_scaling.speedrun.submission import Submission

_NORMAL_95 = 1.959964
_DECIDED = ("track", "data", "model", "training", "evaluation")  # by the entry, before anything is trained


@dataclass(frozen=True, kw_only=True)
class Confirmation:
    """Both means in bits per byte, how far they may lie apart by chance, and how far two runs of one seed did.

    `differs` names the parts of the submission that are not those of its entry.
    """

    name: str
    differs: tuple[str, ...]
    claimed: float
    again: float
    by_chance: float
    largest_of_a_seed: float

    @property
    def confirmed(self) -> bool:
        """Whether it is the submission of its entry, and chance can explain the difference."""
        return not self.differs and abs(self.again - self.claimed) <= self.by_chance

    @property
    def sentence(self) -> str:
        """What came out, in a line."""
        found = f"claimed {self.claimed:.6f} bits per byte, trained again {self.again:.6f}"
        seeds = (
            f"by chance they may differ by {self.by_chance:.6f}; of one seed they do by at most {self.largest_of_a_seed:.6f}"
        )
        other = f"; its entry has another {', '.join(self.differs)}" if self.differs else ""
        return f"{self.name}  {'confirmed' if self.confirmed else 'NOT confirmed'}: {found}; {seeds}{other}"


def confirmation(submission: Submission, retrained: Submission) -> Confirmation:
    """Compare a submission with that of its entry trained again; `UsageError` where it has other seeds, or one only."""
    claimed, losses = ({each.seed: each.bits_per_byte for each in one.seeds} for one in (submission, retrained))
    if set(claimed) != set(losses) or len(losses) < 2:
        raise UsageError(
            f"{submission.name} has the seeds {_said(claimed)}, and its entry {_said(losses)}.",
            why="The same runs are compared, and what chance does is seen from two or more.",
            fix="Submit all seeds of the entry, two or more.",
        )
    error = stdev(losses.values()) / math.sqrt(len(losses))
    return Confirmation(
        name=submission.name,
        differs=tuple(key for key in _DECIDED if getattr(submission, key) != getattr(retrained, key)),
        claimed=fmean(claimed.values()),
        again=fmean(losses.values()),
        by_chance=_NORMAL_95 * math.sqrt(2) * error,
        largest_of_a_seed=max(abs(claimed[seed] - loss) for seed, loss in losses.items()),
    )


def _said(seeds: Mapping[int | None, float]) -> str:
    return ", ".join("not recorded" if seed is None else str(seed) for seed in seeds)
