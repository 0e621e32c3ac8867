"""Laws written as a function by a user, fitted by lmfit with bounds, constants and expressions.

This module adds several starts between the bounds, the log-Huber objective of Hoffmann et al. 2022, a status of convergence, a
bootstrap over runs for the interval, and errors for arguments that do not match.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from marin_scaling.errors import FitRefused, UsageError
from marin_scaling.files import read_bytes
from marin_scaling.fitting.coupled_law import Prior
from marin_scaling.fitting.fit import LARGE_MISFIT, FitResult, FitStatus
from marin_scaling.fitting.law import LAWS, Law, LawKind, LossDraws, Targets, refuse
from marin_scaling.fitting.optima import DrawnPoints, all_runs_drawn, allocation_of_best_runs, loss_rises, size_column
from marin_scaling.laws import Array
from marin_scaling.printable import printable
from marin_scaling.run.table import RunTable

RESAMPLES = 100
"""Refits for an interval; each is a search by lmfit of some milliseconds."""
_COARSE = {"ftol": 1e-7, "xtol": 1e-7, "gtol": 1e-7}  # of refits; resampling changes parameters far more
_REPEATS = 10  # of every refit, each with another residual
_COLUMNS = ("flops", "params", "tokens")
_TOLERANCES = {"ftol": 1e-12, "xtol": 1e-12, "gtol": 1e-12}
_SAME_OBJECTIVE = 1e-6  # relative difference within which two starts reach the same minimum
_OUTSIDE = 1e3  # log residual for a step out of the law's domain, so that the search takes a shorter one
_AT_BOUND = 1e-4  # as a share of the distance between the bounds


def custom_law(
    function: Callable[..., ArrayLike],
    parameters: Any,
    *,
    name: str | None = None,
    formula: str | None = None,
    huber_delta: float = 1e-3,
    starts: int = 20,
) -> LawKind:
    """Return a law of your own for `fit(runs, law=...)`, and for `--law FILE.py:NAME` if a file assigns it to NAME.

    `function` takes any of `flops`, `params` (active parameters), `tokens` (run,), and parameters by name. It returns losses
    (run,) in the unit of the table. A function of `flops` alone is fitted to the best loss of each budget. `parameters` are
    `lmfit.Parameters`. Residuals in log loss beyond `huber_delta` count linearly; a delta of 1 is ordinary least squares.
    `starts` is the number of searches between the bounds. `result.law.report()` is lmfit's report, `result.law.found.result`
    its `MinimizerResult`.

    `UsageError` for the name of a built-in law, and for a delta or a number of starts that is not positive. A fit raises
    `FitRefused` if names, shapes or numbers do not match.

    >>> from lmfit import create_params
    >>> from marin_scaling.fitting.fit import fit
    >>> from marin_scaling.laws import SurfaceLaw
    >>> from marin_scaling.run.table import simulate_ladder
    >>> surface = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
    >>> table = simulate_ladder(surface, budgets_flops=[1e18, 1e19, 1e20, 1e21], sizes_per_budget=5, noise=0.001, seed=0)
    >>> power_law = custom_law(
    ...     lambda flops, E, A, gamma: E + A * (flops / 1e19) ** -gamma,
    ...     create_params(E={"value": 1, "min": 0, "max": 3}, A=1, gamma={"value": 0.2, "min": 0.01, "max": 1}),
    ...     name="power-law",
    ... )
    >>> f"{fit(table, law=power_law).law.parameters['gamma']:.2f}"
    '0.15'
    """
    chosen = printable(name or str(getattr(function, "__name__", "custom")))
    if chosen in LAWS:
        raise UsageError(f"{chosen!r} is the name of a built-in law.", fix="Choose another name: name=...")
    if not (huber_delta > 0 and starts >= 1):
        raise UsageError(
            f"huber_delta is {huber_delta!r} and starts is {starts!r}; both must be positive.",
            fix="Leave them out for the defaults: huber_delta=0.001, starts=20.",
        )
    known = inspect.signature(function).parameters
    settings = CustomSettings(
        function=function,
        parameters=parameters,
        formula=printable(formula or f"{chosen}({', '.join(known)})"),
        huber_delta=huber_delta,
        starts=starts,
        takes=tuple(column for column in _COLUMNS if column in known and column not in parameters),
    )
    return LawKind(
        name=chosen,
        about=settings.formula,
        fit=partial(_fit_custom, settings=settings),
        knows_any_size=settings.takes != ("flops",),
    )


def load_law(text: str) -> LawKind:
    """Run the Python file of "FILE.py:NAME" and return the law that it assigns to NAME; `UsageError` if there is none.

    Only for texts that the user typed, since the file runs with the user's rights.
    """
    path, _, name = text.rpartition(":")
    try:
        content: dict[str, Any] = {"__name__": Path(path).stem, "__file__": path}
        exec(compile(read_bytes(Path(path)), path, "exec"), content)  # never a cached compilation
        found = content[name]
    except Exception as error:  # user code can raise anything
        raise _no_law(text, f"{type(error).__name__}: {error}") from error
    if not isinstance(found, LawKind):
        raise _no_law(text, f"it is of type {type(found).__name__}")
    return found


def _no_law(text: str, reason: str) -> UsageError:
    return UsageError(
        f"{text!r} is not a law: {reason}.",
        fix="Write NAME = marin_scaling.custom_law(function, parameters) in a Python file, and --law my_laws.py:NAME",
    )


@dataclass(frozen=True, kw_only=True)
class CustomSettings:
    """Arguments of `custom_law`; `takes` are the columns that the function takes."""

    function: Callable[..., ArrayLike]
    parameters: Any
    formula: str
    huber_delta: float
    starts: int
    takes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class CustomFit(Law):
    """A user's law fitted to runs, with parameters `resampled` from refits, and `residuals` (run,) in log loss."""

    name: str
    formula: str
    knows_any_size: bool
    settings: CustomSettings
    found: UserFit
    resampled: tuple[Mapping[str, float], ...]
    residuals: Array

    @property
    def parameters(self) -> dict[str, float]:
        """Values of lmfit's parameters, constants included."""
        return {name: float(value) for name, value in self.found.result.params.valuesdict().items()}

    def draws(self, targets: Targets, *, seed: int) -> LossDraws:
        """Draw from all refitted laws, with resampled residuals as the noise of a new run."""
        law = np.repeat(self._losses(targets, self.resampled), _REPEATS, axis=0)
        if not np.isfinite(law).all():
            raise FitRefused("The law is not finite at the target.", fix="Forecast nearer to the runs, or narrow the bounds.")
        noise = law * np.expm1(np.random.default_rng(seed).choice(self.residuals, size=(len(law), 1)))
        return LossDraws(losses=law + noise, causes={"noise": noise, "sampling": law})

    def formula_losses(self, targets: Targets) -> Array:
        """Return the law with lmfit's values at each target."""
        return np.asarray(self._losses(targets, [self.parameters])[0])

    def parameter_draws(self) -> dict[str, Array]:
        """Return the parameters of the refits, without constants."""
        free = [name for name, each in self.found.result.params.items() if each.vary or each.expr]
        return {name: np.array([values[name] for values in self.resampled]) for name in free}

    def report(self) -> str:
        """Return the status of the search, and lmfit's report."""
        return self.found.report()

    def _losses(self, targets: Targets, sets: Sequence[Mapping[str, float]]) -> Array:
        columns = {name: getattr(targets, name) for name in self.settings.takes}
        known = inspect.signature(self.settings.function).parameters
        values = [{name: value for name, value in each.items() if name in known} for each in sets]
        losses = [_called(self.settings.function, columns | each) for each in values]
        return np.stack([np.broadcast_to(each, targets.flops.shape) for each in losses])


