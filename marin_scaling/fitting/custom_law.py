"""Fit a law that a user writes as a function, with bounds and fixed constants: a thin layer over lmfit.

It adds several starts between the bounds, Hoffmann's log-Huber objective as a sum, a word on whether the answer can be trusted,
and refusals that name what does not match. No grid scores every basin as for this project's own laws: that starts agree is
the only sign of a global optimum. lmfit's standard errors take the runs to scatter independently.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from marin_scaling.errors import FitRefused
from marin_scaling.fitting.surface import Objective
from marin_scaling.laws import Array

_TOLERANCES = {"ftol": 1e-12, "xtol": 1e-12, "gtol": 1e-12}
_AS_GOOD_AS_FLOATS_ALLOW = (6, 7, 8)  # MINPACK's info: the tolerance is below what can still be gained
_SAME_OBJECTIVE = 1e-6  # relative: two starts that end within it have ended in the same place
_AT_BOUND = 1e-4  # of the distance between the bounds


@dataclass(frozen=True, kw_only=True)
class UserFit:
    """The best of several fits. `result` is lmfit's; its `chisqr` is twice the Huber sum, or the sum of squares."""

    result: Any
    starts: int
    agreeing: int
    failed: int

    @property
    def sentence(self) -> str:
        """Whether the search converged, and what speaks against its answer."""
        counts = f"{self.agreeing} of {self.starts} starts end at the lowest objective"
        if not (self.result.success or self.result.ier in _AS_GOOD_AS_FLOATS_ALLOW):
            return f"Not usable: the search did not converge ({self.result.message})."
        if at_bound := [parameter.name for parameter in self.result.params.values() if _is_at_bound(parameter)]:
            return f"Use with care: it converged, with {', '.join(at_bound)} at a bound; {counts}, {self.failed} failed."
        doubt = "Usable: it converged" if self.agreeing > 1 else "Use with care: it converged, but a lower one may exist"
        return f"{doubt}; {counts}, {self.failed} failed."

    def report(self) -> str:
        """lmfit's report under the sentence."""
        from lmfit import fit_report

        return f"{self.sentence}\n{fit_report(self.result)}"


def fit_user_law(
    model: Callable[..., ArrayLike],
    *,
    data: Mapping[str, ArrayLike],
    parameters: Any,
    objective: Objective = Objective.LOG_HUBER,
    huber_delta: float = 1e-3,
    starts: int = 20,
    seed: int = 0,
) -> UserFit:
    """Fit `model`, which takes columns of `data` (flops, params, tokens, ...) and numbers by name, and gives losses (run,).

    `data` has `loss` and the columns that the model names; `parameters` are `lmfit.Parameters`, with bounds, constants
    (`vary=False`) and expressions as lmfit has them. The first start is theirs, the others lie between the bounds (evenly, or
    evenly in the logarithm where bounds are positive and a factor of ten apart); what has no two bounds keeps its value.
    `FitRefused` when names do not match, or the model gives another shape or a number that is not finite at the first start.

    >>> from lmfit import create_params
    >>> compute = np.geomspace(1e18, 1e21, 7)
    >>> fit = fit_user_law(
    ...     lambda flops, E, A, gamma: E + A * (flops / 1e19) ** -gamma,
    ...     data={"flops": compute, "loss": 1.7 + 1.5 * (compute / 1e19) ** -0.1},
    ...     parameters=create_params(E={"value": 1, "min": 0, "max": 3}, A=1, gamma={"value": 0.2, "min": 0.01, "max": 1}),
    ... )
    >>> f"{fit.result.params['E'].value:.4f}", fit.sentence[:20]
    ('1.7000', 'Usable: it converged')
    """
    if objective is Objective.LOG_ABSOLUTE:
        raise _refused("Absolute residuals have no slope at zero.", fix="Take LOG_HUBER with a small huber_delta.")
    if "loss" not in data:
        raise _refused("The data have no column loss.", fix="Name the column of losses so.")
    loss = np.asarray(data["loss"], dtype=np.float64)
    predict = _bound(model, data, parameters, runs=len(loss), needs_logarithm=objective is Objective.LOG_HUBER)

    def residuals(trial: Any) -> Array:
        predicted = predict(trial)
        return predicted - loss if objective is Objective.SQUARES else _huber_root(np.log(predicted / loss), huber_delta)

    residuals(parameters)  # refuses what is wrong with the first start; of the others that fail only the number is said
    attempts = [_attempt(residuals, start) for start in _starts(parameters, starts, seed)]
    results = [each for each in attempts if each is not None]
    if not results:
        raise _refused("Every start led to where the law gives no usable loss.", fix="Narrow the bounds.")
    best = min(results, key=lambda each: float(each.chisqr))
    ceiling = best.chisqr * (1 + _SAME_OBJECTIVE) + np.finfo(float).eps * len(loss)
    agreeing = sum(each.chisqr <= ceiling for each in results)
    return UserFit(result=best, starts=len(attempts), agreeing=agreeing, failed=len(attempts) - len(results))


