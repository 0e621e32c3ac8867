"""Whether the numbers follow from the runs: the signed ladder is fitted again, and what it gives compared with what was signed.

Digests show that some ladder and some forecast were signed; this shows that the one gives the other: quantiles, samples, law,
back-test, what it hangs on. Needs NumPy and SciPy, no accelerator and no run store. What the runs themselves say is compared
with the ladder in `authenticity`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from marin_scaling import __version__
from marin_scaling.check.amendments import verified_amendments
from marin_scaling.check.authenticity import verify_folder
from marin_scaling.check.received import Receipts
from marin_scaling.check.stated_and_found import FittedAgain, difference, furthest, instead
from marin_scaling.check.verified_step import VerifiedStep
from marin_scaling.durable_files import read_bytes
from marin_scaling.errors import MarinScalingError, UsageError, VerificationError
from marin_scaling.preregistration.preregister import thinned
from marin_scaling.preregistration.registry import STATEMENT_NAME, read_registration
from marin_scaling.preregistration.seal import is_sealed
from marin_scaling.preregistration.statement import Statement, read_subject
from marin_scaling.preregistration.versions import VERSION_0_1

if TYPE_CHECKING:
    from marin_scaling.fit.coupled_law import Prior

_FITTED_FILES = ("forecast.json", "ladder.json", "samples.json")


def verify_and_fit(
    folder: Path, *, allowed_signers: Path, runs_dir: Path | None = None, receipts: Receipts | None = None
) -> list[VerifiedStep]:
    """All steps of `verify_folder`, and after that of the forecast the one that fits it again."""
    steps = verify_folder(folder, allowed_signers=allowed_signers, runs_dir=runs_dir, receipts=receipts)
    if is_sealed(folder):
        return steps
    statement = read_registration(folder)
    fitted = fit_step(statement, _subjects(folder, statement), name=str(folder / STATEMENT_NAME))
    after = [step.what for step in steps].index("forecast") + 1
    again = {
        each.name: replace(fit_step(each.amended, _subjects(place, each.amended), name=str(place)), what=f"{each.name} fit")
        for each in verified_amendments(folder, statement=statement, allowed_signers=allowed_signers, receipts=receipts)
        for place in [folder / each.name]
    }
    rest = [each for step in steps[after:] for each in (step, again.get(step.what)) if each is not None]
    return [*steps[:after], fitted, *rest]


def _subjects(place: Path, statement: Statement) -> dict[str, Any]:
    paths = [place / name for name in _FITTED_FILES if name in statement.version.subject_names]
    return {
        path.name: read_subject(read_bytes(path), name=path.name, path=str(path), version=statement.version) for path in paths
    }


def fit_step(statement: Statement, subjects: Mapping[str, Any], *, name: str) -> VerifiedStep:
    """Fit the ladder in `subjects` (content by file name) anew with the statement's law and seed, and compare what it gives.

    `VerificationError` when the version that made the forecast gives something else now. Another version may fit better, and a
    law of one's own is not known here: then the step says what could not be compared, and what this version gives.
    """
    made_by, law = statement.predicate["tool"]["version"], str(statement.predicate["fit"]["law"]).partition(":")[0]
    if not _is_ours(law):
        return _not_compared(f"the law {law!r} is not one of marin-scaling {__version__}: the number is claimed")
    try:
        again = _fitted_again(statement, subjects, law=law)
    except MarinScalingError as error:
        differing = instead(statement, f"no forecast ({error.what})")
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:  # of numbers that no ladder has
        differing = instead(statement, f"no forecast ({error})")
    else:
        differing = difference(statement, subjects, again)
        if not differing:
            return _reproduced(statement, again, runs=len(subjects["ladder.json"]["rows"]))
    if made_by == __version__:
        _refuse(name, differing)
    return _not_compared(f"made by version {made_by}, and here is version {__version__}: {differing}")


def _fitted_again(statement: Statement, subjects: Mapping[str, Any], *, law: str) -> FittedAgain:
    import pandas as pd

    from marin_scaling.fit.fit_runs import fit
    from marin_scaling.forecast.backtest import backtest_of_fit
    from marin_scaling.forecast.forecast import forecast, samples
    from marin_scaling.forecast.forecast_document import forecast_document
    from marin_scaling.forecast.sensitivity import sensitivity
    from marin_scaling.run.run_table import table_of_frame

    rows = pd.DataFrame(subjects["ladder.json"]["rows"])
    table = table_of_frame(rows, keep=rows["run"], source="ladder.json")  # they were fitted: none is left out now
    flops = statement.predicate["targetRun"]["flops"]
    prior = _default_named_by(subjects["forecast.json"])
    result = fit(table, law=law, seed=statement.predicate["fit"]["seed"] or 0, swept="all", prior=prior)
    again = forecast(result, flops=flops)
    if statement.version is VERSION_0_1:  # it had no doubts
        document = forecast_document(result, [again])
    else:
        document = forecast_document(
            result, [again], sensitivities=[sensitivity(result, again)], tested=backtest_of_fit(result)
        )
    losses = thinned(samples(result, flops=flops).tolist())
    return FittedAgain(forecast=again, document=document, said_of_table=table.warnings, losses=losses)


def _default_named_by(document: Mapping[str, Any]) -> Prior | None:
    """The prior that a forecast names, where it was ever the default; else None, today's: one's own is not taken on trust."""
    from marin_scaling.fit.coupled_law import DEFAULT_PRIORS
    from marin_scaling.forecast.forecast_document import prior_document

    return next((prior for prior in DEFAULT_PRIORS if prior_document(prior) == document.get("prior")), None)


def _reproduced(statement: Statement, again: FittedAgain, *, runs: int) -> VerifiedStep:
    apart = furthest(statement.quantiles, again.forecast.quantiles)
    level = "to the last digit" if apart == 0 else f"to {apart:.0e} of the 90 % interval"
    return VerifiedStep(what="fit", evidence=f"{runs} runs fitted again: all {len(again.forecast.quantiles)} quantiles {level}")


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