def _fit_custom(
    table: RunTable, *, kind: LawKind, seed: int, prior: Prior | None = None, settings: CustomSettings
) -> FitResult:
    drawn = all_runs_drawn(table.frame.assign(params=size_column(table.frame)))
    data = _data(drawn, of_optima=not kind.knows_any_size)
    found = fit_user_law(
        settings.function,
        data=data,
        parameters=settings.parameters,
        huber_delta=settings.huber_delta,
        starts=settings.starts,
        seed=seed,
    )
    law = CustomFit(
        name=kind.name,
        formula=settings.formula,
        knows_any_size=kind.knows_any_size,
        settings=settings,
        found=found,
        resampled=_resampled(found.result.params, data, settings, seed=seed),
        residuals=_log_residuals(found.result, data, settings),
    )
    return FitResult.of(
        table,
        law,
        kind=kind,
        seed=seed,
        prior=prior,
        drawn=drawn,
        allocation=allocation_of_best_runs(drawn, source=table.source),
        applies={
            FitStatus.NOT_CONVERGED: not found.converged,
            FitStatus.NOT_FALLING: loss_rises(drawn),
            FitStatus.LARGE_MISFIT: float(np.sqrt(np.mean(law.residuals**2))) > LARGE_MISFIT,
            FitStatus.CUSTOM_LAW: True,
        },
        why=f"as asked, to {len(data['loss'])} {'runs' if kind.knows_any_size else 'best losses'}",
        warnings=[] if found.sentence.startswith("Usable") else [found.sentence],
    )


