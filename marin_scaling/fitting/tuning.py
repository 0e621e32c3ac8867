"""Optimal hyperparameters: the optimum of each cell of a sweep, and a law of the optimum in size, tokens and batch size.

A cell is one size and number of tokens. Within a cell, the loss near its minimum is a parabola in the logarithm of a
hyperparameter. Where several were swept, the first is optimized for each value of the others, and so on: a learning rate
for each batch size, then the batch size. The law is linear in logarithms, as in Step Law (Li et al. 2025, arXiv:2503.04715).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NoReturn

import numpy as np
from scipy.special import ndtr, ndtri

from marin_scaling.errors import FitRefused
from marin_scaling.laws import Array
from marin_scaling.printable import quoted
from marin_scaling.run.cells import NEARNESS
from marin_scaling.run.groups import GroupShift, shifted_groups
from marin_scaling.run.tuning_runs import SweptRuns, other_settings, refuse_kinds, require_equal_losses
from marin_scaling.units import format_number

if TYPE_CHECKING:
    import pandas as pd


LEAST_VALUES = 3
"""Values of a hyperparameter that a parabola needs."""

LEAST_CELLS = 3
"""Optima that a law needs."""

_WINDOW = 0.01
"""Excess of the loss at which a run counts half: a parabola holds near the minimum only. From 0.3 % to 3 %, the exponents of
Marin's #4225 change by 0.03 at most and those of Step Law's mixtures by 0.07. 1 % is the middle, and was not optimized."""

_USUAL_NOISE, _NOISE_FREEDOM = 0.001, 2
"""Scatter of log losses about the parabolas that counts as much as two degrees of freedom. It is 0.0008 in Marin's #4225, and
0.0010 in Step Law's mixtures."""

DRAWS = 2000
_BURN_IN = 200
_SCATTERS = np.geomspace(0.003, 1.0, 60)
_USUAL_SCATTER = 0.2
"""Scale of the half-normal prior of the scatter; it is 0.03 in Marin's #4225, and 0.12 in Step Law's mixtures."""

PRIORS: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "learning_rate": {"size": (-0.3, 0.5), "tokens": (-0.3, 0.5), "batch_size": (0.5, 0.25), "weight_decay": (0.0, 0.5)},
    "weight_decay": {"size": (0.0, 0.5), "tokens": (0.0, 0.5), "batch_size": (0.0, 0.5)},
    "batch_size": {"size": (0.0, 0.5), "tokens": (0.5, 0.5)},
}
"""Mean and standard deviation of each exponent before the data. Published laws of learning rates have exponents from -0.4 to
+0.3 in tokens and from -0.7 to -0.15 in sizes. They have 0.5 in batch size, the square-root rule of Adam (Malladi et al.
2022)."""

_FROM_PRIOR = 0.8
"""Ratio of an exponent's standard deviation to that of its prior above which the runs hardly determine it."""


TOO_COSTLY, _FAILING = 0.003, 0.2
"""Relative loss that a prediction may cost, and the share of cells that may lose more."""
_PRIOR_CELLS = 4
"""Cells with errors as expected that count beside those that were predicted."""
_MOST_KINDS, _SHIFTED = 8, 1.2
"""Values of a column that may set kinds apart, and the least ratio of their optima: it costs about 0.1 %."""


@dataclass(frozen=True, kw_only=True)
class Optimum:
    """Optimum of one hyperparameter in a cell, at given values of the others.

    `log_value` is the natural logarithm of the optimum with its standard deviation `log_sd`. `curvature` is the second
    derivative of the log loss in that logarithm, and `loss` the minimum. `border` is "lowest" or "highest" if the minimum lies
    beyond the lowest or highest value, which `log_value` then is; "" otherwise. `span` gives the swept values.
    """

    size: float
    tokens: float
    given: Mapping[str, float]
    log_value: float
    log_sd: float
    curvature: float
    loss: float
    runs: int
    span: tuple[float, float]
    border: str = ""

    @property
    def value(self) -> float:
        """The optimum, in its own unit."""
        return math.exp(self.log_value)

    @property
    def compute(self) -> float:
        """Size times tokens, which orders cells by cost."""
        return self.size * self.tokens

    def at(self, term: str) -> float:
        """Return the cell's value of a term of a law: size, tokens, or a hyperparameter."""
        return {"size": self.size, "tokens": self.tokens, **self.given}[term]

    def excess(self, log_value: float) -> float:
        """Return the relative loss above the minimum at another value."""
        return math.expm1(self.curvature / 2 * (log_value - self.log_value) ** 2)


