"""Whether the numbers follow from the runs: the signed ladder is fitted again; quantiles, parameters and bands are compared.

Digests show that some ladder and some forecast were signed; this shows that the one gives the other. Needs NumPy and SciPy,
no accelerator and no run store. What the runs themselves say is compared with the ladder in `authenticity`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from marin_scaling import __version__
from marin_scaling.check.amendments import amended_ladder, verified_amendments
from marin_scaling.check.authenticity import verify_folder
from marin_scaling.check.verified_step import VerifiedStep
from marin_scaling.durable_files import read_bytes
from marin_scaling.errors import MarinScalingError, UsageError, VerificationError
from marin_scaling.preregistration.registry import STATEMENT_NAME, read_registration
from marin_scaling.preregistration.seal import is_sealed
from marin_scaling.preregistration.statement import Statement, read_subject

if TYPE_CHECKING:
    from marin_scaling.fit.fit_result import FitResult
    from marin_scaling.forecast.forecast import Forecast

TOLERANCE = 0.01
"""By which share of the 90 % interval's width a quantile or a band may differ, or a parameter by a share of itself, as
processors round differently. Seeds are the same."""


def verify_and_fit(folder: Path, *, allowed_signers: Path, runs_dir: Path | None = None) -> list[VerifiedStep]:
    """All steps of `verify_folder`, and after that of the forecast the one that fits it again."""
    steps = verify_folder(folder, allowed_signers=allowed_signers, runs_dir=runs_dir)
    if is_sealed(folder):
        return steps
    statement, path = read_registration(folder), folder / "ladder.json"
    ladder = read_subject(read_bytes(path), name=path.name, path=str(path), version=statement.version)
    fitted = fit_step(statement, ladder=ladder, name=str(folder / STATEMENT_NAME))
    after = [step.what for step in steps].index("forecast") + 1
    again = [
        replace(
            fit_step(each.amended, ladder=amended_ladder(each, folder=folder), name=str(folder / each.name)), what=each.name
        )
        for each in verified_amendments(folder, statement=statement, allowed_signers=allowed_signers)
    ]
    return [*steps[:after], fitted, *again, *steps[after:]]


def fit_step(statement: Statement, *, ladder: Mapping[str, Any], name: str) -> VerifiedStep:
    """Fit `ladder` (the content of `ladder.json`) anew with the statement's law and seed, and compare its numbers.

    `VerificationError` when the version that made the forecast gives other ones now. Another version may fit better, and a
    law of one's own is not known here: then the step says what could not be compared, and what this version gives.
    """
    made_by, law = statement.predicate["tool"]["version"], str(statement.predicate["fit"]["law"]).partition(":")[0]
    if not _is_ours(law):
        return _not_compared(f"the law {law!r} is not one of marin-scaling {__version__}: the number is claimed")
    try:
        result, again = _forecast_again(statement, ladder=ladder, law=law)
    except MarinScalingError as error:
        differing = _instead(statement, f"no forecast ({error.what})")
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:  # of numbers that no ladder has
        differing = _instead(statement, f"no forecast ({error})")
    else:
        differing = _difference(statement, result, again)
        if not differing:
            return _reproduced(statement, again, runs=len(ladder["rows"]))
    if made_by == __version__:
        _refuse(name, differing)
    return _not_compared(f"made by version {made_by}, and here is version {__version__}: {differing}")


def _forecast_again(statement: Statement, *, ladder: Mapping[str, Any], law: str) -> tuple[FitResult, Forecast]:
    import pandas as pd

    from marin_scaling.fit.fit_runs import fit
    from marin_scaling.forecast.forecast import forecast
    from marin_scaling.run.run_table import table_of_frame

    rows = pd.DataFrame(ladder["rows"])
    table = table_of_frame(rows, keep=rows["run"], source="ladder.json")  # they were fitted: none is left out now
    result = fit(table, law=law, seed=statement.predicate["fit"]["seed"] or 0, swept="all")
    return result, forecast(result, flops=statement.predicate["targetRun"]["flops"])


def _difference(statement: Statement, result: FitResult, again: Forecast) -> str:
    """The first number that the ladder does not give; empty where it gives all."""
    predicate = statement.predicate
    if _furthest(statement.quantiles, again.quantiles) > TOLERANCE:
        low, high = again.interval
        return _instead(statement, f"{again.median:.4f}, 90 % interval [{low:.4f}, {high:.4f}]")
    width = statement.quantiles[0.95] - statement.quantiles[0.05]
    stated, found = predicate["fit"]["parameters"], dict(result.parameters)
    return _unlike("fit.parameters", stated, found, close=0.0) or _unlike(
        "forecast.bands", predicate["forecast"]["bands"], dict(again.bands), close=TOLERANCE * width
    )


def _unlike(where: str, stated: Mapping[str, float | None], found: Mapping[str, float | None], *, close: float) -> str:
    for key in sorted(stated.keys() | found.keys()):
        if key not in stated or key not in found or not _alike(stated[key], found[key], close=close):
            return f"{where}.{key} is {stated.get(key)}, and its ladder, fitted again, gives {found.get(key)}"
    return ""


def _alike(one: float | None, other: float | None, *, close: float) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=close)


def _instead(statement: Statement, found: str) -> str:
    return f"it forecasts {statement.predicate['forecast']['point']:.4f}, and its ladder, fitted again, gives {found}"


def _furthest(stated: Mapping[float, float], found: Mapping[float, float]) -> float:
    """The largest difference of two quantiles, as a share of the stated 90 % interval."""
    return max(abs(found[level] - value) for level, value in stated.items()) / (stated[0.95] - stated[0.05])


def _reproduced(statement: Statement, again: Forecast, *, runs: int) -> VerifiedStep:
    apart = _furthest(statement.quantiles, again.quantiles)
    level = "to the last digit" if apart == 0 else f"to {apart:.0e} of the 90 % interval"
    return VerifiedStep(what="fit", evidence=f"{runs} runs fitted again: all {len(again.quantiles)} quantiles {level}")


def _is_ours(law: str) -> bool:
    from marin_scaling.fit.fit_runs import is_law

    try:
        return is_law(law)
    except UsageError:
        return False


def _not_compared(why: str) -> VerifiedStep:
    return VerifiedStep(what="fit", evidence=why, compared=False)


def _refuse(name: str, reason: str) -> NoReturn:
    raise VerificationError(
        f"{name}: {reason}.",
        why=f"The version that made it ({__version__}) is the one that runs here, so the same runs give the same numbers: "
        "what was signed does not come from this ladder by this law.",
        fix="Nothing can be mended in a signed statement; register the forecast that the ladder gives, before its run.",
    )
