"""The five-parameter surface: its global optimum against published points, known truth and another solver."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from known_figures import CHINCHILLA_OPTIMA, EPOCH, chinchilla_row
from scipy.optimize import least_squares

from marin_scaling.errors import FitRefused
from marin_scaling.fitting.surface import Objective, fit_surface
from marin_scaling.laws import SurfaceLaw, surface_loss

needs_points = pytest.mark.skipif(
    not EPOCH.exists(), reason="Epoch's points of Chinchilla's figure are not part of this project"
)


@needs_points
@pytest.mark.parametrize("name", CHINCHILLA_OPTIMA)
def test_the_known_optimum_of_the_chinchilla_points_is_reached(name: str) -> None:
    """Six digits of the five numbers, nine of the objective (seven where no more are known)."""
    assert [(each.what, each.known, each.found) for each in chinchilla_row(name) if not each.is_met] == []


exponents = st.floats(0.1, 0.6)


@settings(max_examples=25)
@given(
    alpha=exponents, beta=exponents, floor=st.floats(0.5, 2.5), share=st.floats(0.2, 0.8), objective=st.sampled_from(Objective)
)
def test_a_surface_without_noise_is_recovered(
    alpha: float, beta: float, floor: float, share: float, objective: Objective
) -> None:
    """Exponents and asymptote to four digits, whatever is minimised."""
    params, tokens = (axis.ravel() for axis in np.meshgrid(np.geomspace(1e8, 1e10, 6), np.geomspace(1e9, 1e12, 6)))
    truth = SurfaceLaw(E=floor, A=share * 1e9**alpha, B=(1 - share) * 3e10**beta, alpha=alpha, beta=beta)
    loss = surface_loss(truth, params=params, tokens=tokens)
    law = fit_surface(params=params, tokens=tokens, loss=loss, objective=objective).law
    assert (law.E, law.alpha, law.beta) == pytest.approx((floor, alpha, beta), rel=1e-4)


def noisy(seed: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    params, tokens = 10 ** generator.uniform(8, 10, 60), 10 ** generator.uniform(9, 11.5, 60)
    truth = SurfaceLaw(E=1.7, A=400.0, B=1500.0, alpha=0.34, beta=0.33)
    loss = surface_loss(truth, params=params, tokens=tokens) * np.exp(0.01 * generator.standard_t(3, 60))
    return {"params": params, "tokens": tokens, "loss": loss}


@pytest.mark.parametrize("seed", range(5))
def test_another_solver_from_many_starts_finds_nothing_lower(seed: int) -> None:
    """scipy's least squares with Huber's loss, a trust region from 30 random starts, ends at the same objective or above."""
    data, generator = noisy(seed), np.random.default_rng(100 + seed)
    x, y = np.log(data["params"]) - np.log(1e9), np.log(data["tokens"]) - np.log(1e10)

    def residuals(theta: np.ndarray) -> np.ndarray:
        log_e, log_a, log_b, alpha, beta = theta
        return np.log(np.exp(log_e) + np.exp(log_a - alpha * x) + np.exp(log_b - beta * y)) - np.log(data["loss"])

    starts = generator.uniform([-1, -3, -3, 0.1, 0.1], [1, 1, 1, 0.8, 0.8], (30, 5))
    others = [
        least_squares(residuals, start, loss="huber", f_scale=1e-3, xtol=1e-15, ftol=1e-15, gtol=1e-15).cost for start in starts
    ]
    assert fit_surface(**data).value <= min(others) * (1 + 1e-7)


@settings(max_examples=10)
@given(scale=st.floats(1e-6, 1e6), seed=st.integers(0, 20))
def test_units_and_row_order_change_nothing_but_the_coefficients(scale: float, seed: int) -> None:
    """Parameters in thousands, rows shuffled: the same exponents, asymptote and objective."""
    data, order = noisy(seed), np.random.default_rng(seed).permutation(60)
    plain = fit_surface(**data)
    other = fit_surface(params=data["params"][order] * scale, tokens=data["tokens"][order], loss=data["loss"][order])
    assert other.value == pytest.approx(plain.value, rel=1e-9)
    assert (other.law.E, other.law.alpha) == pytest.approx((plain.law.E, plain.law.alpha), rel=1e-4)


def test_runs_of_one_size_are_refused() -> None:
    """Nothing is said about an exponent that the runs do not show."""
    tokens = np.geomspace(1e9, 1e11, 8)
    with pytest.raises(FitRefused, match="1 sizes"):
        fit_surface(params=np.full(8, 1e9), tokens=tokens, loss=2 + 100 * tokens**-0.2)


def test_an_exponent_without_end_is_refused() -> None:
    """One run of nine has a loss of its own at the least tokens: the best term passes through it and is nothing elsewhere."""
    tokens = np.array([1e9, 1.1e9, 2e9, 4e9, 8e9, 1.6e10, 3.2e10, 6.4e10, 1e11])
    params = np.geomspace(1e8, 1e10, 9)[[4, 0, 8, 2, 6, 1, 7, 3, 5]]
    loss = 1.7 + 400 * params**-0.34
    loss[0] += 0.5
    with pytest.raises(FitRefused, match=r"best exponents are 0\.34 and"):
        fit_surface(params=params, tokens=tokens, loss=loss)
