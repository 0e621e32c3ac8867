"""The coupled law against Hoffmann's, its unknowns against finite differences, its optimum against a search."""

import numpy as np
import pytest

from marin_scaling.fitting.coupled_law import KAPPA, PRIOR_FREEDOM, Prior, laws_of, log_prior, prior_start
from marin_scaling.laws import SurfaceLaw, surface_loss

PRIOR = Prior()
STEP = 1e-30  # of a complex step: no digits are lost


def drawn_unknowns(count, *, seed=0):
    """Rows of unknowns spread about the prior: (draw, unknown)."""
    deviates = np.random.default_rng(seed).standard_normal((count, 8))
    spread = np.array([0.3, 0.7, 0.7, 0.6, 0.35, 0.7, 1.0, 0.7])
    return prior_start(PRIOR, middle_log_loss=1.1, sparse=False) + spread * deviates


def places(count=6, *, seed=1):
    """ln N/N0 and ln D/D0 of some runs on all sides of the middle."""
    return np.random.default_rng(seed).uniform(-3, 3, (2, count))


def unknowns_of_additive(law, *, middle_params, middle_tokens):
    """The unknowns under which the coupled law with g = 1 is `law`, by hand from what they are said to mean."""
    by_params, by_tokens = law.A * middle_params**-law.alpha, law.B * middle_tokens**-law.beta
    loss = law.E + by_params + by_tokens
    share = (by_params + by_tokens) / loss
    slopes = np.log([law.alpha * by_params / loss, law.beta * by_tokens / loss])
    return np.array([[np.log(loss), *slopes, np.log(share / (1 - share)), np.log(law.beta / law.alpha), 0.0, -5.0, -5.0]])


def test_with_a_coupling_of_one_it_is_the_additive_surface():
    """Hoffmann's published coefficients, to rounding, from far below the middle to far above it."""
    law = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
    ours = laws_of(unknowns_of_additive(law, middle_params=3e8, middle_tokens=6e9))
    params, tokens = np.geomspace(1e6, 1e13, 8), np.geomspace(1e14, 1e7, 8)
    found = np.exp(ours.log_losses(np.log(params / 3e8), np.log(tokens / 6e9))[0])
    assert found == pytest.approx(surface_loss(law, params=params, tokens=tokens), rel=1e-12)
    assert (ours.E[0], ours.a[0], ours.b[0]) == pytest.approx((law.E, law.alpha, law.beta), rel=1e-12)
    assert ours.gamma[0] == pytest.approx(0.34 * 0.28 / 0.62, rel=1e-12)


def test_the_loss_and_the_slopes_at_the_middle_are_the_unknowns():
    """Central differences of the log loss there are -S_N and -S_D; the asymptote is L0 less its reducible share."""
    unknowns, step = drawn_unknowns(20), 1e-5
    laws = laws_of(unknowns)
    ahead = laws.log_losses(np.array([step, 0.0, 0.0]), np.array([0.0, step, 0.0]))
    behind = laws.log_losses(np.array([-step, 0.0]), np.array([0.0, -step]))
    slopes = (ahead[:, :2] - behind) / (2 * step)
    assert ahead[:, 2] == pytest.approx(unknowns[:, 0], abs=1e-12)
    assert -slopes == pytest.approx(np.exp(unknowns[:, 1:3]), rel=1e-6)
    irreducible = np.exp(unknowns[:, 0]) / (1 + np.exp(unknowns[:, 3]))
    assert irreducible == pytest.approx(laws.E, rel=1e-12)
    assert laws.b / laws.a == pytest.approx(np.exp(unknowns[:, 4]), rel=1e-12)


def test_the_optimum_is_the_lowest_loss_along_constant_params_times_tokens():
    """A search over 6,001 sizes, for several products, under 20 laws: nothing is lower, and the lowest is where it is said."""
    laws, products = laws_of(drawn_unknowns(20, seed=2)), np.array([-4.0, 0.0, 5.0])
    found = laws.optimal_log_params(products)
    for column, product in enumerate(products):
        sizes = found[:, column, None] + np.linspace(-3, 3, 6001)
        assert (np.argmin(laws.log_losses(sizes, product - sizes), axis=1) == 3000).all()


def test_on_the_optimum_the_reducible_loss_falls_with_the_frontier_exponent():
    """ln(L* - E) against ln(N D) is a line of slope -gamma."""
    laws, products = laws_of(drawn_unknowns(20, seed=3)), np.array([-6.0, 0.0, 6.0])
    sizes = laws.optimal_log_params(products)
    excess = np.log(np.exp(laws.log_losses(sizes, products - sizes)) - laws.E[:, None])
    assert np.diff(excess, axis=1) / -6.0 == pytest.approx(np.stack([laws.gamma] * 2, axis=1), rel=1e-6)


