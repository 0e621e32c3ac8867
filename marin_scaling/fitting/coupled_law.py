"""The coupled surface L(N, C) with its prior, and the slopes of its frontier."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marin_scaling.laws import Array

Unknowns = NDArray[Any]
"""Array (draw, unknown), real or complex: log L0, log S_N, log S_D, logit r, log(b/a), log g, log sigma, log tau, and for
sparse models kappa. A model of N active and M total parameters is as good as a dense one of N (M/N)^kappa parameters."""

SLOPES = slice(1, 3)
SHARE, SIGMA, TAU, KAPPA = 3, 6, 7, 8
HEAVY_TAILED = slice(1, 4)
"""The slopes and logit(K / L0), whose prior is Student's t: runs of another kind can overrule it."""
PRIOR_FREEDOM = 3.0
"""Degrees of freedom of that Student's t."""
LARGEST_POWER = 60.0
"""Largest log of a size relative to the middle of the runs: e^60 is beyond any table, and far from overflow."""


@dataclass(frozen=True, kw_only=True)
class Normal:
    """Middle and width of the prior of one unknown, normal unless it states otherwise."""

    mean: float
    deviation: float


@dataclass(frozen=True, kw_only=True)
class Prior:
    """Prior for any ladder of language models; every number is dimensionless and states its source.

    Published coefficients give the exponents (Hoffmann et al. 2022; Besiroglu et al. 2024; Marin's dense and MoE ladders,
    issues 1337 and 4447). Back-tests over public and simulated suites give the rest and the widths, so these suites are no
    independent test of them (`benchmarks/accuracy.py` scores any change).
    """

    slope: Normal = Normal(mean=float(np.log(0.055)), deviation=0.4)
    """Prior of log(-dlnL/dlnN) and log(-dlnL/dlnD) at the middle: ten times the size reduces the loss by 8 to 17 %. Of widths 1
    and 0.4, each of 16 public ladders would be given 0.4 by the other fifteen (`benchmarks/prior_choices.py`). Student's t."""
    reducible_share: Normal = Normal(mean=-0.2, deviation=0.5)
    """Prior of logit(K / L0): a quarter to two thirds of the loss in the middle of a ladder is reducible. For 3.0 nats,
    published asymptotes of 1.6 (Marin's MoE, pinned), 1.69 (Hoffmann), 1.71 to 1.78 (Delphi's optima) and 1.82 (Besiroglu)
    correspond to -0.1 to -0.4. Student's t."""
    exponent_ratio: Normal = Normal(mean=0.0, deviation=0.35)
    """Prior of log(b / a): published pairs differ by a factor of at most two."""
    coupling: Normal = Normal(mean=-0.4, deviation=0.7)
    """Prior of log g: 1 is Hoffmann's form; this law has 0.40 to 0.63 on seven public ladders, 0.59 on the quickstart."""
    frontier_exponent: Normal = Normal(mean=float(np.log(0.14)), deviation=0.7)
    """Prior of log gamma, gamma = g a b / (a + b): 0.102 (Delphi's optima), 0.154 (Hoffmann) and 0.178 (Besiroglu) with E free,
    0.090 to 0.094 for Marin's MoE with E pinned; 0.12 and 0.14 score alike on back-tests."""
    size_exponent: Normal = Normal(mean=float(np.log(0.5)), deviation=0.4)
    """Prior of log a and log b: 0.28 to 0.68 published for the additive surface; bowls require 0.4 to 0.8."""
    noise: Normal = Normal(mean=float(np.log(0.004)), deviation=1.0)
    """Prior of log sigma, the scatter of one run in log loss; that of seeds alone is 0.0005."""
    misfit: Normal = Normal(mean=float(np.log(0.007)), deviation=0.7)
    """Prior of log tau, the smooth model discrepancy in log loss of any law with so few parameters."""
    total_params: Normal = Normal(mean=0.4, deviation=0.3)
    """Prior of kappa: 0 if only active parameters count, 1 if all do; a common rule takes their geometric mean, 0.5."""


