"""Two sections of a forecast's page that statements of the first format do not have: its doubts, and the registrant's words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from marin_scaling.markdown import cell, escape, table
from marin_scaling.printable import LISTED

if TYPE_CHECKING:
    from marin_scaling.preregistration.statement import Statement

Shown = Callable[[str], str]
"""From text of a statement to Markdown of where it is shown."""


def doubts_section(statement: Statement, *, shown: Shown = cell, heading: str = "##") -> str:
    """What the number hangs on, how it was tested, and what has to be beaten; the first format did not say."""
    predicate = statement.predicate
    if "sensitivity" not in predicate["forecast"]:
        return ""
    point, baseline = predicate["forecast"]["point"], predicate["scoring"]["baseline"]["point"]
    rows = [
        [shown(row["choice"]), *_beside(row["median"], point=point, why_none=shown(row["whyNone"]))]
        for row in predicate["forecast"]["sensitivity"]
    ]
    rows.append(["baseline: a line through the best run of each budget, on logarithms", *_beside(baseline, point=point)])
    choices = table(
        ["another choice", "median", "beside the forecast"], rows, right=[1, 2], most=LISTED, rest_in="statement.json"
    )
    tested = [
        [
            f"{row['nearest']:g}x to {row['farthest']:g}x" if row["farthest"] else f"{row['nearest']:g}x and more",
            str(row["count"]),
            f"{row['medianAbsoluteError']:.2%}",
            f"{row['bias']:+.2%}",
            f"{row['inside90']:.0%}",
        ]
        for row in predicate["fit"]["backtest"]
    ]
    header = ["beyond the runs", "forecasts", "error", "bias", "in 90 %"]
    backtest = f"Each budget of the ladder, forecast from the smaller ones:\n\n{table(header, tested, right=[1, 2, 3, 4])}"
    none = "No budget of the ladder could be forecast from smaller ones."
    return f"{heading} What the number hangs on\n\n{choices}\n\n{backtest if tested else none}"


def _beside(median: float | None, *, point: float, why_none: str = "") -> tuple[str, str]:
    return (why_none, "") if median is None else (f"{median:.4f}", f"{median / point - 1:+.2%}")


def promise_section(statement: Statement, *, shown: Shown = escape, heading: str = "##") -> str:
    """What the registrant said in words, and what was left unsaid."""
    predicate = statement.predicate
    if "resolution" not in predicate:
        return ""
    resolution = predicate["resolution"]
    said = {
        "assumed": [_assumed(each) for each in predicate["assumptions"]],
        "differs from the ladder": predicate["recipe"]["knownDifferencesFromLadder"],
        "related runs whose losses were known": predicate["knowledge"]["relatedRunsSeen"],
        "void if": resolution["voidIf"],
        "reviewers": predicate["reviewers"],
        "resolved by": [resolution["resolver"]],
        "due": [resolution["due"]],
    }
    rows = [[what, "; ".join(map(shown, words)) or "nothing was said"] for what, words in said.items()]
    return f"{heading} What was promised in words\n\n{table(['what', 'said'], rows)}"


def _assumed(assumption: Mapping[str, str]) -> str:
    otherwise = f" (if not: {assumption['ifFalse']})" if assumption["ifFalse"] else ""
    return f"{assumption['id']}: {assumption['text']}{otherwise}"