def test_the_complex_step_gradient_is_that_of_finite_differences():
    """Of prior and losses together, in all eight unknowns, at 20 points: the code is analytic."""
    x, y = places()

    def density(unknowns):
        laws = laws_of(unknowns)
        return log_prior(unknowns, laws, PRIOR, middle_log_loss=1.0) + 10 * laws.log_losses(x, y).sum(axis=1)

    for point in drawn_unknowns(20, seed=4):
        complex_step = density(point + 1j * STEP * np.eye(8)).imag / STEP
        differences = (density(point + 1e-5 * np.eye(8)) - density(point - 1e-5 * np.eye(8))) / 2e-5
        assert complex_step == pytest.approx(differences, rel=1e-5, abs=1e-5)


def test_the_prior_is_the_sum_of_the_densities_that_it_states():
    """Against scipy's, without their constants, with nine unknowns; Student's t for the slopes and the reducible share."""
    from scipy.stats import norm, t

    unknowns = np.concatenate([drawn_unknowns(5, seed=5), np.linspace(-0.5, 1.0, 5)[:, None]], axis=1)
    laws = laws_of(unknowns)
    terms = [
        (unknowns[:, 0], 0.9, 0.3),
        (unknowns[:, 4], PRIOR.exponent_ratio.mean, PRIOR.exponent_ratio.deviation),
        (unknowns[:, 5], PRIOR.coupling.mean, PRIOR.coupling.deviation),
        (unknowns[:, 6], PRIOR.noise.mean, PRIOR.noise.deviation),
        (unknowns[:, 7], PRIOR.misfit.mean, PRIOR.misfit.deviation),
        (unknowns[:, KAPPA], PRIOR.total_params.mean, PRIOR.total_params.deviation),
        (np.log(laws.gamma), PRIOR.frontier_exponent.mean, PRIOR.frontier_exponent.deviation),
        *((np.log(each), PRIOR.size_exponent.mean, PRIOR.size_exponent.deviation) for each in (laws.a, laws.b)),
    ]
    expected = sum(norm.logpdf(value, mean, deviation) - norm.logpdf(0, 0, deviation) for value, mean, deviation in terms)
    for column, prior in ((1, PRIOR.slope), (2, PRIOR.slope), (3, PRIOR.reducible_share)):
        away = (unknowns[:, column] - prior.mean) / prior.deviation
        expected = expected + t.logpdf(away, PRIOR_FREEDOM) - t.logpdf(0, PRIOR_FREEDOM)
    assert log_prior(unknowns, laws, PRIOR, middle_log_loss=0.9) == pytest.approx(expected, rel=1e-12)


def test_the_prior_medians_are_those_of_published_laws():
    """What its documentation says of them: exponents, shares and scatter of a usual ladder, 45 % of a small model's loss."""
    known = {"slope": 0.055, "coupling": 0.67, "frontier_exponent": 0.14, "size_exponent": 0.5}
    assert {name: np.exp(getattr(PRIOR, name).mean) for name in known} == pytest.approx(known, rel=0.01)
    assert (np.exp(PRIOR.noise.mean), np.exp(PRIOR.misfit.mean)) == pytest.approx((0.004, 0.007))
    share = [1 / (1 + np.exp(-PRIOR.reducible_share.mean - k * PRIOR.reducible_share.deviation)) for k in (-1.96, 0, 1.96)]
    assert share == pytest.approx([0.24, 0.45, 0.69], abs=0.01)


def test_published_asymptotes_lie_in_the_middle_of_the_prior():
    """Of a loss of 3 nats, Marin's MoE, Hoffmann, Delphi's optima and Besiroglu: each inside one deviation."""
    shares = 1 - np.array([1.6, 1.69, 1.784, 1.817]) / 3
    away = (np.log(shares / (1 - shares)) - PRIOR.reducible_share.mean) / PRIOR.reducible_share.deviation
    assert np.abs(away).max() < 1


def test_the_start_is_the_prior_s_middle_except_for_the_noise():
    """A little more noise than likely makes the search smoother; a ninth unknown only where models are sparse."""
    start = prior_start(PRIOR, middle_log_loss=1.2, sparse=True)
    expected = [1.2, PRIOR.slope.mean, PRIOR.slope.mean, -0.2, 0.0, -0.4, PRIOR.noise.mean + 0.4, PRIOR.misfit.mean, 0.4]
    assert start.tolist() == pytest.approx(expected)
    assert prior_start(PRIOR, middle_log_loss=1.2, sparse=False).tolist() == start.tolist()[:8]


def test_far_outside_the_runs_the_law_stays_a_finite_number():
    """A thousand powers of e away on either side nothing overflows, and the loss stays between E and a finite number."""
    laws = laws_of(drawn_unknowns(20, seed=6))
    losses = laws.log_losses(np.array([-1000.0, 1000.0]), np.array([1000.0, 1000.0]))
    assert np.isfinite(losses).all()
    assert (losses >= np.log(laws.E)[:, None]).all()
