"""Laws that a user writes, fitted by lmfit with our starts, objective and refusals."""

import numpy as np
import pytest
from lmfit import create_params

from marin_scaling.errors import FitRefused, UsageError
from marin_scaling.fitting.custom_law import custom_law, fit_user_law
from marin_scaling.fitting.surface import fit_surface
from marin_scaling.laws import SurfaceLaw, surface_loss

FLOPS = np.geomspace(1e18, 1e21, 8)
DATA = {"flops": FLOPS, "loss": 1.7 + 1.5 * (FLOPS / 1e19) ** -0.1}


def frontier(flops, E, A, gamma):
    return E + A * (flops / 1e19) ** -gamma


def parameters(**changes):
    bounded = {"E": {"value": 1, "min": 0, "max": 3}, "A": {"value": 1, "min": 0.1, "max": 10}}
    return create_params(**{**bounded, "gamma": {"value": 0.3, "min": 0.01, "max": 1}, **changes})


def noisy_surface():
    generator = np.random.default_rng(0)
    params, tokens = 10 ** generator.uniform(8, 10, 60), 10 ** generator.uniform(9, 11.5, 60)
    truth = SurfaceLaw(E=1.7, A=400.0, B=1500.0, alpha=0.34, beta=0.33)
    loss = surface_loss(truth, params=params, tokens=tokens) * np.exp(0.01 * generator.standard_t(3, 60))
    return {"params": params, "tokens": tokens, "loss": loss}


def test_a_law_without_noise_is_recovered():
    """Six digits, and the sentence says that it may be used."""
    fit = fit_user_law(frontier, data=DATA, parameters=parameters())
    assert list(fit.result.params.valuesdict().values()) == pytest.approx([1.7, 1.5, 0.1], rel=1e-6)
    assert fit.sentence.startswith("Usable: it converged")
    assert "gamma" in fit.report()


def test_the_five_parameter_surface_written_by_hand_is_the_surface():
    """lmfit's solver, from every start, and this project's own end at the same objective."""
    data = noisy_surface()

    def surface(params, tokens, E, a, b, alpha, beta):
        return E + np.exp(a) * (params / 1e9) ** -alpha + np.exp(b) * (tokens / 1e10) ** -beta

    bounds = {"min": -5, "max": 2, "value": -1}
    wide = create_params(E={"value": 1, "min": 0.1, "max": 3}, a=bounds, b=bounds, alpha=slope(), beta=slope())
    fit = fit_user_law(surface, data=data, parameters=wide)
    assert fit.result.cost == pytest.approx(fit_surface(**data).value, rel=1e-6)
    assert fit.agreeing == fit.starts


def slope():
    return {"value": 0.3, "min": 0.05, "max": 1.5}


def test_a_constant_stays_and_an_expression_is_followed():
    """As lmfit has them: vary=False, and expr with a helper that the law does not know."""
    held = fit_user_law(frontier, data=DATA, parameters=parameters(E={"value": 1.5, "vary": False}))
    assert held.result.params["E"].value == 1.5
    helper = parameters(gamma={"expr": "tenfold / 10"}, tenfold={"value": 2, "min": 0.1, "max": 9})
    assert fit_user_law(frontier, data=DATA, parameters=helper).result.params["tenfold"].value == pytest.approx(1, rel=1e-6)


def test_a_number_at_its_bound_is_named():
    """The truth, 1.7, lies above what is allowed."""
    fit = fit_user_law(frontier, data=DATA, parameters=parameters(E={"value": 1, "min": 0, "max": 1.2}))
    assert fit.sentence.startswith("Use with care: it converged, with E at a bound")


def test_whole_numbers_do_not_overflow():
    """6 N D of integers is negative; columns become floats before the law sees them."""
    params, tokens = np.array([10**9, 10**10, 3 * 10**10, 10**11]), np.array([10**12, 10**13, 3 * 10**13, 10**14])
    flops = 6.0 * params * tokens
    fit = fit_user_law(
        lambda params, tokens, E, A: E + A * (6 * params * tokens / 1e24) ** -0.1,
        data={"params": params, "tokens": tokens, "loss": 1.5 + (flops / 1e24) ** -0.1},
        parameters=create_params(E=1, A=2),
    )
    assert fit.result.params["A"].value == pytest.approx(1, rel=1e-6)


@pytest.mark.parametrize(
    ("law", "message"),
    [
        (lambda flops, E, A, gamma, delta: flops, "needs delta"),
        (lambda flops, E, A: flops, "parameters gamma"),
        (lambda flops, E, A, gamma: E, r"shape \(\) for 8 runs"),
        (lambda flops, E, A, gamma: flops[1:], r"shape \(7,\) for 8 runs"),
        (lambda flops, E, A, gamma: np.log(-flops), "returns nan at"),
        (lambda flops, E, A, gamma: E - A - 0 * flops, "returns 0 at"),
    ],
)
def test_a_law_that_does_not_match_is_refused(law, message):
    """Names, shapes and numbers, each in one sentence."""
    with pytest.raises(FitRefused, match=message):
        fit_user_law(law, data=DATA, parameters=parameters())


def test_without_bounds_there_is_one_start_and_the_sentence_doubts_it():
    """Twenty fits from the same place would agree, and mean nothing."""
    fit = fit_user_law(frontier, data=DATA, parameters=create_params(E=1, A=1, gamma=0.2))
    assert fit.starts == 1
    assert fit.sentence.startswith("Use with care: it converged, but a lower one may exist; 1 of 1")


def test_starts_outside_the_laws_domain_are_counted():
    """Above gamma = 0.5 this law is no number; the answer lies below, and the sentence says how many starts failed."""

    def partial(flops, E, A, gamma):
        return np.where(gamma < 0.5, frontier(flops, E, A, gamma), np.nan)

    fit = fit_user_law(partial, data=DATA, parameters=parameters())
    assert fit.result.params["gamma"].value == pytest.approx(0.1, rel=1e-6)
    assert fit.failed > 0
    assert f"{fit.failed} failed" in fit.sentence


def test_more_numbers_than_runs_or_none_at_all_are_refused():
    """And data without losses, and absolute residuals, which have no slope to follow."""
    with pytest.raises(FitRefused, match="no column loss"):
        fit_user_law(frontier, data={"flops": FLOPS}, parameters=parameters())
    two = {name: column[:2] for name, column in DATA.items()}
    with pytest.raises(FitRefused, match="3 free parameters for 2 runs"):
        fit_user_law(frontier, data=two, parameters=parameters())
    constants = create_params(**{name: {"value": 1, "vary": False} for name in ("E", "A", "gamma")})
    with pytest.raises(FitRefused, match="0 free parameters for 8 runs"):
        fit_user_law(frontier, data=DATA, parameters=constants)


@pytest.mark.parametrize("settings", [{"huber_delta": 0}, {"huber_delta": -1}, {"huber_delta": float("nan")}, {"starts": 0}])
def test_settings_that_leave_nothing_to_minimize_are_refused(settings):
    """With a delta of 0 every law would be equally good."""
    with pytest.raises(UsageError):
        custom_law(frontier, parameters(), **settings)
