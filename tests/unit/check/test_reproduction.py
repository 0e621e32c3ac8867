"""A signed number is what its signed ladder gives: who puts another one into the statement is refused, with both numbers."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from registration_factory import forecast_document as normal_document
from registration_factory import make_registration, target_spec

from marin_scaling.check import reproduction
from marin_scaling.check.reproduction import verify_and_fit
from marin_scaling.check.verified_step import VerifiedStep
from marin_scaling.errors import VerificationError
from marin_scaling.fit.fit_result import FitResult
from marin_scaling.fit.fit_runs import fit
from marin_scaling.forecast.backtest import Backtest
from marin_scaling.forecast.forecast import Forecast, forecast
from marin_scaling.forecast.forecast_document import forecast_document
from marin_scaling.forecast.sensitivity import SensitivityRow
from marin_scaling.laws import SurfaceLaw
from marin_scaling.preregistration.registry import registration_folders, signers_path
from marin_scaling.run.simulate import simulate_ladder

REPOSITORY = Path(__file__).parents[3]
LAW = SurfaceLaw(E=0.9, A=20.0, B=60.0, alpha=0.34, beta=0.28)


def ladder(*, seed: int = 0) -> Any:
    """Simulated runs up to a tenth of the target's FLOPs."""
    budgets = [target_spec().flops * share for share in (0.0125, 0.025, 0.05, 0.1)]
    return simulate_ladder(LAW, budgets_flops=budgets, sizes_per_budget=4, noise=0.002, seed=seed)


def document_of(result: FitResult, stated: Forecast) -> dict[str, Any]:
    """A forecast as it is registered; what it hangs on is told by a row."""
    tested = Backtest(source="", points=(), refused=())
    row = SensitivityRow(choice="as forecast", median=stated.median)
    return forecast_document(result, [stated], sensitivities=[[row]], tested=tested) | {"metric": "bits_per_byte"}


def register(root: Path, *, law: str = "coupled-surface", shift: float = 0.0, rows_of: int = 0) -> Path:
    """A signed forecast of `law`, `shift` widths of its interval beside what the fit says, from the ladder of a seed."""
    result = fit(ladder(), law=law)
    honest = forecast(result, flops=target_spec().flops)
    low, high = honest.interval
    moved = {level: value + shift * (high - low) for level, value in honest.quantiles.items()}
    stated = replace(honest, median=moved[0.5], quantiles=moved)
    rows = fit(ladder(seed=rows_of), law=law).rows
    document = document_of(result, stated)
    return make_registration(root, rows=rows, forecast=document).folder


def fit_step(folder: Path) -> VerifiedStep:
    """What is said of the re-fit."""
    (step,) = [step for step in verify_and_fit(folder, allowed_signers=signers_path(folder)) if step.what == "fit"]
    return step


@pytest.mark.parametrize("law", ["coupled-surface", "isoflop-frontier", "pinned-frontier@1.2", "additive-surface"])
def test_an_honest_forecast_of_every_kind_of_law_is_found_again(tmp_path: Path, law: str) -> None:
    """From the ladder, the law's name and the seed that were signed, and nothing else."""
    step = fit_step(register(tmp_path, law=law))
    assert step.compared
    assert step.evidence.startswith("16 runs fitted again: all 23 quantiles to")


@pytest.mark.parametrize("shift", [0.02, -0.02])
def test_a_number_that_was_moved_by_hand_is_refused(tmp_path: Path, shift: float) -> None:
    """By a fiftieth of the interval, in the statement and the fit alike, with a good signature over it."""
    with pytest.raises(
        VerificationError, match=r"statement\.json: it forecasts .*, and its ladder, fitted again, gives .*90 %"
    ):
        fit_step(register(tmp_path, shift=shift))


def test_a_forecast_from_another_ladder_than_the_signed_one_is_refused(tmp_path: Path) -> None:
    """The nicer of two ladders for the fit, the honest one for the reader."""
    with pytest.raises(VerificationError, match="and its ladder, fitted again, gives"):
        fit_step(register(tmp_path, rows_of=1))


def test_another_version_may_fit_better(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An old promise stays a promise: what this version makes of its ladder is told beside it, and nothing is refused."""
    folder = register(tmp_path, shift=0.5)
    monkeypatch.setattr(reproduction, "__version__", "9.9.9")
    step = fit_step(folder)
    assert not step.compared
    assert "made by version 0.1.0; from its ladder, version 9.9.9 makes" in step.evidence


def test_a_ladder_that_carries_no_forecast_at_all_is_refused(tmp_path: Path) -> None:
    """Two runs, with a fine forecast signed beside them."""
    result = fit(ladder())
    document = document_of(result, forecast(result, flops=target_spec().flops))
    folder = make_registration(tmp_path, rows=result.rows[:2], forecast=document).folder
    with pytest.raises(VerificationError, match="fitted again, gives no forecast"):
        fit_step(folder)


def test_a_law_of_ones_own_is_told_as_a_claim(tmp_path: Path) -> None:
    """It cannot be fitted by someone who does not have it."""
    folder = make_registration(tmp_path, forecast=normal_document()).folder
    step = fit_step(folder)
    assert not step.compared
    assert "is not one of marin-scaling" in step.evidence


@pytest.mark.parametrize("folder", registration_folders(REPOSITORY / "preregistrations"), ids=lambda folder: folder.name)
def test_every_forecast_of_this_repository_follows_from_its_ladder(folder: Path) -> None:
    """Whatever version made it: those of version 0.1.0 are found again to the last digits."""
    assert fit_step(folder).compared
