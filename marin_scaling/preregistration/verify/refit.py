"""Refit a preregistered forecast from its ladder and compare every number."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from marin_scaling import __version__
from marin_scaling.errors import MarinScalingError, UsageError, VerificationError
from marin_scaling.preregistration.format import as_in_statement
from marin_scaling.preregistration.ladder_records import ladder_table, recorded_curves_step
from marin_scaling.preregistration.layout import STATEMENT_NAME
from marin_scaling.preregistration.log import Receipts
from marin_scaling.preregistration.outcome import VerifiedStep
from marin_scaling.preregistration.statement import Statement, prediction_at, size_of, thinned
from marin_scaling.preregistration.verify.authenticity import Verified, VerifiedSeal, verify_folder

if TYPE_CHECKING:
    from marin_scaling.fitting.fit import FitResult
    from marin_scaling.forecast.forecast import Forecast, Target

TOLERANCE = 0.01
"""Largest difference of a quantile, sample, median or band as a share of the 90 % interval's width; of a parameter,
relative.

Processors round differently; seeds are equal.
"""
_GIVES = "but refitting its ladder gives"


@dataclass(frozen=True, kw_only=True)
class FittedAgain:
    """Result of refitting a ladder.

    `document` is that of `forecast_document`, `said_of_table` its warnings about the table; `losses` are samples as in
    samples.json.
    """

    forecast: Forecast
    document: Mapping[str, Any]
    said_of_table: Sequence[str]
    losses: Sequence[float]


def difference(statement: Statement, subjects: Mapping[str, Any], again: FittedAgain) -> str:
    """Return the first number or warning that the refit does not reproduce; empty if it reproduces all.

    `subjects` are the contents of forecast.json and samples.json.
    """
    return next((unlike for unlike in _differences(statement, subjects, again) if unlike), "")


def furthest(stated: Mapping[float, float], found: Mapping[float, float]) -> float:
    """Return the largest difference between quantiles, as a share of the stated 90 % interval."""
    return max(abs(found[level] - value) for level, value in stated.items()) / (stated[0.95] - stated[0.05])


def instead(statement: Statement, found: str) -> str:
    """Return the sentence that the ladder gives another forecast."""
    return f"it forecasts {statement.predicate['forecast']['point']:.4f}, {_GIVES} {found}"


def _differences(statement: Statement, subjects: Mapping[str, Any], again: FittedAgain) -> Iterator[str]:
    forecast, fit = statement.predicate["forecast"], statement.predicate["fit"]
    close = TOLERANCE * (statement.quantiles[0.95] - statement.quantiles[0.05])
    if furthest(statement.quantiles, again.forecast.quantiles) > TOLERANCE:
        low, high = again.forecast.interval()
        yield instead(statement, f"{again.forecast.median:.4f}, 90 % interval [{low:.4f}, {high:.4f}]")
    yield _unlike("fit.parameters", fit["parameters"], again.document["parameters"], close=0.0)
    yield _unlike("forecast.bands", forecast["bands"], again.forecast.bands, close=close)
    yield _unlike_samples(subjects["samples.json"]["losses"], again.losses, close=close)
    yield _unlike_words(fit, again.document)
    yield _unlike_status(subjects["forecast.json"], again.document)
    (found,) = again.document["predictions"]
    stated = prediction_at(subjects["forecast.json"], flops=found["flops"])
    yield _unlike_laws(stated.get("by_law", {}), found.get("by_law", {}), close=close)
    yield _unlike_curve(stated.get("curve", []), found.get("curve", []))
    yield _unlike_choices(forecast["sensitivity"], [*map(as_in_statement, found["sensitivity"])], close=close)
    tested = [*map(as_in_statement, again.document["backtest"])]
    yield _unlike_scores(fit["backtest"], tested, close=close / again.forecast.median)
    yield _missing(fit["warnings"], again)


def _unlike(where: str, stated: Mapping[str, float | None], found: Mapping[str, float | None], *, close: float) -> str:
    for key in sorted(stated.keys() | found.keys()):
        if key not in stated or key not in found or not _alike(stated[key], found[key], close=close):
            return f"{where}.{key} is {stated.get(key)}, {_GIVES} {found.get(key)}"
    return ""


def _alike(one: float | None, other: float | None, *, close: float, relative: float = TOLERANCE) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=relative, abs_tol=close)


def _unlike_laws(stated: Mapping[str, float], found: Mapping[str, float], *, close: float) -> str:
    """Return a difference between the medians of the laws that are averaged."""
    if stated.keys() == found.keys() and all(abs(stated[name] - found[name]) <= close for name in found):
        return ""
    return f"by_law in forecast.json is {dict(stated)}, {_GIVES} {dict(found)}"


def _unlike_curve(stated: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]]) -> str:
    """Return a difference between forecasts of the curve, as a share of the 90 % interval at that fraction."""
    for row, again in zip_longest(stated, found):
        if row is None or again is None or row.keys() != again.keys() or row["fraction"] != again["fraction"]:
            return f"curve in forecast.json has {len(stated)} rows, {_GIVES} {len(found)} at other fractions"
        levels = row["quantiles"].keys() | again["quantiles"].keys()
        close = TOLERANCE * (again["quantiles"]["0.95"] - again["quantiles"]["0.05"])
        for level in sorted(levels):
            if not _alike(row["quantiles"].get(level), again["quantiles"].get(level), close=close, relative=0.0):
                at = f"curve in forecast.json at {row['fraction']:.0%}, quantile {level},"
                return f"{at} is {row['quantiles'].get(level)}, {_GIVES} {again['quantiles'].get(level)}"
    return ""


def _unlike_samples(stated: Sequence[float], found: Sequence[float], *, close: float) -> str:
    """Return the largest difference between samples, also beyond the outermost quantiles."""
    place = max(range(len(stated)), key=lambda place: abs(stated[place] - found[place]))
    if abs(stated[place] - found[place]) <= close:
        return ""
    return f"of the losses in samples.json number {place + 1} is {stated[place]:.6g}, {_GIVES} {found[place]:.6g}"


def _unlike_words(stated: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """Return a difference in the law's formula or in fixed values."""
    for key, ours in (("law", found["law"]), ("fixed", found.get("fixed", {}))):
        if stated[key] != ours:
            return f"fit.{key} is {stated[key]!r}, {_GIVES} {ours!r}"
    return ""