@dataclass(frozen=True, kw_only=True)
class TuningLaw:
    """Law of an optimum: value = scale * product of (term / centre) ** exponent, with a scatter of single cells.

    `draws` are of the logarithm of the scale and of the exponents, (draw, 1 + term); `scatter` are standard deviations of the
    logarithm, (draw,). `curvature` holds coefficients of the same terms for the logarithm of the curvature, None for a table of
    optima. `from_prior` names the terms that the runs do not determine. `spans` gives the range of each term in the runs.
    """

    name: str
    terms: tuple[str, ...]
    centres: Array
    draws: Array = field(repr=False)
    scatter: Array = field(repr=False)
    curvature: Array | None
    optima: tuple[Optimum, ...] = field(repr=False)
    from_prior: tuple[str, ...]
    spans: Mapping[str, tuple[float, float]]

    @property
    def scale(self) -> float:
        """Optimum at the centre of the runs."""
        return float(math.exp(np.median(self.draws[:, 0])))

    @property
    def exponents(self) -> dict[str, tuple[float, float, float]]:
        """Median and 90 % interval of the exponent of each term."""
        columns = zip(self.terms, self.draws[:, 1:].T, strict=True)
        return {term: tuple(np.quantile(draws, (0.5, 0.05, 0.95)).tolist()) for term, draws in columns}

    def at(self, point: Mapping[str, float]) -> Array:
        """Return draws of the logarithm of the law at a point, without the scatter of a cell: (draw,)."""
        return np.asarray(self.draws @ self._features(point))

    def _features(self, point: Mapping[str, float]) -> Array:
        return np.array([1.0, *(math.log(point[term]) - c for term, c in zip(self.terms, self.centres, strict=True))])

    def new_cell(self, point: Mapping[str, float], generator: np.random.Generator, *, inflation: float = 1.0) -> Array:
        """Return draws of the logarithm of a new cell's own optimum: (draw,). Variances are multiplied by `inflation`."""
        logs = self.at(point)
        middle = np.median(logs)
        return np.asarray(middle + math.sqrt(inflation) * (logs - middle + self.scatter * generator.standard_normal(len(logs))))

    def excess(self, point: Mapping[str, float], log_value: float, cell: Array) -> Array | None:
        """Return draws of the relative loss of a value, given draws of a cell's optimum: (draw,).

        None for a table of optima, which has no losses.
        """
        if self.curvature is None:
            return None
        distance = log_value - cell
        return np.asarray(np.expm1(math.exp(float(self.curvature @ self._features(point))) / 2 * distance**2))


def optima_by_hyperparameter(runs: SweptRuns) -> dict[str, list[Optimum]]:
    """Return the optima of each hyperparameter that was swept within cells.

    `FitRefused` if no cell has three values of any.
    """
    frame = runs.frame
    names, found = list(runs.hyperparameters), dict[str, list[Optimum]]()
    swept = [name for name in names if _most_values(frame, name) >= LEAST_VALUES]
    if not swept:
        _refuse_unswept(runs, frame)
    for name in swept:
        names.remove(name)
        found[name], frame = _profile(frame, name, given=names)
    if not any(found.values()):
        _refuse_scattered(runs, swept[0])
    return {name: optima for name, optima in found.items() if optima}


