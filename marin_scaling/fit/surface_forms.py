"""Three other surfaces of loss over parameters and tokens, by the same objective and the same search as the five-parameter one.

Tied          E + A N^-alpha + B D^-alpha                           Hoffmann et al. 2022, eq. 10, with alpha = beta
Over-training E + (a M^eta + b M^-eta) C^-eta, M = D/N, C = 6 N D   Gadre et al. 2024 (arXiv 2403.08540), eq. 4
Interaction   E + A N^-alpha + B D^-beta + F N^-alpha D^-beta       eq. 10 with the product term of Zhang et al. 2024
                                                                    (arXiv 2402.17193: A N^-alpha D^-beta + E, for finetuning)

The over-training form is the tied one in other letters, alpha = 2 eta: it says what is lost at which ratio of tokens to
parameters. The interaction form holds the additive surface (F = 0) and Zhang's product (A = B = 0) as special cases; with F > 0
parameters are worth less where tokens are plenty, and the other way round. Every term is c N^-p D^-q with p and q linear in the
exponents: that is all the search knows of a form. The objective is Hoffmann's log-Huber as a sum. E and all coefficients stay
above zero; one that the runs want at zero or below comes out as next to nothing. No interval is made here.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from marin_scaling.fit.log_huber import ADDITIVE, LEAST_SHARE, CentredRuns, centred, objective, unknowns_of
from marin_scaling.fit.surface import EXPONENT_BRACKET, finite_numbers, fit_surface, polished_huber, require_spread
from marin_scaling.laws import Array, SurfaceLaw, surface_loss

FLOPS_PER_PARAM_TOKEN = 6.0  # Kaplan et al. 2020; Gadre's C

_GRID_POINTS = 28
_BASINS = 6


@dataclass(frozen=True, kw_only=True)
class TiedSurface:
    """One exponent for parameters and tokens; E in the unit of the loss."""

    E: float
    A: float
    B: float
    alpha: float
    formula: ClassVar[str] = "E + A * N^-alpha + B * D^-alpha"

    def predict(self, params: ArrayLike, tokens: ArrayLike) -> Array:
        """Loss of models of each size after each number of trained tokens.

        >>> TiedSurface(E=1.7, A=1000.0, B=1500.0, alpha=0.34).predict([1e9], [1e11]).round(3)
        array([2.844])
        """
        additive = SurfaceLaw(E=self.E, A=self.A, B=self.B, alpha=self.alpha, beta=self.alpha)
        return surface_loss(additive, params=params, tokens=tokens)


@dataclass(frozen=True, kw_only=True)
class OverTrainingLaw:
    """Loss by compute and by tokens a parameter; E in the unit of the loss."""

    E: float
    a: float
    b: float
    eta: float
    formula: ClassVar[str] = "E + (a * M^eta + b * M^-eta) * C^-eta, M = D / N, C = 6 * N * D"

    def predict(self, params: ArrayLike, tokens: ArrayLike) -> Array:
        """Loss of models of each size after each number of trained tokens, with C = 6 N D.

        >>> law = OverTrainingLaw(E=1.7, a=150.0, b=200.0, eta=0.12)
        >>> law.predict([1e9, 1e9], [2e10, 64e10]).round(3)  # 20 and 640 tokens a parameter
        array([3.081, 2.774])
        """
        sizes, horizons = np.asarray(params, dtype=np.float64), np.asarray(tokens, dtype=np.float64)
        ratio, flops = horizons / sizes, FLOPS_PER_PARAM_TOKEN * sizes * horizons
        return np.asarray(self.E + (self.a * ratio**self.eta + self.b * ratio**-self.eta) * flops**-self.eta)

    @property
    def optimal_tokens_per_param(self) -> float:
        """The ratio at which compute buys the lowest loss, the same at every budget: where a M^eta = b M^-eta."""
        return float((self.b / self.a) ** (1 / (2 * self.eta)))


@dataclass(frozen=True, kw_only=True)
class InteractionSurface:
    """The additive surface and a product term; E in the unit of the loss."""

    E: float
    A: float
    B: float
    F: float
    alpha: float
    beta: float
    formula: ClassVar[str] = "E + A * N^-alpha + B * D^-beta + F * N^-alpha * D^-beta"

    def predict(self, params: ArrayLike, tokens: ArrayLike) -> Array:
        """Loss of models of each size after each number of trained tokens.

        >>> law = InteractionSurface(E=1.7, A=400.0, B=1500.0, F=1e5, alpha=0.34, beta=0.34)
        >>> law.predict([1e9], [1e11]).round(3)
        array([2.337])
        """
        by_size, by_tokens = (
            np.asarray(params, dtype=np.float64) ** -self.alpha,
            np.asarray(tokens, dtype=np.float64) ** -self.beta,
        )
        return np.asarray(self.E + self.A * by_size + self.B * by_tokens + self.F * by_size * by_tokens)


LawT = TypeVar("LawT")


@dataclass(frozen=True, kw_only=True)
class FormFit(Generic[LawT]):
    """A law and the log-Huber sum that it leaves."""

    law: LawT
    value: float


TIED = np.array([[[1.0], [0.0]], [[0.0], [1.0]]])
INTERACTION = np.concatenate([ADDITIVE, ADDITIVE.sum(axis=0, keepdims=True)])  # the product has both powers
"""As `log_huber.ADDITIVE`: (term, axis, exponent)."""


def fit_tied_surface(*, params: Array, tokens: Array, loss: Array, huber_delta: float = 1e-3) -> FormFit[TiedSurface]:
    """The tied surface with the least log-Huber sum through runs (run,), at least five, all numbers above zero.

    `FitRefused` when there are too few runs, sizes or numbers of tokens.

    >>> params, tokens = (axis.ravel() for axis in np.meshgrid(np.geomspace(1e8, 1e10, 5), np.geomspace(1e9, 1e11, 5)))
    >>> fit = fit_tied_surface(params=params, tokens=tokens, loss=1.7 + 1000 * params**-0.34 + 1500 * tokens**-0.34)
    >>> f"{fit.law.E:.5f} {fit.law.alpha:.5f}"
    '1.70000 0.34000'
    """
    value, (E, A, B, alpha) = _fitted(TIED, params, tokens, loss, huber_delta)
    return FormFit(law=TiedSurface(E=E, A=A, B=B, alpha=alpha), value=value)


def fit_over_training(*, params: Array, tokens: Array, loss: Array, huber_delta: float = 1e-3) -> FormFit[OverTrainingLaw]:
    """Gadre's over-training law with the least log-Huber sum: `fit_tied_surface` in its own letters."""
    tied = fit_tied_surface(params=params, tokens=tokens, loss=loss, huber_delta=huber_delta)
    eta = tied.law.alpha / 2  # N^2 = C / (6 M) and D^2 = C M / 6
    scale = FLOPS_PER_PARAM_TOKEN**eta
    return FormFit(law=OverTrainingLaw(E=tied.law.E, a=scale * tied.law.A, b=scale * tied.law.B, eta=eta), value=tied.value)


