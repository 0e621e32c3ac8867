"""Validate submissions: each by itself, and all beside each other. Offline, from the files alone; nothing is run or written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from marin_scaling.speedrun.accounting import accounting_findings
from marin_scaling.speedrun.across import findings_across
from marin_scaling.speedrun.conduct import conduct_findings
from marin_scaling.speedrun.finding import Finding, Weight
from marin_scaling.speedrun.submission import Submission
from marin_scaling.speedrun.track import Track, track_findings

_ORDER = tuple(Weight)


@dataclass(frozen=True, kw_only=True)
class Validated:
    """A submission with all that was found, the heaviest first."""

    submission: Submission
    findings: tuple[Finding, ...]

    @property
    def weight(self) -> Weight | None:
        """Of the heaviest finding; None where nothing was found."""
        return self.findings[0].weight if self.findings else None

    @property
    def accepted(self) -> bool:
        """Whether it may stand on the board."""
        return self.weight is not Weight.REFUSED


def validate(
    submissions: Sequence[Submission], *, at: datetime, tracks: Mapping[str, Track] = MappingProxyType({})
) -> list[Validated]:
    """Each submission with its findings, in the given order; `at` is now (UTC). Without tracks theirs are not asked for."""
    beside = zip(submissions, findings_across(submissions), strict=True)
    return [_validated(each, [*track_findings(each, tracks), *across], at=at) for each, across in beside]


def _validated(submission: Submission, further: Sequence[Finding], *, at: datetime) -> Validated:
    findings = [*accounting_findings(submission), *conduct_findings(submission, at=at), *further]
    return Validated(submission=submission, findings=tuple(sorted(findings, key=lambda each: _ORDER.index(each.weight))))