def optima_by_value(runs: SweptRuns, column: str) -> list[tuple[str, Optimum]]:
    """Return the optima of the first hyperparameter among the runs of each value of another column, with the value."""
    first, *given = runs.hyperparameters
    labels = runs.others[column].astype(str)
    return [(label, each) for label, rows in runs.frame.groupby(labels) for each in _profile(rows, first, given=given)[0]]


def require_one_kind(runs: SweptRuns) -> None:
    """Raise `RunTableError` if another column than the hyperparameters sets runs apart, by their losses or their optima."""
    require_equal_losses(runs)
    first, *others = runs.hyperparameters
    for name in other_settings(runs):
        if (shift := _shift_of_optima(runs, name, ["size", "tokens", *others])) is not None:
            ratio = f"{math.exp(shift.shift):.2g}"
            refuse_kinds(runs, shift, f"the best {first} of {quoted(shift.high)!r} is {ratio} times that of")


def _shift_of_optima(runs: SweptRuns, name: str, given: Sequence[str]) -> GroupShift | None:
    """Return the difference between the optima of a column's values, of a fifth or more; None if there is none."""
    import pandas as pd

    if not 1 < runs.others[name].nunique() <= _MOST_KINDS:
        return None
    inside = [(label, each) for label, each in optima_by_value(runs, name) if not each.border]
    counts = Counter(label for label, _ in inside)
    found = [(label, each) for label, each in inside if counts[label] >= LEAST_CELLS]
    if len(found) < 2 * LEAST_CELLS:
        return None
    heights = np.array([each.log_value for _, each in found])
    coordinates = [np.log([each.at(term) for _, each in found]) for term in given]
    varied = [each for each in coordinates if np.ptp(each) > 0]
    labels = pd.DataFrame({name: [label for label, _ in found]})
    shifts = shifted_groups(labels, height=heights, coordinates=varied, least=math.log(_SHIFTED))
    return shifts[0] if shifts else None


def _refuse_scattered(runs: SweptRuns, name: str) -> NoReturn:
    equal = ["size", "tokens", *(each for each in runs.hyperparameters if each != name)]
    most = int(runs.frame.groupby(equal)[name].nunique().max())
    listed = ", ".join(runs.size if each == "size" else each for each in equal)
    raise FitRefused(
        f"{runs.source}: at equal {listed}, runs have at most {most} values of {name}; an optimum needs {LEAST_VALUES}.",
        why="An optimum is that of one hyperparameter at fixed values of the others.",
        fix=f"Sweep {name} at fixed {listed}, or leave out a column that changes with it.",
    )


def given_optima(runs: SweptRuns) -> dict[str, list[Optimum]]:
    """Return the optima that a table states, one in each row, of its first hyperparameter."""
    name, *others = runs.hyperparameters
    repeated = int(runs.frame.groupby(["size", "tokens", *others]).size().max())
    if repeated > 1:
        raise FitRefused(
            f"{runs.source}: up to {repeated} of {len(runs.frame)} rows have one {', '.join([runs.size, 'tokens', *others])}.",
            why="An optimum is one value for each cell.",
            fix="Leave out --optima if the rows are runs; else keep the best row of each cell.",
        )
    rows = runs.frame.to_dict("records")
    return {
        name: [
            Optimum(
                size=row["size"],
                tokens=row["tokens"],
                given={other: row[other] for other in others},
                log_value=math.log(row[name]),
                log_sd=0.0,
                curvature=math.nan,
                loss=math.nan,
                runs=1,
                span=(row[name], row[name]),
            )
            for row in rows
        ]
    }


def _most_values(frame: pd.DataFrame, name: str) -> int:
    return int(frame.groupby(["size", "tokens"])[name].nunique().max())


def _refuse_unswept(runs: SweptRuns, frame: pd.DataFrame) -> NoReturn:
    cells = frame.groupby(["size", "tokens"]).ngroups
    counts = ", ".join(f"{_most_values(frame, name)} of {name}" for name in runs.hyperparameters)
    raise FitRefused(
        f"{runs.source}: {len(frame)} runs in {cells} cells of one {runs.size} and number of tokens; the most values in a cell "
        f"are {counts}, and an optimum needs {LEAST_VALUES}.",
        fix="Sweep a hyperparameter in each cell; or if each row is the optimum of its cell already: --optima",
    )