def _unlike_status(stated: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    if stated.get("status", found["status"]) == found["status"]:
        return ""
    return f"the status in forecast.json is {stated['status']!r}, {_GIVES} {found['status']!r}"


def _unlike_choices(stated: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]], *, close: float) -> str:
    """Return a difference between medians; reasons for missing ones contain the registrant's table name."""
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
    return next((unlike for place, pair in rows if (unlike := _unlike(f"fit.backtest.{place}", *pair, close=close))), "")


def _missing(stated: Sequence[str], again: FittedAgain) -> str:
    own = [each for each in again.document["warnings"] if each not in again.said_of_table]
    known = {each.replace("e+", "e") for each in stated}  # earlier versions printed 1e21 as 1e+21
    return next((f"fit.warnings lacks a warning, {_GIVES} it: {each}" for each in own if each not in known), "")


def verify_and_fit(
    folder: Path, *, allowed_signers: Path, runs_dir: Path | None = None, receipts: Receipts | None = None
) -> Verified | VerifiedSeal:
    """Verify like `verify_folder`, and refit the forecast and each amendment, each after its own step."""
    found = verify_folder(folder, allowed_signers=allowed_signers, runs_dir=runs_dir, receipts=receipts)
    if isinstance(found, VerifiedSeal):
        return found
    fitted = {"forecast": fit_step(found.statement, found.subjects, name=found.path(STATEMENT_NAME))}
    if runs_dir is not None:
        ladder, target, where = found.subjects["ladder.json"], found.subjects["target.json"], found.path("ladder.json")
        compared = recorded_curves_step(ladder, target=target, where=where, runs_dir=runs_dir)
        fitted["forecast"] = replace(fitted["forecast"], evidence=fitted["forecast"].evidence + compared)
    for each in found.amendments:
        step = fit_step(each.amended, each.subjects, name=found.path(each.name))
        fitted[each.name] = replace(step, what=f"{each.name} fit")
    steps = [each for step in found.steps for each in (step, fitted.get(step.what)) if each is not None]
    return replace(found, steps=tuple(steps))


