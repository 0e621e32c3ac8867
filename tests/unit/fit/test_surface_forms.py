"""Tied, over-training and interaction surfaces."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from known_figures import EPOCH, chinchilla_points
from scipy.optimize import least_squares

from marin_scaling.errors import FitRefused
from marin_scaling.fitting.surface import (
    InteractionSurface,
    OverTrainingLaw,
    TiedSurface,
    fit_interaction_surface,
    fit_over_training,
    fit_surface,
    fit_tied_surface,
)

PARAMS, TOKENS = (axis.ravel() for axis in np.meshgrid(np.geomspace(1e8, 1e10, 6), np.geomspace(1e9, 1e12, 6)))
exponents, shares = st.floats(0.15, 0.5), st.floats(0.2, 0.8)


def noisy(law, *, seed, noise=0.01):
    generator = np.random.default_rng(seed)
    params, tokens = 10 ** generator.uniform(8, 10, 60), 10 ** generator.uniform(9, 11.5, 60)
    return {
        "params": params,
        "tokens": tokens,
        "loss": law.predict(params, tokens) * np.exp(noise * generator.standard_t(3, 60)),
    }


INTERACTING = InteractionSurface(E=1.7, A=200.0, B=700.0, F=3e5, alpha=0.34, beta=0.33)
TIED = TiedSurface(E=1.7, A=400.0, B=1500.0, alpha=0.34)


@settings(max_examples=20)
@given(alpha=exponents, floor=st.floats(0.5, 2.5), share=shares)
def test_a_tied_surface_without_noise_is_recovered(alpha, floor, share):
    """Four digits of E and of the exponent."""
    truth = TiedSurface(E=floor, A=share * 1e9**alpha, B=(1 - share) * 3e10**alpha, alpha=alpha)
    law = fit_tied_surface(params=PARAMS, tokens=TOKENS, loss=truth.predict(PARAMS, TOKENS)).law
    assert (law.E, law.alpha) == pytest.approx((floor, alpha), rel=1e-4)


@settings(max_examples=20)
@given(eta=st.floats(0.08, 0.25), floor=st.floats(0.5, 2.5), share=shares)
def test_an_over_training_law_without_noise_is_recovered(eta, floor, share):
    """All four of Gadre's numbers, and the best ratio of tokens to parameters."""
    truth = OverTrainingLaw(E=floor, a=share * 1e20**eta / 4, b=(1 - share) * 1e20**eta, eta=eta)
    law = fit_over_training(params=PARAMS, tokens=TOKENS, loss=truth.predict(PARAMS, TOKENS)).law
    assert (law.E, law.eta) == pytest.approx((floor, eta), rel=1e-4)
    assert (law.a, law.b) == pytest.approx((truth.a, truth.b), rel=1e-2)  # 45 eta in an exponent: two digits less
    assert law.optimal_tokens_per_param == pytest.approx(truth.optimal_tokens_per_param, rel=1e-3)


@settings(max_examples=10)
@given(alpha=exponents, beta=exponents, share=shares, together=st.floats(0.1, 1.0))
def test_an_interaction_surface_without_noise_is_recovered_where_the_runs_are(alpha, beta, share, together):
    """The loss to five digits: six numbers on six by six runs, whose product term is partly stood for by the other two."""
    truth = InteractionSurface(
        E=1.7,
        A=share * 1e9**alpha,
        B=(1 - share) * 3e10**beta,
        F=together * 1e9**alpha * 3e10**beta,
        alpha=alpha,
        beta=beta,
    )
    loss = truth.predict(PARAMS, TOKENS)
    law = fit_interaction_surface(params=PARAMS, tokens=TOKENS, loss=loss).law
    assert law.predict(PARAMS, TOKENS) == pytest.approx(loss, rel=1e-5)


@pytest.mark.parametrize("truth", [TIED, INTERACTING])
@pytest.mark.parametrize("seed", range(3))
def test_a_form_is_never_worse_than_the_form_that_it_contains(truth, seed):
    """Tied, additive, with interaction: each leaves no more than the one before."""
    data = noisy(truth, seed=seed)
    tied, additive, interaction = (fit(**data).value for fit in (fit_tied_surface, fit_surface, fit_interaction_surface))
    assert interaction <= additive * (1 + 1e-9)
    assert additive <= tied * (1 + 1e-9)


@pytest.mark.skipif(not EPOCH.exists(), reason="Epoch's points of Chinchilla's figure are not part of this project")
def test_the_chinchilla_points_want_no_interaction_and_hardly_two_exponents():
    """F ends at next to nothing with the additive optimum's value; one exponent, .357, leaves 0.4 % more."""
    points = chinchilla_points(240)
    additive, tied, interaction = (fit(**points) for fit in (fit_surface, fit_tied_surface, fit_interaction_surface))
    assert interaction.value == pytest.approx(additive.value, rel=1e-9)
    assert tied.value / additive.value == pytest.approx(1.0038, abs=1e-4)
    assert tied.law.alpha == pytest.approx(0.3571, abs=1e-4)


@pytest.mark.parametrize("seed", range(2))
def test_another_solver_from_many_starts_finds_no_lower_interaction(seed):
    """scipy's least squares with Huber's loss, a trust region from 30 random starts, ends at the same objective or above."""
    data, generator = noisy(INTERACTING, seed=seed), np.random.default_rng(100 + seed)
    x, y, log_loss = np.log(data["params"]) - np.log(1e9), np.log(data["tokens"]) - np.log(1e10), np.log(data["loss"])

    def residuals(theta):
        terms = np.stack([0 * x, theta[4] * x, theta[5] * y, theta[4] * x + theta[5] * y])
        return np.log(np.exp(theta[:4, None] - terms).sum(axis=0)) - log_loss

    starts = generator.uniform([-1, -3, -3, -3, 0.1, 0.1], [1, 1, 1, 1, 0.8, 0.8], (30, 6))
    tight = {"xtol": 1e-15, "ftol": 1e-15, "gtol": 1e-15, "max_nfev": 500}
    others = [least_squares(residuals, start, loss="huber", f_scale=1e-3, **tight).cost for start in starts]
    assert fit_interaction_surface(**data).value <= min(others) * (1 + 1e-7)


def test_the_over_training_law_is_the_tied_surface_in_other_letters():
    """The same losses everywhere, and the same objective."""
    data = noisy(TIED, seed=0)
    tied, other = fit_tied_surface(**data), fit_over_training(**data)
    assert other.law.predict(PARAMS, TOKENS) == pytest.approx(tied.law.predict(PARAMS, TOKENS), rel=1e-12)
    assert other.value == tied.value


@pytest.mark.parametrize(("fit", "runs"), [(fit_tied_surface, 4), (fit_interaction_surface, 6)])
def test_too_few_runs_are_refused(fit, runs):
    """As many runs as unknowns would fit any of these forms."""
    params, tokens = np.geomspace(1e8, 1e10, runs), np.geomspace(1e11, 1e9, runs)
    with pytest.raises(FitRefused, match=f"{runs} different runs"):
        fit(params=params, tokens=tokens, loss=TIED.predict(params, tokens))
