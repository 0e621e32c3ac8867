"""Tuned hyperparameters in Python and as text: optima of cells, laws, a check of their transfer, and tuned targets."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from marin_scaling import __version__
from marin_scaling.errors import Finding, StorageError, UsageError, warning
from marin_scaling.files import replace_file
from marin_scaling.fitting.tuning import (
    LEAST_VALUES,
    PRIORS,
    TOO_COSTLY,
    Optimum,
    Transfer,
    TuningLaw,
    cost_at_largest,
    error_inflation,
    fails,
    fit_tuning_law,
    given_optima,
    optima_by_hyperparameter,
    require_one_kind,
    transfer_check,
)
from marin_scaling.laws import Array
from marin_scaling.printable import joined, quoted, wrapped
from marin_scaling.recipe.find import find_recipe
from marin_scaling.recipe.model_shape import RateLaw
from marin_scaling.run.columns import spelled
from marin_scaling.run.table_io import number_in
from marin_scaling.run.tuning_runs import (
    HYPERPARAMETERS,
    SweepChoices,
    SweptRuns,
    read_swept_runs,
    texts_by_cell,
    without_failed,
)
from marin_scaling.units import counted, format_count, format_number

if TYPE_CHECKING:
    import pandas as pd

NEAR_OPTIMAL = 0.001
"""Relative loss that a good prediction costs at most: the noise of a run's seed is about 0.05 %."""

_BEYOND = 1.25
"""Ratio to the swept range from which on a target lies beyond it."""
_FAR_BEYOND, _FARTHEST = 10.0, 1e4
_NINETY_PERCENT = 1.645
"""Standard deviations from the middle to the end of a 90 % interval."""
_LISTED = 40
_MOST_SEQUENCES = 65_536
_EXCLUDED_NAMED = 6


class TuningStatus(Enum):
    """Status of laws of hyperparameters, the worst first; the value is the sentence for the reader."""

    DOES_NOT_TRANSFER = (
        "Use with care: predicted from the smaller cells, the largest cell or more than a fifth of all cells lose over 0.3 % "
        "of the loss, and a larger one may lose as much."
    )
    COSTLY = "Use with care: the target's hyperparameters are expected to cost more than 0.3 % of its loss."
    FAR_BEYOND = "Use with care: the target lies more than ten times beyond the swept sizes, tokens or batch sizes."
    NOT_DETERMINED = "Use with care: the runs do not determine every exponent; the usual values with them decide the rest."
    MAY_MIX = "Use with care: a column of texts changes from cell to cell, so that the law may mix kinds of runs."
    THREE_VALUES = "Use with care: most optima rest on three values, which a parabola fits whatever the shape of the loss."
    NOT_CHECKED = "Use with care: too few cells to leave out the largest and predict it from the others."
    NO_LOSSES = "Use with care: a table of optima has no losses, so the cost of a wrong prediction is unknown."
    USABLE = (
        "Usable: predicted from the smaller cells, the largest and four fifths of all cells lose at most 0.3 % of the loss."
    )


@dataclass(frozen=True, kw_only=True)
class TunedValue:
    """Predicted optimum of one hyperparameter: `interval` is the 90 % interval of a new cell's own optimum.

    `cost` is the expected relative loss above that optimum, and `cost_95` the cost that 95 % of cells stay below; None for a
    table of optima, which has no losses. `is_given` is True for a value of the target, whose cost is that of keeping it.
    """

    name: str
    value: float
    interval: tuple[float, float]
    cost: float | None
    cost_95: float | None
    is_given: bool = False


@dataclass(frozen=True, kw_only=True, repr=False)
class TunedTarget:
    """Predicted hyperparameters of a run, in the order in which they are chosen, and warnings about it."""

    point: Mapping[str, float]
    values: tuple[TunedValue, ...]
    findings: tuple[Finding, ...]
    is_far: bool

    def __getitem__(self, name: str) -> TunedValue:
        """Return the value of one hyperparameter; `UsageError` for another name."""
        found = {each.name: each for each in self.values}
        if name not in found:
            raise UsageError(f"No law of {quoted(name)!r}.", fix=f"Choose {' or '.join(found)}.")
        return found[name]

    def __repr__(self) -> str:
        return _target_text(self)

    @property
    def cost(self) -> float | None:
        """Expected relative loss above the best hyperparameters, all together; None if it is unknown."""
        costs = [each.cost for each in self.values if each.cost is not None]
        return sum(costs) if costs else None