def _data(drawn: DrawnPoints, *, of_optima: bool) -> dict[str, Array]:
    if of_optima:
        return {name: drawn.column(name) for name in (*_COLUMNS, "loss")}
    return {name: drawn.frame[name].to_numpy(dtype=np.float64) for name in (*_COLUMNS, "loss")}


def _log_residuals(result: Any, data: Mapping[str, Array], settings: CustomSettings) -> Array:
    """Return the logarithm of loss over law at each run, scaled up for the fitted parameters: (run,)."""
    predict = _bound(settings.function, data, settings.parameters, runs=len(data["loss"]))
    freedom = max(result.nfree, 1)
    return np.asarray(np.sqrt(len(data["loss"]) / freedom) * np.log(data["loss"] / predict(result.params)))


def _resampled(best: Any, data: Mapping[str, Array], settings: CustomSettings, *, seed: int) -> tuple[Mapping[str, float], ...]:
    """Return parameters refitted, starting at `best`, to runs drawn with replacement."""
    residuals = _residuals(settings.function, data, settings.parameters)
    generator, count, found = np.random.default_rng(seed), len(data["loss"]), []
    for _ in range(RESAMPLES):
        rows = generator.integers(count, size=count)
        drawn = partial(lambda rows, trial: residuals(trial)[rows], rows)
        ended = _attempt(drawn, best, delta=settings.huber_delta, tolerances=_COARSE)
        if ended is not None:
            found.append(dict(ended.params.valuesdict()))
    if 2 * len(found) < RESAMPLES:
        refuse(
            f"Of {RESAMPLES} resamples of {count} runs {RESAMPLES - len(found)} carry no such law.",
            why="An interval needs results that do not depend on a few runs.",
            fix="Add runs, narrow the bounds, or fit the default law, which takes any table.",
        )
    return tuple(found)


@dataclass(frozen=True, kw_only=True)
class UserFit:
    """Best of several fits. `result` is lmfit's; its `cost` is the sum of Huber's function over the runs."""

    result: Any
    starts: int
    agreeing: int
    failed: int

    @property
    def converged(self) -> bool:
        """True if the best search ended at a minimum within its tolerances."""
        return bool(self.result.success)

    @property
    def sentence(self) -> str:
        """Status of the search, with its weaknesses."""
        counts = f"{self.agreeing} of {self.starts} starts end at the lowest objective"
        if not self.converged:
            return f"Not usable: the search did not converge ({self.result.message})."
        if at_bound := [parameter.name for parameter in self.result.params.values() if _is_at_bound(parameter)]:
            return f"Use with care: it converged, with {', '.join(at_bound)} at a bound; {counts}, {self.failed} failed."
        status = "Usable: it converged" if self.agreeing > 1 else "Use with care: it converged, but a lower one may exist"
        return f"{status}; {counts}, {self.failed} failed."

    def report(self) -> str:
        """Return lmfit's report below the status."""
        from lmfit import fit_report

        return f"{self.sentence}\n{fit_report(self.result)}"


def fit_user_law(
    model: Callable[..., ArrayLike],
    *,
    data: Mapping[str, ArrayLike],
    parameters: Any,
    huber_delta: float = 1e-3,
    starts: int = 20,
    seed: int = 0,
) -> UserFit:
    """Fit `model`, which takes columns of `data` (flops, params, tokens, ...) and parameters by name, and returns losses.

    `data` has `loss` and the columns that the model uses; `parameters` are `lmfit.Parameters`, with bounds, constants
    (`vary=False`) and expressions as in lmfit. The first start is theirs. Others lie evenly between the bounds, or evenly in
    the logarithm if the bounds are positive and a factor of ten apart; a parameter without two bounds keeps its value.
    `FitRefused` if names do not match, or if the model returns another shape or a number that is not finite at the first start.

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
    if "loss" not in data:
        raise FitRefused("The data have no column loss.", fix="Name the column of losses loss.")
    residuals = _residuals(model, data, parameters)
    residuals(parameters)  # raises for an invalid first start; failures of later starts are counted
    attempts = [_attempt(residuals, start, delta=huber_delta) for start in _starts(parameters, starts, seed)]
    results = [each for each in attempts if each is not None]
    if not results:
        raise FitRefused("No start led to a finite loss.", fix="Narrow the bounds.")
    best = min(results, key=lambda each: float(each.cost))
    ceiling = best.cost * (1 + _SAME_OBJECTIVE) + np.finfo(float).eps * np.size(data["loss"])
    agreeing = sum(each.cost <= ceiling for each in results)
    return UserFit(result=best, starts=len(attempts), agreeing=agreeing, failed=len(attempts) - len(results))


def _residuals(model: Callable[..., ArrayLike], data: Mapping[str, ArrayLike], parameters: Any) -> Callable[[Any], Array]:
    """Return the function of lmfit's parameters that gives the logarithm of law over loss at each run, (run,)."""
    loss = np.asarray(data["loss"], dtype=np.float64)
    predict = _bound(model, data, parameters, runs=len(loss))

    def residuals(trial: Any) -> Array:
        return np.asarray(np.log(predict(trial) / loss))

    return residuals


