"""How a submission was made: epochs, seeds, times, tuning; what a reader has to know before they compare it with others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta

from marin_scaling.speedrun.finding import Finding, doubt, note, refused
from marin_scaling.speedrun.submission import Submission

_CLOCKS_DIFFER = timedelta(days=1)


def conduct_findings(submission: Submission, *, at: datetime) -> Iterator[Finding]:
    """What is wrong with, or to be known of, the way in which it was made; `at` is now (UTC)."""
    yield from _epochs(submission)
    yield from _seeds(submission)
    yield from _times(submission, at=at)
    yield from _tuning(submission)
    yield from _lineage(submission)


def _epochs(submission: Submission) -> Iterator[Finding]:
    epochs = submission.epochs
    if epochs is not None and epochs > 1:
        said = f"{submission.data.trained_tokens} tokens of a set of {submission.data.unique_tokens}: {epochs:.2f} epochs"
        yield note("epochs", "data.trained_tokens", f"{said}, so text came again")


def _seeds(submission: Submission) -> Iterator[Finding]:
    named = [each.seed for each in submission.seeds if each.seed is not None]
    if twice := [seed for seed, times in Counter(named).items() if times > 1]:
        yield refused("seeds", "seeds.seed", f"seed {twice[0]} stands {Counter(named)[twice[0]]} times: that is one run")
    if len(named) < len(submission.seeds):
        yield note("seeds", "seeds.seed", f"the seed that was run is not recorded: {_reason(submission, 'seeds.seed')}")
    if len(submission.seeds) == 1:
        yield note("one-seed", "seeds", "one seed: how far another would be is not known from it")


def _reason(submission: Submission, key: str) -> str:
    return next(
        (why for name, why in submission.absent.items() if key == name or key.startswith(f"{name}.")), "no reason given"
    )


def _times(submission: Submission, *, at: datetime) -> Iterator[Finding]:
    for seed in submission.seeds:
        started, finished = seed.started_at, seed.finished_at
        naive = [each for each in (started, finished) if each is not None and each.tzinfo is None]
        if naive:
            yield refused(
                "times", "seeds.finished_at", f"{naive[0].isoformat()} does not say in which zone; write it in UTC, with Z"
            )
            continue
        if finished is not None and finished > at + _CLOCKS_DIFFER:
            yield refused("times", "seeds.finished_at", f"it ended at {finished.isoformat()}, which is not yet")
        if started is None or finished is None:
            continue
        elapsed = (finished - started).total_seconds()
        if elapsed < 0:
            yield refused("times", "seeds.finished_at", f"it ended at {finished.isoformat()}, before it began")
        elif seed.training_seconds is not None and seed.training_seconds > elapsed:
            said = f"{seed.training_seconds:.6g} s of steps are stated, between begin and end lie {elapsed:.6g} s"
            yield refused("times", "seeds.training_seconds", said)


def _tuning(submission: Submission) -> Iterator[Finding]:
    tuning = submission.tuning
    if tuning is None:
        yield note("tuning", "tuning", f"how many settings were tried is not known: {_reason(submission, 'tuning')}")
        return
    for setting, value in sorted(tuning.chosen.items()):
        tried = sorted(tuning.grid.get(setting, ()))
        if tried and value not in tried:
            yield refused(
                "tuning",
                f"tuning.chosen.{setting}",
                f"{value:g} was taken, and {', '.join(f'{x:g}' for x in tried)} were tried",
            )
        elif len(tried) > 1 and value in (tried[0], tried[-1]):
            which = "largest" if value == tried[-1] else "smallest"
            said = f"{value:g} is the {which} value that was tried: the best may lie beyond"
            yield doubt("boundary", f"tuning.chosen.{setting}", said)


def _lineage(submission: Submission) -> Iterator[Finding]:
    if submission.lineage is not None and submission.lineage.parent == submission.name:
        yield refused("lineage", "lineage.parent", "it names itself as what it was made from")
