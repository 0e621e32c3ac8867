"""The `Law` protocol, `LAWS` (every law that `fit` and `--law` know), and refusals of tables that determine none.

A new law is one module with a function `fit(table, *, kind, seed, prior) -> FitResult`, and an entry in `LAWS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from marin_scaling.errors import FitRefused, Severity, UsageError
from marin_scaling.units import counted, format_flops

if TYPE_CHECKING:
    import pandas as pd

    from marin_scaling.fitting.coupled_law import Prior
    from marin_scaling.laws import Array
    from marin_scaling.run.table import RunTable


@dataclass(frozen=True, kw_only=True)
class Targets:
    """Runs to forecast: arrays (target,). `params` are active parameters; `total_params` is None for dense models."""

    flops: Array
    params: Array
    tokens: Array
    total_params: Array | None = None


@dataclass(frozen=True, kw_only=True)
class LossDraws:
    """Losses of a new run, (draw, target), and by source of uncertainty each draw's contribution to the median, in loss.

    `by_law` are the medians of the laws that are averaged, (target,) each; empty for one law.
    """

    losses: Array
    causes: dict[str, Array]
    by_law: dict[str, Array] = field(default_factory=dict)


class Law(Protocol):
    """A law fitted to a run table. A class that names `Law` as its base inherits the defaults."""

    name: str
    """Name of the law, as in `--law`."""
    formula: str
    """Right side of "loss = ...", with the names of `parameters`; definitions of its other names follow, after "; " each."""
    knows_any_size: bool = True
    """False if only compute-optimal runs can be forecast."""
    is_calibrated: bool = False
    """True if back-tests over public ladders calibrated the interval, with all four sources of uncertainty."""

    @property
    def parameters(self) -> Mapping[str, float]:
        """Estimate of each parameter."""
        ...

    @property
    def prior(self) -> Prior | None:
        """Prior of the parameters, None for a law without one."""
        return None

    def draws(self, targets: Targets, *, seed: int) -> LossDraws:
        """Draw losses of new runs at the targets; equal seeds give equal numbers."""
        ...

    def formula_losses(self, targets: Targets) -> Array | None:  # noqa: ARG002
        """Return the formula's value at the `parameters`: (target,); None if unknown."""
        return None

    def parameter_draws(self) -> Mapping[str, Array]:
        """Return draws of each parameter with an interval: (draw,)."""
        return {}

    def intervals(self) -> dict[str, tuple[float, float]]:
        """Return the central 90 % interval of each parameter that has one."""
        import numpy as np

        ends = {name: np.quantile(draws, (0.05, 0.95)) for name, draws in self.parameter_draws().items()}
        return {name: (float(low), float(high)) for name, (low, high) in ends.items()}

    def log_losses(self, *, params: Array, tokens: Array) -> Array | None:  # noqa: ARG002
        """Return log losses of drawn laws at active `params` and `tokens` (target,): (draw, target); None for a frontier."""
        return None

    def joint_covariance(self, targets: Targets) -> Array | None:  # noqa: ARG002
        """Return the covariance of the targets' log losses without their noise: (target, target); None if unknown."""
        return None

    @property
    def noise_variance(self) -> float:
        """Variance of one run's log loss at the largest budget."""
        return math.nan

    @property
    def fall_per_decade(self) -> float:
        """Fall of the log loss in a decade of compute among the larger runs, the unit of the drift."""
        return math.nan

    def variants(self) -> Iterator[tuple[str, Law]]:
        """Yield refits of the same law under other choices, with a name each, for the sensitivity table."""
        return iter(())

    def report(self) -> str:
        """Return the report of the library that made the fit, or ""."""
        return ""

    def summary(self) -> pd.DataFrame:
        """Return a table with a row per parameter: `estimate`, and the 90 % interval `q05`, `q95`, NaN if there is none."""
        import pandas as pd

        unknown, ends = (math.nan, math.nan), self.intervals()
        rows = {name: (value, *ends.get(name, unknown)) for name, value in self.parameters.items()}
        return pd.DataFrame.from_dict(rows, orient="index", columns=["estimate", "q05", "q95"]).rename_axis("parameter")


@dataclass(frozen=True, kw_only=True)
class LawKind:
    """A law before it is fitted.

    `fit` is a function `(table, *, kind, seed, prior) -> FitResult`, or "module:function", which is imported on first use.
    `argument` is an example of the number after "@" in the name, "" for a law without a number.
    """

    name: str
    about: str
    fit: str | Callable[..., Any]
    knows_any_size: bool = True
    argument: str = ""

    def __call__(self, table: Any, *, seed: int, prior: Prior | None) -> Any:
        """Fit a run table; return a `FitResult`. `FitRefused` for runs that determine no law."""
        from threadpoolctl import threadpool_limits

        refuse_hopeless(table)
        fit = self.fit
        if isinstance(fit, str):
            module, _, function = fit.partition(":")
            fit = getattr(import_module(module), function)
        with threadpool_limits(1, "blas"):  # a fit's matrices are small: further threads only wait
            return fit(table, kind=self, seed=seed, prior=prior)

    @property
    def number(self) -> float:
        """Number after the "@" in the name."""
        return float(self.name.partition("@")[2])


