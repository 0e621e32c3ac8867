"""The numbers and doubts that were signed, against those that the ladder gives when it is fitted again.

Compares, and fits nothing. Warnings about the table that was read (its columns, runs that were left out) do not follow from the
ladder and stay the registrant's word; to say more doubts than the fit has is no fault.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from marin_scaling.preregistration.statement import Statement
from marin_scaling.preregistration.version_0_2 import as_in_statement
from marin_scaling.preregistration.versions import VERSION_0_1

if TYPE_CHECKING:
    from marin_scaling.forecast.forecast import Forecast

TOLERANCE = 0.01
"""By which share of the 90 % interval's width a quantile, a sample, a median or a band may differ, or a parameter by a share of
itself, as processors round differently. Seeds are the same."""
_GIVES = "and its ladder, fitted again, gives"


@dataclass(frozen=True, kw_only=True)
class FittedAgain:
    """What a ladder gives now.

    `document` is that of `forecast_document` (with the doubts, where the statement has any), `said_of_table` the warnings in it
    that are about the table; `losses` are samples as in samples.json.
    """

    forecast: Forecast
    document: Mapping[str, Any]
    said_of_table: Sequence[str]
    losses: Sequence[float]


def difference(statement: Statement, subjects: Mapping[str, Any], again: FittedAgain) -> str:
    """The first number or doubt that the ladder does not give, in words; empty where it gives all.

    `subjects` are the content of forecast.json, and of samples.json where there is one.
    """
    return next((unlike for unlike in _differences(statement, subjects, again) if unlike), "")


def furthest(stated: Mapping[float, float], found: Mapping[float, float]) -> float:
    """The largest difference of two quantiles, as a share of the stated 90 % interval."""
    return max(abs(found[level] - value) for level, value in stated.items()) / (stated[0.95] - stated[0.05])


def instead(statement: Statement, found: str) -> str:
    """That the ladder gives something else than the statement's median."""
    return f"it forecasts {statement.predicate['forecast']['point']:.4f}, {_GIVES} {found}"


def _differences(statement: Statement, subjects: Mapping[str, Any], again: FittedAgain) -> Iterator[str]:
    forecast, fit = statement.predicate["forecast"], statement.predicate["fit"]
    close = TOLERANCE * (statement.quantiles[0.95] - statement.quantiles[0.05])
    if furthest(statement.quantiles, again.forecast.quantiles) > TOLERANCE:
        low, high = again.forecast.interval
        yield instead(statement, f"{again.forecast.median:.4f}, 90 % interval [{low:.4f}, {high:.4f}]")
    yield _unlike("fit.parameters", fit["parameters"], again.document["parameters"], close=0.0)
    yield _unlike("forecast.bands", forecast["bands"], again.forecast.bands, close=close)
    if "samples.json" in subjects:
        yield _unlike_samples(subjects["samples.json"]["losses"], again.losses, close=close)
    if statement.version is not VERSION_0_1:  # it had no doubts
        yield _unlike_words(fit, again.document)
        yield _unlike_status(subjects["forecast.json"], again.document)
        (found,) = again.document["predictions"]
        yield _unlike_choices(forecast["sensitivity"], [*map(as_in_statement, found["sensitivity"])], close=close)
        tested = [*map(as_in_statement, again.document["backtest"])]
        yield _unlike_scores(fit["backtest"], tested, close=close / again.forecast.median)
        yield _missing(fit["warnings"], again)


def _unlike(where: str, stated: Mapping[str, float | None], found: Mapping[str, float | None], *, close: float) -> str:
    for key in sorted(stated.keys() | found.keys()):
        if key not in stated or key not in found or not _alike(stated[key], found[key], close=close):
            return f"{where}.{key} is {stated.get(key)}, {_GIVES} {found.get(key)}"
    return ""


def _alike(one: float | None, other: float | None, *, close: float) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=close)


def _unlike_samples(stated: Sequence[float], found: Sequence[float], *, close: float) -> str:
    """The farthest of them: also beyond the outermost quantiles, where the score still sees them."""
    place = max(range(len(stated)), key=lambda place: abs(stated[place] - found[place]))
    if abs(stated[place] - found[place]) <= close:
        return ""
    return f"of the losses in samples.json number {place + 1} is {stated[place]:.6g}, {_GIVES} {found[place]:.6g}"


def _unlike_words(stated: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """The law's formula, and what was set by hand: a reader takes both for what the ladder was fitted with."""
    for key, ours in (("law", found["law"]), ("fixed", found.get("fixed", {}))):
        if stated[key] != ours:
            return f"fit.{key} is {stated[key]!r}, {_GIVES} {ours!r}"
    return ""


def _unlike_status(stated: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    if stated.get("status", found["status"]) == found["status"]:
        return ""
    return f"the status in forecast.json is {stated['status']!r}, {_GIVES} {found['status']!r}"


def _unlike_choices(stated: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]], *, close: float) -> str:
    """Medians only: why a choice gives none is said with the name of the registrant's own table."""
    medians, again = ({row["choice"]: row["median"] for row in rows} for rows in (stated, found))
    for choice, median in again.items():
        if choice not in medians:
            return f"forecast.sensitivity has no {choice!r}, {_GIVES} {median}"
        if (medians[choice] is None) != (median is None) or (median is not None and abs(medians[choice] - median) > close):
            return f"forecast.sensitivity: {choice!r} is {medians[choice]}, {_GIVES} {median}"
    added = [row["choice"] for row in stated if row["choice"] not in again] or [""] * (len(stated) != len(found))
    return f"forecast.sensitivity has {len(stated)} choices, {_GIVES} {len(found)}: not {added[0]!r}" if added else ""


def _unlike_scores(stated: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]], *, close: float) -> str:
    if len(stated) != len(found):
        return f"fit.backtest has {len(stated)} rows, {_GIVES} {len(found)}"
    rows = enumerate(zip(stated, found, strict=True))
    return next((unlike for place, pair in rows if (unlike := _unlike(f"fit.backtest[{place}]", *pair, close=close))), "")


def _missing(stated: Sequence[str], again: FittedAgain) -> str:
    own = [each for each in again.document["warnings"] if each not in again.said_of_table]
    return next((f"fit.warnings says nothing of this, {_GIVES} it: {each}" for each in own if each not in stated), "")
