"""A signed number is what its signed ladder gives: who puts another one into the statement is refused, with both numbers."""

from pathlib import Path

import pytest
from fitted_registration import make_fitted_registration
from registration_factory import forecast_document, make_registration

from marin_scaling import __version__
from marin_scaling.errors import VerificationError
from marin_scaling.fitting.coupled_law import Normal, Prior
from marin_scaling.preregistration.outcome import VerifiedStep
from marin_scaling.preregistration.registry import registration_folders, signers_path
from marin_scaling.preregistration.verify import refit as reproduction
from marin_scaling.preregistration.verify.refit import verify_and_fit

REPOSITORY = Path(__file__).parents[3]


def fit_step(folder: Path) -> VerifiedStep:
    """What is said of the re-fit."""
    (step,) = [step for step in verify_and_fit(folder, allowed_signers=signers_path(folder)).steps if step.what == "fit"]
    return step


@pytest.mark.parametrize(
    "law", ["combined", "coupled-surface", "all-runs-frontier", "isoflop-frontier", "pinned-frontier@1.2", "additive-surface"]
)
def test_an_honest_forecast_of_every_kind_of_law_is_found_again(tmp_path: Path, law: str) -> None:
    """From the ladder, the law's name and the seed that were signed, and nothing else."""
    step = fit_step(make_fitted_registration(tmp_path, law=law))
    assert step.compared
    assert step.evidence.startswith("16 runs fitted again: all 23 quantiles to")


def test_a_prior_of_ones_own_is_not_taken_on_trust(tmp_path: Path) -> None:
    """An asymptote that somebody chose would come in through it; what the default gives is said beside it."""
    chosen = Prior(reducible_share=Normal(mean=-1.5, deviation=0.05))
    folder = make_fitted_registration(tmp_path, prior=chosen)
    with pytest.raises(VerificationError, match="refitting its ladder gives"):
        fit_step(folder)


def test_another_version_may_fit_better(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is fitted or refused then; the version that fits it again is named."""
    folder = make_fitted_registration(tmp_path, shift=0.5)
    monkeypatch.setattr(reproduction, "__version__", "9.9.9")
    step = fit_step(folder)
    assert not step.compared
    assert __version__ in step.evidence
    assert "9.9.9" in step.evidence


def test_a_law_of_ones_own_is_told_as_a_claim(tmp_path: Path) -> None:
    """It cannot be fitted by someone who does not have it."""
    folder = make_registration(tmp_path, forecast=forecast_document()).folder
    step = fit_step(folder)
    assert not step.compared
    assert "is not one of marin-scaling" in step.evidence


@pytest.mark.parametrize("folder", registration_folders(REPOSITORY / "preregistrations"), ids=lambda folder: folder.name)
def test_a_forecast_of_this_repository_is_fitted_again_or_names_its_version(folder: Path) -> None:
    """Those of version 0.1.0 had one law instead of two."""
    step = fit_step(folder)
    assert step.compared or "made by version 0.1.0" in step.evidence