def _profile(frame: pd.DataFrame, name: str, *, given: Sequence[str]) -> tuple[list[Optimum], pd.DataFrame]:
    """Return the optimum for each cell and values of the other hyperparameters, and a table with the loss at each."""
    import pandas as pd

    keys = ["size", "tokens", *given]
    slices = [
        ({key: float(rows[key].iloc[0]) for key in keys}, rows.groupby(name)["loss"].mean()) for _, rows in frame.groupby(keys)
    ]
    fitted = [(point, losses, _Parabola.through(losses)) for point, losses in slices if len(losses) >= LEAST_VALUES]
    usable = [each for _, _, each in fitted if each.curvature > 0]
    freedom = sum(each.freedom for each in usable)
    variance = (sum(each.squares for each in usable) + _NOISE_FREEDOM * _USUAL_NOISE**2) / (freedom + _NOISE_FREEDOM)
    optima = [parabola.optimum(point, losses, variance=variance) for point, losses, parabola in fitted]
    reduced = [{"size": o.size, "tokens": o.tokens, **o.given, "loss": o.loss} for o in optima if not o.border]
    return optima, pd.DataFrame(reduced, columns=[*keys, "loss"])


@dataclass(frozen=True, kw_only=True)
class _Parabola:
    """Parabola through log losses at the logarithms of values.

    Weights stand for the errors of runs: noise, and the distance of the loss from a parabola, in proportion to its excess.
    """

    origin: float
    coefficients: Array
    covariance: Array
    squares: float
    freedom: int

    @classmethod
    def through(cls, losses: pd.Series[float]) -> _Parabola:
        """Fit the parabola; the index of `losses` holds the values."""
        x, y = np.log(losses.index.to_numpy(dtype=np.float64)), np.log(losses.to_numpy())
        origin = float(x[np.argmin(y)])
        weights = 1 / (1 + (np.expm1(y - y.min()) / _WINDOW) ** 2)
        design = np.stack([np.ones(len(x)), x - origin, (x - origin) ** 2], axis=1)
        covariance = np.linalg.pinv(design.T @ (design * weights[:, None]))
        found = covariance @ (design.T @ (weights * y))
        squares = float(weights @ (y - design @ found) ** 2)
        return cls(origin=origin, coefficients=found, covariance=covariance, squares=squares, freedom=len(x) - 3)

    @property
    def curvature(self) -> float:
        """Second derivative; not positive if the runs show no minimum."""
        return float(2 * self.coefficients[2])

    def optimum(self, point: Mapping[str, float], losses: pd.Series[float], *, variance: float) -> Optimum:
        """Return the minimum; the best value at the border if the minimum lies beyond the values."""
        low, high = float(losses.index.min()), float(losses.index.max())
        level, slope, bend = self.coefficients.tolist()
        place = self.origin - slope / (2 * bend) if bend > 0 else (-math.inf if slope > 0 else math.inf)
        border = "lowest" if place < math.log(low) else "highest" if place > math.log(high) else ""
        gradient = np.array([0.0, -1 / (2 * bend), slope / (2 * bend**2)]) if bend else np.zeros(3)
        others = {name: value for name, value in point.items() if name not in ("size", "tokens")}
        return Optimum(
            size=point["size"],
            tokens=point["tokens"],
            given=others,
            log_value=math.log({"lowest": low, "highest": high}[border]) if border else place,
            log_sd=math.sqrt(variance * float(gradient @ self.covariance @ gradient)),
            curvature=self.curvature,
            loss=float(losses.min()) if border else math.exp(level - slope**2 / (4 * bend)),
            runs=len(losses),
            span=(low, high),
            border=border,
        )