@dataclass(frozen=True, kw_only=True, repr=False)
class Tuning:
    """Optima of a sweep's cells, the laws of them, and the check of their transfer, by name of the hyperparameter."""

    runs: SweptRuns
    optima: Mapping[str, Sequence[Optimum]]
    laws: Mapping[str, TuningLaw]
    transfers: Mapping[str, Sequence[Transfer]]
    seed: int

    @property
    def frame(self) -> pd.DataFrame:
        """One row per optimum, with what the smaller cells predict for it and the relative loss that costs."""
        import pandas as pd

        return pd.DataFrame([_row(self, name, each) for name, optima in self.optima.items() for each in optima])

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Columns that may hold kinds of runs."""
        return tuple(texts_by_cell(self.runs))

    @property
    def status(self) -> TuningStatus:
        """The worst of what was found, targets aside."""
        return self._status(())

    def _status(self, targets: Sequence[TunedTarget]) -> TuningStatus:
        applies = {
            TuningStatus.DOES_NOT_TRANSFER: any(fails(found) for found in self.transfers.values() if found),
            TuningStatus.COSTLY: any((each.cost or 0.0) > TOO_COSTLY for each in targets),
            TuningStatus.FAR_BEYOND: any(each.is_far for each in targets),
            TuningStatus.NOT_DETERMINED: any(law.from_prior for law in self.laws.values()),
            TuningStatus.MAY_MIX: bool(self.warnings),
            TuningStatus.THREE_VALUES: any(map(_rest_on_three, self.optima.values())) and bool(self.runs.metric),
            TuningStatus.NOT_CHECKED: not all(self.transfers.values()),
            TuningStatus.NO_LOSSES: not self.runs.metric,
            TuningStatus.USABLE: True,
        }
        return next(status for status in TuningStatus if applies[status])

    def predict(self, **point: float | str) -> TunedTarget:
        """Return the tuned hyperparameters of a run by its size (`width`, `active_params` or `params`), tokens and others.

        A hyperparameter with a law of its own may be given, such as a batch size; its cost is then that of keeping it.
        `UsageError` for an unknown or missing name.
        """
        numbers = _numbers(point)
        target = self._point(numbers)
        values = list[TunedValue]()
        for name in reversed([name for name in HYPERPARAMETERS if name in self.laws]):
            found = self._value(name, target)
            values.append(found)
            target[name] = found.value
        findings = tuple(self._beyond(target))
        ratios = [_ratio_beyond(target[term], span) for law in self.laws.values() for term, span in law.spans.items()]
        order = (self.runs.size, "tokens", *HYPERPARAMETERS)
        named = {name: numbers[name] for name in order if name in numbers}
        far = max(ratios, default=1.0) > _FAR_BEYOND
        return TunedTarget(point=named, values=tuple(values), findings=findings, is_far=far)

    def _point(self, point: Mapping[str, float]) -> dict[str, float]:
        terms = {term for law in self.laws.values() for term in law.terms} - {"size"}
        needed = {self.runs.size, *terms} - self.laws.keys()
        faults = [self._unknown(name) for name in point if name not in needed | self.laws.keys()]
        missing = sorted(needed - point.keys())
        faults += [f"The target has no {name}." for name in missing]
        faults += [f"{name} is not a positive number." for name, number in point.items() if not 0 < number < math.inf]
        if faults:
            raise UsageError(tuple(faults), fix=f"Give {', '.join([self.runs.size, *sorted(needed - {self.runs.size})])}.")
        found = {("size" if name == self.runs.size else name): number for name, number in point.items()}
        for term, span in {term: span for law in self.laws.values() for term, span in law.spans.items()}.items():
            if term in found and _ratio_beyond(found[term], span) > _FARTHEST:
                name, (low, high) = _term(self.runs.size, term), (format_number(end, 4) for end in span)
                number = format_number(found[term], 4)
                raise UsageError(
                    f"{name} {number} is over {_FARTHEST:g} times beyond the swept range, {low} to {high}.",
                    fix="Correct the number or its unit.",
                )
        return found

    def _unknown(self, name: str) -> str:
        if name not in self.runs.hyperparameters:
            return f"The laws do not depend on {quoted(name)!r}."
        return f"All runs have {name} {format_number(self.runs.frame[name].iloc[0], 4)}, so that no law depends on it."

    def _value(self, name: str, target: Mapping[str, float]) -> TunedValue:
        law = self.laws[name]
        generator = np.random.default_rng([self.seed, 3])
        cell = law.new_cell(target, generator, inflation=error_inflation(self.transfers[name]))
        chosen = math.log(target[name]) if name in target else float(np.median(law.at(target)))
        excess = law.excess(target, chosen, cell)
        return TunedValue(
            name=name,
            value=math.exp(chosen),
            interval=_interval(np.exp(cell)),
            cost=None if excess is None else float(np.mean(excess)),
            cost_95=None if excess is None else float(np.quantile(excess, 0.95)),
            is_given=name in target,
        )

    def _beyond(self, target: Mapping[str, float]) -> Iterator[Finding]:
        spans = {term: span for law in self.laws.values() for term, span in law.spans.items()}
        for term, span in spans.items():
            if (ratio := _ratio_beyond(target[term], span)) > _BEYOND:
                name = self.runs.size if term == "size" else term
                message = (
                    f"{name} {format_number(target[term], 4)} lies {format_number(ratio, 3)} times beyond the swept range, "
                    f"{format_number(span[0], 4)} to {format_number(span[1], 4)}"
                )
                yield warning("beyond-sweep", "target", message)

    def write_recipe(self, path: Path | str, *, base: str, targets: Sequence[TunedTarget] = ()) -> Path:
        """Write a recipe file: the recipe `base` with this law of the learning rate, its source, its status and all warnings.

        `UsageError` unless the law is of a width, and `base` has constants for it; `StorageError` if the file exists.
        """
        path, found = Path(path), find_recipe(base)
        if path.exists():
            raise StorageError(f"{path} exists.", fix="Give another name, or delete it.")
        if not hasattr(found, "rate_constants"):
            raise UsageError(
                f"The recipe {base!r} has no constants for a law of the learning rate.", fix="Choose another base."
            )
        rate_law = _rate_law(self, seq_len=getattr(found, "seq_len", 1))
        law, constants = self.laws["learning_rate"], found.rate_constants(rate_law)
        (low, high), widths = law.spans["size"], found.widths()
        if low > _FAR_BEYOND * max(widths) or high * _FAR_BEYOND < min(widths):
            raise UsageError(
                f"The law is of widths {low:g} to {high:g}, and the recipe {base!r} has {min(widths)} to {max(widths)}.",
                fix="Choose the recipe that was swept as the base.",
            )
        lines = [
            f"# {_formula(self.runs.size, law)}",
            f"# Fitted to {len(law.optima)} optima of {len(self.runs.frame)} runs in {self.runs.source}, by marin-scale tune "
            f"{__version__}.",
            f"# {self._status(targets).value}",
            *(f"# warning: {each}" for each in self.warnings),
            *(f"# {each.line}" for target in targets for each in target.findings),
            f"name: {path.stem}",
            f"base: {base}",
            "constants:",
            *(f"  {name}: {value!r}" for name, value in constants.items()),
        ]
        replace_file(path, ("\n".join(lines) + "\n").encode())
        return path

    def document(self, targets: Sequence[TunedTarget] = ()) -> dict[str, Any]:
        """Return the document of `marin-scale tune --json`, with finite numbers or null."""
        metric = self.runs.column_mapping["loss"] if self.runs.metric == "loss" else self.runs.metric or None
        return {
            "source": self.runs.source,
            "metric": metric,
            "size": self.runs.size,
            "runs": len(self.runs.frame),
            "column_mapping": dict(self.runs.column_mapping),
            "excluded": [{"run": each.run, "why": each.why} for each in self.runs.excluded],
            "optima": [
                {key: _finite(value) for key, value in _row(self, name, each).items()}
                for name, optima in self.optima.items()
                for each in optima
            ],
            "laws": {name: _law_document(self.runs.size, law) for name, law in self.laws.items()},
            "transfer": {name: _transfer_document(found) for name, found in self.transfers.items() if found},
            "targets": [_target_document(each) for each in targets],
            "warnings": list(self.warnings),
            "status": self._status(targets).value,
            "seed": self.seed,
            "tool": f"marin-scaling {__version__}",
        }

    def text(self, targets: Sequence[TunedTarget] = ()) -> str:
        """Format runs, optima, laws, transfer, targets and status as text."""
        parts = [
            _runs_text(self.runs),
            *(
                f"{_optima_text(self, name)}\n\n{_law_text(self.runs.size, law)}\n{_transfer_text(self, name)}"
                for name, law in self.laws.items()
            ),
            *(_target_text(each) for each in targets),
            "\n".join(
                wrapped(line)
                for line in [*(f"warning: {each}" for each in self.warnings), f"status: {self._status(targets).value}"]
            ),
        ]
        return "\n\n".join(parts)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        laws = ", ".join(f"{name} from {len(law.optima)} optima" for name, law in self.laws.items())
        return f"Tuning({laws} of {self.runs.source}: {self.status.name})"


def tune(runs: pd.DataFrame | Path | str, *, seed: int = 0, **choices: Unpack[SweepChoices]) -> Tuning:
    """Fit laws of optimal hyperparameters, as `marin_scaling.tune` does."""
    swept, are_optima = read_swept_runs(runs, **choices), choices.get("are_optima", False)
    if not are_optima:
        require_one_kind(swept)
        swept = without_failed(swept)
    optima = given_optima(swept) if are_optima else optima_by_hyperparameter(swept)
    laws = {name: fit_tuning_law(name, found, seed=seed) for name, found in optima.items()}
    transfers = {name: transfer_check(name, found, seed=seed) for name, found in optima.items()}
    return Tuning(runs=swept, optima=optima, laws=laws, transfers=transfers, seed=seed)


def _rate_law(tuning: Tuning, *, seq_len: int) -> RateLaw:
    """Return the law of the learning rate in widths, tokens and sequences."""
    law = tuning.laws.get("learning_rate")
    if law is None or tuning.runs.size != "width":
        what = f"a law of {tuning.runs.size}" if law else "no law of a learning rate"
        raise UsageError(
            f"{tuning.runs.source} gives {what}.",
            fix="A recipe needs a law of the learning rate in widths: --size width",
        )
    exponents = {term: found[0] for term, found in law.exponents.items()}
    point = {term: math.exp(centre) for term, centre in zip(law.terms, law.centres.tolist(), strict=True)}
    if "batch_size" in tuning.runs.frame:
        point["batch_size"] = point.get("batch_size", float(tuning.runs.frame["batch_size"].iloc[0]))
        point["batch_size"] /= _tokens_of_one(tuning, seq_len=seq_len)
    return RateLaw(
        rate=law.scale,
        width=point["size"],
        tokens=point["tokens"],
        batch_size=point.get("batch_size"),
        width_exponent=exponents["size"],
        token_exponent=exponents["tokens"],
        batch_exponent=exponents.get("batch_size"),
        is_of_adam=spelled(tuning.runs.column_mapping["learning_rate"]).startswith("adam"),
    )


def _tokens_of_one(tuning: Tuning, *, seq_len: int) -> int:
    """Return what a sequence counts in the table's batch sizes: 1, or its tokens if the column's name says tokens."""
    column = tuning.runs.column_mapping["batch_size"]
    if "token" in spelled(column):
        return seq_len
    if (largest := float(tuning.runs.frame["batch_size"].max())) > _MOST_SEQUENCES:
        raise UsageError(
            f"Batch sizes up to {format_number(largest)} in column {quoted(column)!r}: sequences or tokens?",
            fix="Rename the column to batch_size_tokens, or to sequences with its values.",
        )
    return 1


def _rest_on_three(optima: Sequence[Optimum]) -> bool:
    return 2 * sum(each.runs <= LEAST_VALUES for each in optima) > len(optima)


def _numbers(point: Mapping[str, float | str]) -> dict[str, float]:
    """Return the numbers of a target, also of texts such as "1e11" or "100B"; NaN for anything else."""
    found = {name: number_in(value) for name, value in point.items()}
    return {name: math.nan if number is None else number for name, number in found.items()}


def _ratio_beyond(number: float, span: tuple[float, float]) -> float:
    return max(number / span[1], span[0] / number)


def _interval(draws: Array) -> tuple[float, float]:
    low, high = np.quantile(draws, (0.05, 0.95)).tolist()
    return low, high


def _row(tuning: Tuning, name: str, each: Optimum) -> dict[str, Any]:
    found = next((one for one in tuning.transfers[name] if one.optimum is each), None)
    return {
        "hyperparameter": name,
        tuning.runs.size: each.size,
        "tokens": each.tokens,
        **each.given,
        "runs": each.runs,
        "lowest": each.span[0],
        "highest": each.span[1],
        "optimum": each.value,
        "q05": math.exp(each.log_value - _NINETY_PERCENT * each.log_sd) if not each.border else math.nan,
        "q95": math.exp(each.log_value + _NINETY_PERCENT * each.log_sd) if not each.border else math.nan,
        "border": each.border or None,
        "curvature": each.curvature,
        "loss": each.loss,
        "predicted": found.predicted if found else math.nan,
        "predicted_cost": found.cost if found else math.nan,
    }


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _law_document(size: str, law: TuningLaw) -> dict[str, Any]:
    return {
        "formula": _formula(size, law),
        "scale": law.scale,
        "centres": {_term(size, t): math.exp(c) for t, c in zip(law.terms, law.centres.tolist(), strict=True)},
        "exponents": {
            _term(size, term): {"median": found[0], "interval": [found[1], found[2]]} for term, found in law.exponents.items()
        },
        "not_determined": [_term(size, term) for term in law.from_prior],
        "scatter": float(np.median(law.scatter)),
        "cells": len(law.optima),
        "at_border": sum(bool(each.border) for each in law.optima),
    }


def _transfer_document(found: Sequence[Transfer]) -> dict[str, Any]:
    costs = [each.cost for each in found]
    return {
        "predicted": len(found),
        "within_0.1_percent": sum(cost <= NEAR_OPTIMAL for cost in costs),
        "largest_cell_cost": _finite(cost_at_largest(found)),
        "greatest_cost": _finite(max(costs)),
    }


def _target_document(target: TunedTarget) -> dict[str, Any]:
    return {
        "point": dict(target.point),
        **{
            each.name: {
                "value": each.value,
                "interval": list(each.interval),
                "expected_cost": each.cost,
                "cost_95": each.cost_95,
                "is_given": each.is_given,
            }
            for each in target.values
        },
        "expected_cost": target.cost,
        "findings": [each.line for each in target.findings],
    }


def _term(size: str, term: str) -> str:
    return size if term == "size" else term


def _formula(size: str, law: TuningLaw) -> str:
    factors = [
        f"({_term(size, term)} / {format_number(math.exp(centre), 4)})^{law.exponents[term][0]:.3f}"
        for term, centre in zip(law.terms, law.centres.tolist(), strict=True)
    ]
    return f"{law.name} = {format_number(law.scale, 4)} * {' * '.join(factors)}"


def _runs_text(runs: SweptRuns) -> str:
    cells = runs.frame.groupby(["size", "tokens"]).ngroups
    columns = ", ".join(f"{ours} = {quoted(theirs)}" for ours, theirs in runs.column_mapping.items() if ours != theirs)
    lines = [wrapped(f"{runs.source}: {counted(len(runs.frame), 'run')} in {counted(cells, 'cell')}; size is {runs.size}")]
    lines += [wrapped(f"columns: {columns}", "  ")] if columns else []
    reasons = dict.fromkeys(each.why for each in runs.excluded)
    for why in list(reasons)[:_EXCLUDED_NAMED]:
        names = [each.run for each in runs.excluded if each.why == why]
        lines.append(wrapped(f"left out, because {why}: {counted(len(names), 'run')} ({joined(names, most=3)})", "  "))
    if len(reasons) > _EXCLUDED_NAMED:
        lines.append(f"  and for {len(reasons) - _EXCLUDED_NAMED} more reasons: see --json")
    return "\n".join(lines)


def _optima_text(tuning: Tuning, name: str) -> str:
    optima, size, has_losses = tuning.optima[name], tuning.runs.size, bool(tuning.runs.metric)
    given = [each for each in tuning.laws[name].terms if each not in ("size", "tokens")]
    head = f"{size[:13]:>13} {'tokens':>8}{''.join(f' {each[:12]:>12}' for each in given)}"
    rows = [head + (f" {'swept':>19}" if has_losses else "") + f" {'optimum':>9}" + (f"  {'cost':>7}" if has_losses else "")]
    costs = {id(each.optimum): each.cost for each in tuning.transfers[name]}
    dearest = sorted(optima, key=lambda each: each.compute)[-_LISTED:]
    for each in (each for each in optima if any(each is one for one in dearest)):
        place = f"{_short(each.size):>13} {_short(each.tokens):>8}"
        place += "".join(f" {_short(each.given[term]):>12}" for term in given)
        swept = f" {f'{format_number(each.span[0], 3)} to {format_number(each.span[1], 3)}':>19}" if has_losses else ""
        value = {"": f"{format_number(each.value, 3)}", "lowest": "below", "highest": "above"}[each.border]
        cost = f"  {costs[id(each)]:>7.3%}" if has_losses and id(each) in costs else ""
        rows.append(f"{place}{swept} {value:>9}{cost}")
    more = [f"  and {len(optima) - _LISTED} cheaper ones: see --json"] if len(optima) > _LISTED else []
    meaning = "; cost is the loss above its minimum at what the law of the smaller cells predicts" if has_losses else ""
    return "\n".join([wrapped(f"optimal {name} of each cell{meaning}"), *rows, *more])


def _short(number: float) -> str:
    return format_count(number) if number >= 1e6 else format_number(number, 4)  # as people write them


def _law_text(size: str, law: TuningLaw) -> str:
    lines = [wrapped(_formula(size, law), hang=4), f"  {'exponent of':<14} {'median':>8} {'90 % interval':>18}"]
    for term, (median, low, high) in law.exponents.items():
        prior = "usual value {:g} +- {:g}".format(*PRIORS[law.name][term])
        left = f"  hardly determined; {prior}" if term in law.from_prior else ""
        lines.append(f"  {_term(size, term):<14} {median:>8.3f} {f'[{low:.3f}, {high:.3f}]':>18}{left}")
    border = sum(bool(each.border) for each in law.optima)
    beyond = f"; {border} of {len(law.optima)} optima lie beyond the swept values" if border else ""
    lines.append(
        wrapped(f"optima of cells scatter about the law by {np.median(law.scatter):.1%} (standard deviation){beyond}", "  ")
    )
    return "\n".join(lines)


def _transfer_text(tuning: Tuning, name: str) -> str:
    found = tuning.transfers[name]
    if not found:
        return wrapped("transfer: not checked, because no cell has four smaller ones with an optimum", "  ")
    if math.isnan(found[-1].cost):
        off = float(np.median([abs(math.log(each.predicted / each.optimum.value)) for each in found]))
        return wrapped(f"transfer: the law of the smaller cells is off by {off:.1%} in the median of {len(found)}", "  ")
    near = sum(each.cost <= NEAR_OPTIMAL for each in found)
    beyond = sum(each.is_beyond for each in found)
    outside = f"; {beyond} predictions lie outside of the swept values" if beyond else ""
    return wrapped(
        f"transfer: predicted from smaller cells, {near} of {len(found)} cost at most {NEAR_OPTIMAL:.1%} of the loss, the "
        f"largest cell {cost_at_largest(found):.3%}, and the worst {max(each.cost for each in found):.3%}{outside}",
        "  ",
    )


def _target_text(target: TunedTarget) -> str:
    point = ", ".join(f"{name} {_short(number)}" for name, number in target.point.items())
    lines = [wrapped(f"target: {point}")]
    for each in target.values:
        low, high = (format_number(end, 3) for end in each.interval)
        cost = "" if each.cost is None else f"; expected cost {each.cost:.3%} of the loss, 95 % below {each.cost_95:.3%}"
        told = f"given: {format_number(each.value, 3)}, best" if each.is_given else f"{format_number(each.value, 4)}"
        lines.append(wrapped(f"{each.name} {told} [{low}, {high}]{cost}", "  "))
    if target.cost is None:
        lines.append(wrapped("the cost of imperfect tuning is unknown: a table of optima has no losses", "  "))
    else:
        told = "a forecast of `marin-scale fit` is of a run tuned as well as the best ones; the loss of this one is expected "
        told += f"{target.cost:.3%} higher"
        lines.append(wrapped(told, "  "))
    return "\n".join([*lines, *(wrapped(each.line, "  ") for each in target.findings)])
