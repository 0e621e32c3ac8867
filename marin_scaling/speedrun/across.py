"""What is only seen beside other submissions: a run under two names, copied figures, a parent that is not there."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence

from marin_scaling.speedrun.finding import Finding, doubt, refused
from marin_scaling.speedrun.submission import Submission

_Marks = Callable[[Submission], Iterable[Hashable]]


def findings_across(submissions: Sequence[Submission]) -> list[list[Finding]]:
    """The findings of each submission, in their order; of equals the first stays, and the others are refused."""
    found: list[list[Finding]] = [[] for _ in submissions]
    for rule, key, marks_of, said in _RULES:
        for position, other in _repeated(submissions, marks_of):
            if not any(finding.rule in _ONE_IS_ENOUGH for finding in found[position]):
                found[position].append(refused(rule, key, said.format(submissions[other].name)))
    names = {each.name for each in submissions}
    for position, each in enumerate(submissions):
        if each.lineage is not None and each.lineage.parent not in names:
            said = f"there is no {each.lineage.parent} to compare it with"
            found[position].append(doubt("lineage", "lineage.parent", said))
    return found


def _repeated(submissions: Sequence[Submission], marks_of: _Marks) -> Iterable[tuple[int, int]]:
    """Positions of a submission and of an earlier one that has a mark in common with it."""
    first: dict[Hashable, int] = {}
    for position, each in enumerate(submissions):
        earlier = sorted(first[mark] for mark in marks_of(each) if mark in first)
        if earlier:
            yield position, earlier[0]
        for mark in marks_of(each):
            first.setdefault(mark, position)


def _names(submission: Submission) -> Iterable[Hashable]:
    return [submission.name]


def _logs(submission: Submission) -> Iterable[Hashable]:
    return {each.log for each in submission.seeds if each.log is not None}


def _digests(submission: Submission) -> Iterable[Hashable]:
    return {each.log_sha256 for each in submission.seeds if each.log_sha256 is not None}


def _figures(submission: Submission) -> Iterable[Hashable]:
    return {(each.bits_per_byte, each.finished_at) for each in submission.seeds if each.finished_at is not None}


_ONE_IS_ENOUGH = ("name", "duplicate")
_RULES: tuple[tuple[str, str, _Marks, str], ...] = (
    ("name", "name", _names, "there is another submission {}"),
    ("duplicate", "seeds.log", _logs, "its run is that of {}"),
    ("duplicate", "seeds.log_sha256", _digests, "its log is that of {}"),
    ("copied", "seeds.bits_per_byte", _figures, "its result and the time of its end are those of {}, to the last digit"),
)