def fit_tuning_law(name: str, optima: Sequence[Optimum], *, seed: int = 0) -> TuningLaw:
    """Fit the law of a hyperparameter's optimum; an optimum at a border counts as one beyond it.

    `FitRefused` if fewer than three cells have an optimum inside of the swept values.

    >>> cells = [(5e7, 1e9), (5e7, 4e9), (2e8, 1e9), (2e8, 4e9)]
    >>> optima = [
    ...     Optimum(size=n, tokens=d, given={}, log_value=math.log(0.01 * (n / 1e8) ** -0.3 * (d / 2e9) ** -0.2), log_sd=0.01,
    ...             curvature=0.05, loss=3.0, runs=5, span=(1e-3, 1e-1))
    ...     for n, d in cells
    ... ]
    >>> {term: round(found[0], 2) for term, found in fit_tuning_law("learning_rate", optima).exponents.items()}
    {'size': -0.3, 'tokens': -0.2}
    """
    inside = [each for each in optima if not each.border]
    if len(inside) < LEAST_CELLS:
        _refuse_few(name, optima, inside)
    terms = tuple(term for term in PRIORS[name] if term in ("size", "tokens") or _varies(optima, term))
    centres = np.array([np.mean([math.log(each.at(term)) for each in optima]) for term in terms])
    bare = TuningLaw(
        name=name,
        terms=terms,
        centres=centres,
        draws=np.empty(0),
        scatter=np.empty(0),
        curvature=None,
        optima=tuple(optima),
        from_prior=(),
        spans={term: _span([each.at(term) for each in optima]) for term in terms},
    )
    features = np.stack([bare._features({term: each.at(term) for term in terms}) for each in optima])
    draws, scatter = _posterior(name, terms, features, optima, generator=np.random.default_rng([seed, 2]))
    prior_sds = np.array([PRIORS[name][term][1] for term in terms])
    unknown = draws[:, 1:].std(axis=0) > _FROM_PRIOR * prior_sds
    return replace(
        bare,
        draws=draws,
        scatter=scatter,
        curvature=_curvature_law(features, optima),
        from_prior=tuple(term for term, is_unknown in zip(terms, unknown, strict=True) if is_unknown),
    )


def _refuse_few(name: str, optima: Sequence[Optimum], inside: Sequence[Optimum]) -> NoReturn:
    if len(optima) < LEAST_CELLS:
        cells = len({(each.size, each.tokens) for each in optima})
        raise FitRefused(
            f"{len(optima)} optima of {name} in {cells} cells of one size and number of tokens; a law needs {LEAST_CELLS}.",
            fix=f"Sweep {name} at more sizes or numbers of tokens.",
        )
    beyond = {side: [each.value for each in optima if each.border == side] for side in ("lowest", "highest")}
    advice = [
        f"{word} {format_number(find(values), 3)}"
        for word, find, values in (("below", min, beyond["lowest"]), ("above", max, beyond["highest"]))
        if values
    ]
    raise FitRefused(
        f"{len(inside)} of {len(optima)} optima of {name} lie inside of the swept values; a law needs {LEAST_CELLS}.",
        why=f"{len(beyond['lowest'])} lie below the lowest value and {len(beyond['highest'])} above the highest"
        + ("; losses without a minimum count as either." if beyond["lowest"] and beyond["highest"] else "."),
        fix=f"Sweep {name} {' and '.join(advice)}." if advice else f"Sweep {name} at more sizes or numbers of tokens.",
    )


def _varies(optima: Sequence[Optimum], term: str) -> bool:
    values = [each.given[term] for each in optima if term in each.given]
    return len(values) == len(optima) and max(values) / min(values) > 1 + NEARNESS["params"]


def _span(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)


def _posterior(
    name: str, terms: Sequence[str], features: Array, optima: Sequence[Optimum], *, generator: np.random.Generator
) -> tuple[Array, Array]:
    """Return draws of the coefficients, (draw, 1 + term), and of the scatter, (draw,)."""
    logs, variances = np.array([each.log_value for each in optima]), np.array([each.log_sd for each in optima]) ** 2
    mean = np.array([logs.mean(), *(PRIORS[name][term][0] for term in terms)])
    prior = _Linear(features, mean, np.diag([1e-4, *(PRIORS[name][term][1] ** -2 for term in terms)]), variances)
    sides = np.array([{"": 0, "lowest": -1, "highest": 1}[each.border] for each in optima])
    return prior.by_gibbs(logs, sides, generator) if sides.any() else prior.on_grid(logs, generator)