def _bound(
    model: Callable[..., ArrayLike], data: Mapping[str, ArrayLike], parameters: Any, *, runs: int, needs_logarithm: bool
) -> Callable[[Any], Array]:
    """`model` as a function of lmfit's parameters alone, which refuses a wrong shape and numbers that cannot be used."""
    signature = inspect.signature(model).parameters
    columns = {name: np.asarray(data[name], dtype=np.float64) for name in signature if name in data and name not in parameters}
    _require_match(signature, columns, parameters, runs)

    def predict(trial: Any) -> Array:
        values = {name: value for name, value in trial.valuesdict().items() if name in signature}
        with np.errstate(all="ignore"):  # what is not finite is refused here
            predicted = np.asarray(model(**columns, **values), dtype=np.float64)
        if predicted.shape != (runs,):
            raise _refused(
                f"The law gives an array of shape {predicted.shape} for {runs} runs.", fix="Give one loss for each run."
            )
        if len(unusable := predicted[~np.isfinite(predicted) | (needs_logarithm & (predicted <= 0))]):
            raise _refused(f"The law gives {unusable[0]:g} at {values}.", fix="Start elsewhere, or narrow the bounds.")
        return predicted

    return predict


def _require_match(
    signature: Mapping[str, inspect.Parameter], columns: Mapping[str, Array], parameters: Any, runs: int
) -> None:
    unknown = [n for n, each in signature.items() if n not in columns and n not in parameters and each.default is each.empty]
    in_expressions = {word for each in parameters.values() for word in re.findall(r"\w+", each.expr or "")}
    unused = [name for name in parameters if name not in signature and name not in in_expressions]
    free = sum(each.vary for each in parameters.values())
    if unknown:
        raise _refused(f"The law asks for {', '.join(unknown)}.", fix="Add it to the parameters, or to the data as a column.")
    if unused:
        raise _refused(f"The law does not know the parameters {', '.join(unused)}.", fix="Leave them out, or name them in it.")
    if not 0 < free <= runs:
        raise _refused(f"{free} free numbers for {runs} runs.", fix="Add runs, or hold numbers constant with vary=False.")


def _refused(what: str, *, fix: str) -> FitRefused:
    return FitRefused(what, why="A fit of something else than was meant looks like any other.", fix=fix)


def _huber_root(residuals: Array, delta: float) -> Array:
    """What squares to twice Huber's function, with the residual's sign."""
    size = np.abs(residuals)
    return np.asarray(np.sign(residuals) * np.sqrt(np.minimum(size, delta) * (2 * size - np.minimum(size, delta))))


def _starts(parameters: Any, count: int, seed: int) -> list[Any]:
    """The caller's, and others between the bounds; only the caller's where nothing has two bounds."""
    generator, starts = np.random.default_rng(seed), [parameters]
    bounded = [each.name for each in parameters.values() if each.vary and np.isfinite([each.min, each.max]).all()]
    while bounded and len(starts) < count:
        drawn = parameters.copy()
        for name in bounded:
            drawn[name].value = _between(drawn[name].min, drawn[name].max, generator.uniform())
        starts.append(drawn)
    return starts


def _between(low: float, high: float, share: float) -> float:
    return float(low * (high / low) ** share) if 0 < 10 * low <= high else low + share * (high - low)


def _attempt(residuals: Callable[[Any], Array], start: Any) -> Any:
    from lmfit import minimize

    try:
        return minimize(residuals, start, method="leastsq", **_TOLERANCES)
    except FitRefused:  # it left the law's domain; the number of such starts is told
        return None


def _is_at_bound(parameter: Any) -> bool:
    width = parameter.max - parameter.min
    distance = min(parameter.value - parameter.min, parameter.max - parameter.value)
    return bool(parameter.vary and distance <= _AT_BOUND * (width if np.isfinite(width) else abs(parameter.value)))