def fit_step(statement: Statement, subjects: Mapping[str, Any], *, name: str) -> VerifiedStep:
    """Refit the ladder in `subjects` (content by file name) with the statement's law and seed, and compare.

    `VerificationError` if the numbers differ. A forecast by another version, or with an unknown law, is not refitted; the
    step names it.
    """
    made_by, law = statement.predicate["tool"]["version"], str(statement.predicate["fit"]["law"]).partition(":")[0]
    if made_by != __version__:
        return _not_compared(f"made by version {made_by}, and here is {__version__}: marin-scaling {made_by} fits it again")
    if not _is_ours(law):
        return _not_compared(f"the law {law!r} is not one of marin-scaling {__version__}: the number is claimed")
    try:
        again = _fitted_again(statement, subjects, law=law)
    except MarinScalingError as error:
        _refuse(name, instead(statement, f"no forecast ({error.what})"))
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:  # of numbers that no ladder has
        _refuse(name, instead(statement, f"no forecast ({error})"))
    if differing := difference(statement, subjects, again):
        _refuse(name, differing)
    return _reproduced(statement, again, runs=len(subjects["ladder.json"]["rows"]))


def _fitted_again(statement: Statement, subjects: Mapping[str, Any], *, law: str) -> FittedAgain:
    from marin_scaling.fitting.fit import fit
    from marin_scaling.forecast.backtest import backtest_of_fit
    from marin_scaling.forecast.forecast import forecast_runs, samples_of, sensitivity
    from marin_scaling.forecast.report import forecast_document

    ladder = subjects["ladder.json"]
    table = ladder_table(ladder)
    result = fit(table, law=law, seed=statement.predicate["fit"]["seed"] or 0, swept="all")
    target = _promised(statement, result, curves=ladder.get("curves"))
    (again,) = forecast_runs(result, [target])
    document = forecast_document(result, [again], sensitivities=[sensitivity(result, again)], tested=backtest_of_fit(result))
    losses = thinned(samples_of(result, target).tolist())
    if "curves" in ladder:
        from marin_scaling.forecast.loss_curve import curve_from_ladder, curve_rows

        curve = curve_from_ladder(ladder, size_of(subjects["target.json"]), losses)
        document["predictions"][0]["curve"] = curve_rows(curve)
    return FittedAgain(forecast=again, document=document, said_of_table=table.warnings, losses=losses)


def _promised(statement: Statement, result: FitResult, *, curves: Mapping[str, Any] | None) -> Target:
    """Return the forecast run: an outside run in its own size, a target of this tool as the compute-optimal run."""
    from marin_scaling.forecast.forecast import Target, optimal_target
    from marin_scaling.forecast.loss_curve import schedule_error

    run = statement.predicate["targetRun"]
    if not statement.is_outside:
        return optimal_target(result, run["flops"], unique_tokens=statement.unique_tokens)
    params, tokens, active = (float(run[key]) for key in ("paramsTotal", "tokens", "paramsActive"))
    return Target(flops=run["flops"], params=params, tokens=tokens, active_params=active, log_error=schedule_error(curves))


def _reproduced(statement: Statement, again: FittedAgain, *, runs: int) -> VerifiedStep:
    apart = furthest(statement.quantiles, again.forecast.quantiles)
    level = "to the last digit" if apart == 0 else f"to {apart:.0e} of the 90 % interval"
    (found,) = again.document["predictions"]
    curve = f", and its curve within {TOLERANCE:.0%} of its intervals" if "curve" in found else ""
    count = len(again.forecast.quantiles)
    return VerifiedStep(what="fit", evidence=f"{runs} runs fitted again: all {count} quantiles {level}{curve}")


def _is_ours(law: str) -> bool:
    from marin_scaling.fitting.law import find_law

    try:
        find_law(law)
    except UsageError:
        return False
    return True


def _not_compared(why: str) -> VerifiedStep:
    return VerifiedStep(what="fit", evidence=why, compared=False)


def _refuse(name: str, reason: str) -> NoReturn:
    raise VerificationError(
        f"{name}: {reason}.",
        why=f"The statement was made by this version ({__version__}), so the same runs must give the same numbers.",
        fix="A signed statement cannot be corrected; register the forecast of this ladder before its run.",
    )