@dataclass(frozen=True)
class _Linear:
    """Linear model of logarithms with known variances, (optimum,), a common scatter, and a normal prior of coefficients."""

    features: Array
    mean: Array
    precision: Array
    variances: Array

    def given(self, scatter: float, logs: Array) -> tuple[Array, Array, Array]:
        """Return the weights, the coefficients' mean, and the root of their precision, given the scatter."""
        weights = 1 / (scatter**2 + self.variances)
        root = np.linalg.cholesky(self.precision + self.features.T @ (self.features * weights[:, None]))
        whole = self.precision @ self.mean + self.features.T @ (weights * logs)
        return weights, np.asarray(np.linalg.solve(root.T, np.linalg.solve(root, whole))), np.asarray(root)

    def on_grid(self, logs: Array, generator: np.random.Generator) -> tuple[Array, Array]:
        """Draw the scatter from its marginal distribution on a grid, then the coefficients."""
        solved = [self.given(scatter, logs) for scatter in _SCATTERS.tolist()]
        heights = np.array([self._marginal(logs, *each) for each in solved]) + _log_prior(_SCATTERS)
        chances = np.exp(heights - heights.max())
        chosen = generator.choice(len(_SCATTERS), size=DRAWS, p=chances / chances.sum())
        deviates = generator.standard_normal((DRAWS, len(self.mean)))
        draws = np.empty_like(deviates)
        for place in np.unique(chosen):
            _, middle, root = solved[place]
            draws[chosen == place] = middle + np.linalg.solve(root.T, deviates[chosen == place].T).T
        return draws, _SCATTERS[chosen]

    def _marginal(self, logs: Array, weights: Array, middle: Array, root: Array) -> float:
        """Return the log marginal likelihood of a scatter, up to a constant."""
        left, off = logs - self.features @ middle, middle - self.mean
        squares = float(weights @ left**2) + float(off @ self.precision @ off)
        return 0.5 * float(np.log(weights).sum()) - float(np.log(np.diag(root)).sum()) - 0.5 * squares

    def by_gibbs(self, logs: Array, sides: Array, generator: np.random.Generator) -> tuple[Array, Array]:
        """Draw in turns the optima that lie beyond a border (`sides` -1 or 1), the scatter and the coefficients."""
        scatter, latent, kept = _USUAL_SCATTER / 2, logs, list[tuple[Array, float]]()
        for _ in range(_BURN_IN + DRAWS):
            weights, middle, root = self.given(scatter, latent)
            found = middle + np.linalg.solve(root.T, generator.standard_normal(len(middle)))
            law = self.features @ found
            latent = _beyond_borders(logs, law, np.sqrt(1 / weights), sides, generator)
            scatter = _draw_scatter((latent - law) ** 2, self.variances, generator)
            kept.append((found, scatter))
        del kept[:_BURN_IN]
        return np.stack([each for each, _ in kept]), np.array([each for _, each in kept])


def _log_prior(scatters: Array) -> Array:
    """Return the log of a half-normal density times the spacing of a logarithmic grid, up to a constant."""
    return np.asarray(np.log(scatters) - 0.5 * (scatters / _USUAL_SCATTER) ** 2)


def _beyond_borders(logs: Array, law: Array, sds: Array, sides: Array, generator: np.random.Generator) -> Array:
    """Return the logarithms with those at a border replaced by draws from beyond it: (optimum,)."""
    outside = sides != 0
    distance = ndtr(-sides * (logs - law) / sds)  # probability beyond the border
    drawn = law - sides * sds * ndtri(np.clip(generator.uniform(size=len(logs)) * distance, 1e-300, 1.0))
    return np.asarray(np.where(outside, drawn, logs))