DEFAULT_LAW = "combined"
_ALL_RUNS = "marin_scaling.fitting.combined_law:fit_coupled_runs"
_FRONTIER = "marin_scaling.fitting.frontier:fit_frontier_runs"
LAWS: dict[str, LawKind] = {
    kind.name: kind
    for kind in (
        LawKind(name=DEFAULT_LAW, about="weighted mean of the next two, with a calibrated interval: any table", fit=_ALL_RUNS),
        LawKind(name="coupled-surface", about="one surface through all runs", fit=_ALL_RUNS),
        LawKind(name="all-runs-frontier", about="a frontier through all runs, moved to their optimum", fit=_ALL_RUNS),
        LawKind(name="isoflop-frontier", about="the bottom of each budget's bowl", fit=_FRONTIER, knows_any_size=False),
        LawKind(name="best-runs-frontier", about="the runs no cheaper run beats", fit=_FRONTIER, knows_any_size=False),
        LawKind(
            name="pinned-frontier",
            about="with an asymptote of your choice",
            fit=_FRONTIER,
            knows_any_size=False,
            argument="1.6",
        ),
        LawKind(
            name="additive-surface",
            about="Hoffmann et al. 2022, with a bootstrap",
            fit="marin_scaling.fitting.surface_law:fit_surface_runs",
        ),
    )
}


def law_names() -> list[str]:
    """Return the names of all laws for `--law`, with an example where a law takes a number."""
    return [f"{name}@{kind.argument}" if kind.argument else name for name, kind in LAWS.items()]


def law_help() -> str:
    """Return the help of `--law`: every law with a description."""
    return "; ".join(f"{shown}: {kind.about}" for shown, kind in zip(law_names(), LAWS.values(), strict=True))


def find_law(name: str) -> LawKind:
    """Return the law of this name, or raise `UsageError` with the known names.

    >>> find_law("pinned-frontier@1.6").number
    1.6
    """
    base, at, number = name.partition("@")
    kind = LAWS.get(base)
    if kind is None or (at and not kind.argument):
        raise UsageError(
            f"Unknown law {name!r}.",
            fix=f"Choose: {', '.join(law_names())}. A Python file's law is --law path.py:name.",
        )
    if kind.argument and not _is_asymptote(number):
        raise UsageError(
            f"{name!r} lacks the value of the pinned asymptote.",
            fix=f"Write it like --law {base}@{kind.argument}, or leave it free: --law isoflop-frontier",
        )
    return replace(kind, name=name)


def _is_asymptote(text: str) -> bool:
    try:
        value = float(text)
    except ValueError:
        return False
    return "_" not in text and math.isfinite(value) and value >= 0  # Python reads 1_6 as 16


FRONTIER_UNKNOWNS = 3
"""Number of unknowns of a frontier law: E, A and gamma."""
_MORE_RUNS = "Add runs at other budgets: at least four budgets, a factor of two or more apart, four sizes at each."
_KEEP = "Keep the runs that finished (--keep RUN for each), or correct the cells that the reasons name."


def refuse_hopeless(table: RunTable) -> None:
    """Raise `FitRefused` for runs that determine no law."""
    from marin_scaling.run.table import BUDGET_SPAN

    frame = table.frame
    if len(frame) <= FRONTIER_UNKNOWNS:
        refuse(
            f"{table.source} has {counted(len(frame), 'usable run')}; a fit needs at least {FRONTIER_UNKNOWNS + 1}."
            f"{left_out(table)}",
            why="So few runs do not determine how the loss falls.",
            fix=f"{_KEEP} {_MORE_RUNS}" if len(table.excluded) > len(frame) else _MORE_RUNS,
        )
    if frame["flops"].max() < BUDGET_SPAN * frame["flops"].min():
        refuse(
            f"{table.source}: all {len(frame)} runs cost about {format_flops(frame['flops'].max())} FLOPs.",
            why="A single budget cannot show how loss falls with compute.",
        )
    if frame["loss"].nunique() == 1:
        refuse(
            f"{table.source}: all {len(frame)} runs have the same loss, {frame['loss'].iloc[0]:g}.",
            why="A constant loss cannot be extrapolated.",
            fix="Check the column that was read as the loss: --column loss=NAME",
        )


def refuse_contradictions(table: RunTable) -> None:
    """Raise `FitRefused` with every error that the audit of the table found."""
    errors = [each for each in table.findings if each.severity is Severity.ERROR]
    if errors:
        codes = " ".join(f"--allow {code}" for code in dict.fromkeys(each.code for each in errors))
        refuse(
            tuple(f"{table.source}: {each.message}" for each in errors),
            why="One law goes through runs of one kind whose numbers are counted alike.",
            fix=f"Follow the advice above, or take all runs as they are: {codes}",
        )


def left_out(table: RunTable) -> str:
    """Return a sentence with the first three runs that were left out, for a refusal."""
    named = "; ".join(f"{each.run}: {each.why}" for each in table.excluded[:3])
    more = f"; and {len(table.excluded) - 3} more" if len(table.excluded) > 3 else ""
    return f" Left out were {named}{more}." if table.excluded else ""


def refuse(
    what: str | tuple[str, ...],
    *,
    why: str = "With as many unknowns as numbers, any law would fit.",
    fix: str = _MORE_RUNS,
) -> NoReturn:
    """Raise `FitRefused` for a table that is too small."""
    raise FitRefused(what, why=why, fix=fix)