@dataclass(frozen=True, kw_only=True)
class CoupledLaws:
    """Many laws: arrays (law,); L0, E and K in the unit of the runs' losses."""

    L0: Unknowns
    K: Unknowns
    a: Unknowns
    b: Unknowns
    w: Unknowns
    g: Unknowns

    @property
    def E(self) -> Unknowns:  # noqa: N802  # the asymptote's letter in every paper
        """Irreducible loss."""
        return np.asarray(self.L0 - self.K)

    @property
    def gamma(self) -> Unknowns:
        """Exponent of the compute frontier far away, where both terms are balanced."""
        return np.asarray(self.g * self.a * self.b / (self.a + self.b))

    def log_losses(self, log_params: Unknowns, log_tokens: NDArray[np.float64]) -> Unknowns:
        """Return the log loss of each law at each run: (law, run); sizes are ln(N/N0) and ln(D/D0), (run,) or (law, run)."""
        u = self.w[:, None] * _power(-self.a[:, None] * log_params)
        u = u + (1 - self.w)[:, None] * _power(-self.b[:, None] * log_tokens)
        return np.asarray(np.log(self.E[:, None] + self.K[:, None] * np.exp(self.g[:, None] * np.log(u))))

    def optimal_log_params(self, log_product: NDArray[np.float64]) -> Unknowns:
        """Return ln(N*/N0) of each law for given ln(N/N0) + ln(D/D0): (law, budget). There a w N^-a = b (1-w) D^-b."""
        balance = np.log(self.a * self.w) - np.log(self.b * (1 - self.w))
        return np.asarray((balance[:, None] + self.b[:, None] * log_product) / (self.a + self.b)[:, None])


def laws_of(unknowns: Unknowns) -> CoupledLaws:
    """Return the laws of these unknowns.

    >>> laws = laws_of(np.array([[np.log(3.0), np.log(0.08), np.log(0.08), 0.0, 0.0, 0.0, -5.0, -5.0]]))
    >>> laws.E.round(3), laws.a.round(3), laws.w.round(3)  # half is reducible; twice the slope of half the loss
    (array([1.5]), array([0.32]), array([0.5]))
    """
    loss, g, ratio = np.exp(unknowns[:, 0]), np.exp(unknowns[:, 5]), np.exp(unknowns[:, 4])
    reducible = loss / (1 + np.exp(-unknowns[:, 3]))
    by_params, by_tokens = (np.exp(unknowns[:, column]) * loss / (reducible * g) for column in (1, 2))  # a w and b (1 - w)
    a = by_params + by_tokens / ratio
    return CoupledLaws(L0=loss, K=reducible, a=a, b=ratio * a, w=by_params / a, g=g)


def log_prior(unknowns: Unknowns, laws: CoupledLaws, prior: Prior, *, middle_log_loss: float) -> Unknowns:
    """Return the log density of the prior at each row of unknowns and its law, up to a constant: (draw,).

    `middle_log_loss` is the log loss of the runs nearest to the middle, the only quantity taken from the table.
    """
    mean, deviation = means_and_deviations(prior, middle_log_loss=middle_log_loss, unknowns=unknowns.shape[1])
    away = (np.concatenate([unknowns, log_exponents(laws).T], axis=1) - mean) / deviation
    squares = away * away
    squares[:, HEAVY_TAILED] = (PRIOR_FREEDOM + 1) * np.log(1 + squares[:, HEAVY_TAILED] / PRIOR_FREEDOM)
    return np.asarray(-0.5 * squares.sum(axis=1))


def log_exponents(laws: CoupledLaws) -> Unknowns:
    """Return ln gamma, ln a and ln b, which have priors too: (3, law)."""
    return np.asarray(np.log(np.array([laws.gamma, laws.a, laws.b])))


@lru_cache(maxsize=64)
def means_and_deviations(prior: Prior, *, middle_log_loss: float, unknowns: int) -> NDArray[np.float64]:
    """Return prior means and deviations of so many unknowns, and of the three `log_exponents`: (2, unknown + 3)."""
    of_laws = (Normal(mean=middle_log_loss, deviation=0.3), prior.slope, prior.slope, prior.reducible_share)
    of_shapes = (prior.exponent_ratio, prior.coupling, prior.noise, prior.misfit, prior.total_params)
    of_exponents = (prior.frontier_exponent, prior.size_exponent, prior.size_exponent)
    held_likely = (*(*of_laws, *of_shapes)[:unknowns], *of_exponents)
    return np.array([(each.mean, each.deviation) for each in held_likely]).T


def prior_start(prior: Prior, *, middle_log_loss: float, sparse: bool) -> NDArray[np.float64]:
    """Return a point of high prior density, as a start of searches: (unknown,)."""
    return np.array(
        [
            middle_log_loss,
            prior.slope.mean,
            prior.slope.mean,
            prior.reducible_share.mean,
            prior.exponent_ratio.mean,
            prior.coupling.mean,
            prior.noise.mean + 0.4,
            prior.misfit.mean,
            *([prior.total_params.mean] if sparse else []),
        ]
    )


