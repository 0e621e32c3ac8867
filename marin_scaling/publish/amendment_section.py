"""The section of a forecast's page about later forecasts of the same run: when, after how much of it, why, and how they did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from marin_scaling.publish.markdown import escape, table

if TYPE_CHECKING:
    from marin_scaling.preregistration.statement import Statement

_WORDS = (
    "Later forecasts of the same run, by the same registrant. The first one is the promise: it has the verdict, and alone it "
    "counts in any record. A later one counts as given when it came into the log; how many steps of the run had been seen then "
    "is its registrant's word."
)


def amendments_section(scored: Sequence[Mapping[str, Any]], *, first: Statement, scores: Mapping[str, Any] | None) -> str:
    """A row for the first forecast with its scores, and one for each later one; empty where there is none."""
    if not scored:
        return ""
    low, high = (first.quantiles[level] for level in (0.05, 0.95))
    promised = {"point": first.quantiles[0.5], "interval_90": [low, high], "scores": scores}
    rows = [["the first", escape(first.predicate["createdAt"]), "0", *_numbers(promised)]]
    rows += [[escape(each["name"]), escape(each["given_at"]), str(each["steps_seen"]), *_numbers(each)] for each in scored]
    header = ["forecast", "given", "steps seen", "median", "90 % interval", "error", "CRPS", "in its interval"]
    said = "\n".join(f"* {_said(each)}" for each in scored)
    return f"## Forecast again\n\n{_WORDS}\n\n{table(header, rows, right=[2, 3, 4, 5, 6])}\n\n{said}"


def _numbers(scored: Mapping[str, Any]) -> list[str]:
    low, high = scored["interval_90"]
    told = [f"{scored['point']:.4f}", f"{low:.4f} to {high:.4f}"]
    if scored["scores"] is None:
        return [*told, "", "", ""]
    scores = scored["scores"]
    return [*told, f"{scores['signed_error']:+.4f}", f"{scores['crps']:.4f}", "yes" if scores["hit"] else "no"]


def _said(scored: Mapping[str, Any]) -> str:
    why_not = f" Not scored: {escape(scored['why_not_scored'])}." if scored["why_not_scored"] else ""
    return f"{escape(scored['name'])}: {escape(scored['reason'])}.{why_not}"