def _bound(
    model: Callable[..., ArrayLike], data: Mapping[str, ArrayLike], parameters: Any, *, runs: int
) -> Callable[[Any], Array]:
    """Return `model` as a function of lmfit's parameters, which raises for a wrong shape and invalid losses."""
    signature = inspect.signature(model).parameters
    columns = {name: np.asarray(data[name], dtype=np.float64) for name in signature if name in data and name not in parameters}
    _require_match(signature, columns, parameters, runs)

    def predict(trial: Any) -> Array:
        values = {name: value for name, value in trial.valuesdict().items() if name in signature}
        predicted = _called(model, {**columns, **values})
        if predicted.shape != (runs,):
            raise FitRefused(
                f"The law returns an array of shape {predicted.shape} for {runs} runs.", fix="Return one loss for each run."
            )
        if len(unusable := predicted[~(np.isfinite(predicted) & (predicted > 0))]):
            raise FitRefused(f"The law returns {unusable[0]:g} at {values}.", fix="Start elsewhere, or narrow the bounds.")
        return predicted

    return predict


def _called(model: Callable[..., ArrayLike], arguments: Mapping[str, Any]) -> Array:
    """Call a user's function; the caller checks for numbers that are not finite."""
    try:
        with np.errstate(all="ignore"):
            return np.asarray(model(**arguments), dtype=np.float64)
    except Exception as error:  # user code can raise anything
        raise FitRefused(f"The law raised {type(error).__name__}: {error}.", fix="Fix the function.") from error


def _require_match(
    signature: Mapping[str, inspect.Parameter], columns: Mapping[str, Array], parameters: Any, runs: int
) -> None:
    unknown = [n for n, each in signature.items() if n not in columns and n not in parameters and each.default is each.empty]
    in_expressions = {word for each in parameters.values() for word in re.findall(r"\w+", each.expr or "")}
    unused = [name for name in parameters if name not in signature and name not in in_expressions]
    free = sum(each.vary for each in parameters.values())
    if unknown:
        raise FitRefused(f"The law needs {', '.join(unknown)}.", fix="Add it to the parameters, or to the data as a column.")
    if unused:
        raise FitRefused(
            f"The law does not use the parameters {', '.join(unused)}.", fix="Remove them, or use them in the law."
        )
    if not 0 < free <= runs:
        raise FitRefused(f"{free} free parameters for {runs} runs.", fix="Add runs, or fix parameters with vary=False.")


def _starts(parameters: Any, count: int, seed: int) -> list[Any]:
    """Return the caller's start, and others between the bounds if any parameter has two."""
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


def _attempt(
    residuals: Callable[[Any], Array], start: Any, *, delta: float, tolerances: Mapping[str, float] = _TOLERANCES
) -> Any:
    from lmfit import minimize

    try:
        outside = np.full_like(residuals(start), _OUTSIDE)
    except FitRefused:  # outside of the law's domain; such starts are counted
        return None

    def bounded(trial: Any) -> Array:
        try:
            return residuals(trial)
        except FitRefused:
            return outside

    with np.errstate(all="ignore"):  # lmfit divides by standard errors, which are 0 for runs without noise
        return minimize(bounded, start, method="least_squares", loss="huber", f_scale=delta, **tolerances)


def _is_at_bound(parameter: Any) -> bool:
    width = parameter.max - parameter.min
    distance = min(parameter.value - parameter.min, parameter.max - parameter.value)
    return bool(parameter.vary and distance <= _AT_BOUND * (width if np.isfinite(width) else abs(parameter.value)))