def fit_interaction_surface(
    *, params: Array, tokens: Array, loss: Array, huber_delta: float = 1e-3
) -> FormFit[InteractionSurface]:
    """The surface with a product term that leaves the least log-Huber sum; at least seven runs, else as `fit_tied_surface`.

    Its search also starts at the additive optimum, so it never ends above it.
    """
    additive = fit_surface(params=params, tokens=tokens, loss=loss, huber_delta=huber_delta).law
    start = np.array([additive.E, additive.A, additive.B, 0.0, additive.alpha, additive.beta])
    value, (E, A, B, F, alpha, beta) = _fitted(INTERACTION, params, tokens, loss, huber_delta, start)
    return FormFit(law=InteractionSurface(E=E, A=A, B=B, F=F, alpha=alpha, beta=beta), value=value)


def _fitted(
    powers: Array, params: Array, tokens: Array, loss: Array, delta: float, *starts: Array
) -> tuple[float, list[float]]:
    """The objective and the numbers of a form (E, coefficients, exponents) where it is least; `starts` are such numbers."""
    terms, _, exponents = powers.shape
    require_spread(params, tokens, unknowns=1 + terms + exponents)
    runs = centred(params, tokens, loss, powers=powers)
    begun = [*_best_basins(runs, delta), *(unknowns_of(start, runs) for start in starts)]
    value, theta = polished_huber(begun, runs, delta)
    return value, finite_numbers(theta, runs)


def _best_basins(runs: CentredRuns, delta: float) -> list[Array]:
    """Starts from the lowest cell of every basin of a grid over the exponents, the best first, at most `_BASINS`."""
    grid, count = np.geomspace(*EXPONENT_BRACKET, _GRID_POINTS), runs.powers.shape[2]
    cells = np.stack(np.meshgrid(*[grid] * count, indexing="ij"), axis=-1).reshape(-1, count)
    coefficients = np.array([_best_coefficients(cell, runs) for cell in cells])
    starts = np.concatenate([np.log(np.maximum(coefficients, LEAST_SHARE * float(runs.loss.mean()))), cells], axis=1)
    values: Array = objective(starts, runs, np.ones((1, len(runs.loss))), delta).reshape([_GRID_POINTS] * count)
    padded = np.pad(values, 1, constant_values=np.inf)
    around = [padded[tuple(slice(i, i + _GRID_POINTS) for i in shift)] for shift in product((0, 1, 2), repeat=count)]
    lowest = np.flatnonzero(values <= np.min(around, axis=0))
    return [starts[cell] for cell in sorted(lowest, key=lambda cell: values.flat[cell])[:_BASINS]]


def _best_coefficients(exponents: Array, runs: CentredRuns) -> Array:
    """E and coefficients, none below zero, that fit best by relative least squares at given exponents."""
    from scipy.optimize import nnls

    terms = np.exp(-(runs.powers @ exponents) @ runs.logs)
    design = np.concatenate([np.ones((1, len(runs.loss))), terms]) / runs.loss  # (term, run)
    return np.asarray(nnls(design.T, np.ones(len(runs.loss)))[0])