def _draw_scatter(squares: Array, variances: Array, generator: np.random.Generator) -> float:
    """Return a scatter from its distribution on a grid, given squared distances from the law: (optimum,)."""
    whole = _SCATTERS[:, None] ** 2 + variances
    logs = _log_prior(_SCATTERS) - 0.5 * (np.log(whole) + squares / whole).sum(axis=1)
    chances = np.cumsum(np.exp(logs - logs.max()))
    return float(_SCATTERS[np.searchsorted(chances, generator.uniform() * chances[-1])])


def _curvature_law(features: Array, optima: Sequence[Optimum]) -> Array | None:
    """Return coefficients of the logarithm of the curvature in the law's terms, drawn to no dependence where few cells tell."""
    inside = [row for row, each in enumerate(optima) if not each.border and each.curvature > 0]
    if not inside:
        return None
    logs, design = np.log([optima[row].curvature for row in inside]), features[inside]
    ridge = np.diag([0.0, *np.ones(features.shape[1] - 1)])
    return np.asarray(np.linalg.lstsq(design.T @ design + ridge, design.T @ logs, rcond=None)[0])


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """Prediction of a cell from the smaller ones: the law's median, the cell's own optimum, and the relative loss it costs.

    `is_beyond` is True if the prediction lies outside of the cell's swept values, where its parabola is extrapolated.
    `squared_error` is that of the logarithm, over the expected one.
    """

    optimum: Optimum
    predicted: float
    cost: float
    is_beyond: bool
    squared_error: float


def transfer_check(name: str, optima: Sequence[Optimum], *, seed: int = 0) -> list[Transfer]:
    """Predict the optima of each cell with a minimum from the law of all cells that cost less, in the order of cost.

    The list is empty if no law can be fitted without the largest cell.
    """
    return list(_transfers(name, sorted(optima, key=lambda each: each.compute), seed=seed))


_SAME_COST = 1.01
_LEAST_TO_PREDICT = 4


def _transfers(name: str, ordered: Sequence[Optimum], *, seed: int) -> Iterator[Transfer]:
    law: TuningLaw | None = None
    known = 0
    for each in ordered:
        smaller = [other for other in ordered if other.compute * _SAME_COST < each.compute]
        if sum(not other.border for other in smaller) < _LEAST_TO_PREDICT or each.border:
            continue
        if law is None or len(smaller) != known:
            law, known = fit_tuning_law(name, smaller, seed=seed), len(smaller)
        draws = law.at({term: each.at(term) for term in law.terms})
        predicted = float(np.median(draws))
        expected = float(draws.var() + np.mean(law.scatter**2)) + each.log_sd**2
        yield Transfer(
            optimum=each,
            predicted=math.exp(predicted),
            cost=each.excess(predicted),
            is_beyond=not each.span[0] <= math.exp(predicted) <= each.span[1],
            squared_error=(predicted - each.log_value) ** 2 / expected,
        )


def fails(found: Sequence[Transfer]) -> bool:
    """Return True if the largest cell, or more than a fifth of all, lose more than `TOO_COSTLY`."""
    many = sum(each.cost > TOO_COSTLY for each in found) > _FAILING * len(found)
    return many or cost_at_largest(found) > TOO_COSTLY


def error_inflation(found: Sequence[Transfer]) -> float:
    """Return the factor by which squared errors of predicted cells exceed the expected ones, drawn to 1 where few tell."""
    return max(1.0, (sum(each.squared_error for each in found) + _PRIOR_CELLS) / (len(found) + _PRIOR_CELLS))


def cost_at_largest(found: Sequence[Transfer]) -> float:
    """Return the cost at the largest cell: at the best of its values of other hyperparameters."""
    last = found[-1].optimum
    same = [each for each in found if (each.optimum.size, each.optimum.tokens) == (last.size, last.tokens)]
    return min(same, key=lambda each: each.optimum.loss).cost if not math.isnan(last.loss) else 0.0