def _power(exponent: Unknowns) -> Unknowns:
    """Return exp, limited far outside of the runs against overflow, and analytic inside."""
    return np.asarray(np.exp(np.clip(exponent, -LARGEST_POWER, LARGEST_POWER)))


_LOSS, _BY_PARAMS, _BY_TOKENS, _SHARE, _RATIO, _COUPLING = np.eye(6)
_TRADE = _BY_PARAMS - _BY_TOKENS + _RATIO
_NONE = np.zeros(6)
_ALWAYS = np.array([_LOSS, _LOSS, _BY_TOKENS - _RATIO - _COUPLING, _BY_TOKENS - _COUPLING, _TRADE, _COUPLING])
_BY_WEIGHT = np.array([_NONE, _NONE, _TRADE, _TRADE, -_TRADE, _NONE])
_BY_ASYMPTOTE = np.array([_NONE, _SHARE, -_SHARE, -_SHARE, _NONE, _NONE])


def number_slopes(law: CoupledLaws) -> Array:
    """Return the slopes of ln (L0, K, a, b, w, g) of one law in the first six unknowns: (number, unknown).

    They are linear in w and in E / L0, because a w g K / L0 and b (1 - w) g K / L0 are the slopes at the middle, two unknowns.

    >>> from marin_scaling.fitting.coupled_law import laws_of
    >>> point = np.array([np.log(3.0), np.log(0.08), np.log(0.08), 0.0, 0.0, 0.0, -5.0, -5.0])
    >>> number_slopes(laws_of(point[None]))[2].round(2)  # ln a: half by either slope at the middle, less the more is reducible
    array([ 0. ,  0.5,  0.5, -0.5, -0.5, -1. ])
    """
    return np.asarray(_ALWAYS + law.w[0] * _BY_WEIGHT + law.E[0] / law.L0[0] * _BY_ASYMPTOTE)


def log_losses_and_slopes(law: CoupledLaws, x: Array, y: Array) -> tuple[Array, Array, Array]:
    """Return log losses of one law at runs (run,), their slopes in ln (L0, K, a, b, w, g) (number, run), and in ln(N / N0)."""
    loss, reducible, a, b, w, g = (float(each[0]) for each in (law.L0, law.K, law.a, law.b, law.w, law.g))
    in_x, in_y = (np.maximum(np.minimum(each, LARGEST_POWER), -LARGEST_POWER) for each in (-a * x, -b * y))
    by_params, by_tokens = np.exp(in_x), np.exp(in_y)
    u = w * by_params + (1 - w) * by_tokens
    removed = reducible * u**g
    losses = loss - reducible + removed
    falls = g * removed / losses
    columns = (
        loss / losses,
        (removed - reducible) / losses,
        falls * w * by_params / u * in_x,
        falls * (1 - w) * by_tokens / u * in_y,
        falls * w * (by_params - by_tokens) / u,
        falls * np.log(u),
    )
    return np.log(losses), np.array(columns), -falls * w * by_params / u * a


def log_prior_and_slope(
    point: Array, law: CoupledLaws, prior: Prior, *, numbers: Array, middle_log_loss: float
) -> tuple[float, Array]:
    """Return `coupled_law.log_prior` at one point, and its slope (unknown,); `numbers` are the law's `number_slopes`."""
    mean, deviation = means_and_deviations(prior, middle_log_loss=middle_log_loss, unknowns=len(point))
    away = (np.concatenate([point, log_exponents(law)[:, 0]]) - mean) / deviation
    pulls = away / deviation
    heavy = away[HEAVY_TAILED] ** 2
    pulls[HEAVY_TAILED] *= (PRIOR_FREEDOM + 1) / (PRIOR_FREEDOM + heavy)
    frontier = numbers[5] + numbers[2] + law.a[0] / (law.a[0] + law.b[0]) * _RATIO
    slope = -pulls[:-3]
    slope[:6] -= pulls[-3] * frontier + pulls[-2] * numbers[2] + pulls[-1] * numbers[3]
    value = away @ away - heavy.sum() + (PRIOR_FREEDOM + 1) * np.log(1 + heavy / PRIOR_FREEDOM).sum()
    return -0.5 * float(value), slope
