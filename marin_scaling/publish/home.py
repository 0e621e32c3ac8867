"""Results on the first page: the farthest-reaching law, all forecasts as intervals, and three numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from marin_scaling.markdown import page_name
from marin_scaling.preregistration.state import State
from marin_scaling.publish.figures import picture_files, show_wide
from marin_scaling.publish.ladder_page import FittedLadder, LadderPage, PromisedRun
from marin_scaling.publish.overview_charts import reach_chart
from marin_scaling.publish.render import render

HOME_NAME = "home.snippet"
"""The part of the first page that `site/index.md` includes; no page of its own."""
_FOLDER = "home.figures"


def home_files(ladders: Sequence[LadderPage], promised: Sequence[PromisedRun], *, has_intervals: bool) -> dict[str, bytes]:
    """Return the part of the first page that shows results, and its figure of a law, by path.

    `has_intervals` says whether the index has a figure of all forecasts, which the first page shows too.
    """
    fitted, pictures, law = _farthest(ladders), dict[str, Any](), ""
    if fitted:
        ahead = fitted.result, fitted.forecasts, fitted.outcomes
        pictures = {"law": reach_chart(*ahead), "law-narrow": reach_chart(*ahead, is_narrow=True)}
        law = show_wide(f"generated/{_FOLDER}", "law", f"Runs of the ladder {fitted.name}, their law, and what it forecast")
    text = render(
        "home.md.j2",
        fitted=fitted,
        page=f"generated/ladders/{page_name(fitted.name)}.md" if fitted else "",
        law=law,
        intervals=show_wide("generated/index.figures", "intervals", "All forecasts as intervals") if has_intervals else "",
        numbers=[*_reach(fitted), *_settled(promised), *_runs(ladders)],
    )
    return {HOME_NAME: text.encode(), **picture_files(pictures, page_stem="home")}


def _farthest(ladders: Sequence[LadderPage]) -> FittedLadder | None:
    """Return the ladder whose law was tested farthest beyond its runs; without any such, that of the most runs."""
    known = [each.fitted for each in ladders if each.fitted and each.fitted.result.status.may_be_used]
    return max(known, key=lambda each: (_tested_reach(each), len(each.result.frame)), default=None)


def _tested_reach(each: FittedLadder) -> float:
    return max((outcome.flops for outcome in each.outcomes), default=0.0) / each.result.largest_flops


def _reach(fitted: FittedLadder | None) -> list[tuple[str, str]]:
    """Return the farthest forecast that can be compared with a measured loss."""
    if fitted is None or not fitted.outcomes or not fitted.forecasts:
        return []
    ahead = max(fitted.forecasts, key=lambda each: each.flops)
    measured = min(fitted.outcomes, key=lambda each: abs(each.flops - ahead.flops))
    off = ahead.median / measured.loss - 1
    words = f"the error at {ahead.extrapolation:.0f} times the compute of the largest fitted run: forecast {ahead.median:.4f}, "
    return [(f"{off:+.1%}", f"{words}measured {measured.loss:.4f}")]


def _settled(promised: Sequence[PromisedRun]) -> list[tuple[str, str]]:
    held, missed = (sum(each.state == state for each in promised) for state in (State.HELD, State.MISSED))
    if not promised:
        return []
    if not held + missed:
        return [(str(len(promised)), "signed forecasts, none of them settled yet")]
    return [(f"{held} of {held + missed}", "settled forecasts held: the loss lay in the signed 90 % interval")]


def _runs(ladders: Sequence[LadderPage]) -> list[tuple[str, str]]:
    counts = [len(each.fitted.result.frame) for each in ladders if each.fitted]
    if not counts:
        return []
    return [(f"{sum(counts):,}", f"small runs in {len(counts)} {'ladder' if len(counts) == 1 else 'ladders'}, all published")]
