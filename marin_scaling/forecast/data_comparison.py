"""Compare training texts by paired runs: better, not worse by more than a margin, worse, or undecided.

Runs of two ladders are a pair if they have one size, number of tokens and seed. A pair gives the difference of its log losses,
and a seed the mean of its pairs over all rungs. Means of seeds are independent, so they have a t-interval, whatever rungs of
one seed share. Fast-track data tracks of Marin decide by three matched seeds and such a margin too.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from marin_scaling import __version__
from marin_scaling.errors import RunTableError, UsageError
from marin_scaling.forecast.speedup import require_comparable, table_document, warnings_of
from marin_scaling.forecast.speedup_chain import names_of
from marin_scaling.forecast.speedup_conventions import holm
from marin_scaling.laws import Array
from marin_scaling.printable import joined, quoted, wrapped
from marin_scaling.run.cells import NEARNESS, ONE_EPOCH, cells_of
from marin_scaling.run.store import read_runs
from marin_scaling.run.table import ReadingChoices, RunTable, read_run_table, table_of_frame
from marin_scaling.units import counted, format_count, format_flops, format_number

if TYPE_CHECKING:
    import pandas as pd

MARGIN = 0.005
"""Relative loss that a text may cost and still count as not worse: 5 % of the compute, if losses fall as C^-0.1."""

LEAST_SEEDS = 3
"""Matched seeds that an interval needs: with two, its one-sided 95 % bound lies 4.5 standard deviations away."""

LEVEL = 0.05
"""Chance of a false verdict, one-sided; Holm's correction holds it for all texts together."""

_OPEN = "loss"
"""Name of a metric that leaves its unit open."""
_NAMED = 4
_LETTERS, _NAME_WIDTH, _COLUMNS = "abcdefghijklmnopqrstuvwxyz", 17, 4


class DataVerdict(Enum):
    """Verdict on a text, by the 95 % bounds of its relative difference in loss."""

    BETTER = "better"
    NOT_WORSE = "not worse"
    WORSE = "worse"
    UNDECIDED = "undecided"


class DataStatus(Enum):
    """Status of a comparison, the worst first; the value is the sentence for the reader."""

    CONTROL_WINS = "Do not use: a control is better than the base, so a lower loss is no sign of a better choice of text."
    ONE_METRIC_OPEN = "Use with care: some tables name their metric and others do not, so the units may differ."
    TURNS = "Use with care: a difference turns with size, and the largest rung has the other sign than the mean."
    REPEATS = "Use with care: some runs repeat their text, more often on one side of a pair."
    UNDECIDED = "Use with care: a text is undecided; more seeds narrow its interval."
    USABLE = "Usable: every text has a verdict, no control is better than the base, and no difference turns with size."


@dataclass(frozen=True, kw_only=True)
class RungDifference:
    """Relative difference in loss at one rung, the mean over seeds: positive if the text is worse than the base."""

    params: float
    tokens: float
    flops: float
    base_loss: float
    loss: float
    difference: float


@dataclass(frozen=True, kw_only=True)
class TextComparison:
    """Relative difference in loss of one text to the base: positive if it is worse.

    `low` and `high` are one-sided 95 % bounds, so that both are a 90 % interval. The three p-values are of the claims better,
    not worse than the margin, and worse. `verdict` is that of this text alone; `verdict_after_holm` holds for all texts
    together. `left_out` names runs without a partner.
    """

    name: str
    is_control: bool
    seeds: tuple[str, ...]
    rungs: tuple[RungDifference, ...]
    difference: float
    low: float
    high: float
    p_values: tuple[float, float, float]
    verdict: DataVerdict
    verdict_after_holm: DataVerdict
    left_out: tuple[str, ...]
    repeats: bool

    @property
    def turns(self) -> bool:
        """Return True if the verdict has the other sign than the difference at the rung of the most FLOPs."""
        last = max(self.rungs, key=lambda each: each.flops).difference
        return (self.verdict is DataVerdict.BETTER and last > 0) or (self.verdict is DataVerdict.WORSE and last < 0)


@dataclass(frozen=True, kw_only=True, repr=False)
class DataComparison:
    """Verdicts on texts, compared with the base by paired runs."""

    base: RunTable
    tables: tuple[RunTable, ...]
    base_name: str
    texts: tuple[TextComparison, ...]
    margin: float
    warnings: tuple[str, ...]

    @property
    def status(self) -> DataStatus:
        """The worst of what was found."""
        is_better = [each.is_control and each.verdict is DataVerdict.BETTER for each in self.texts]
        own = [each for each in self.texts if not each.is_control]
        metrics = {table.metric for table in (self.base, *self.tables)}
        applies = {
            DataStatus.CONTROL_WINS: any(is_better),
            DataStatus.ONE_METRIC_OPEN: _OPEN in metrics and len(metrics) > 1,
            DataStatus.TURNS: any(each.turns for each in self.texts),
            DataStatus.REPEATS: any(each.repeats for each in self.texts),
            DataStatus.UNDECIDED: any(each.verdict_after_holm is DataVerdict.UNDECIDED for each in own),
            DataStatus.USABLE: True,
        }
        return next(status for status in DataStatus if applies[status])

    @property
    def frame(self) -> pd.DataFrame:
        """One row per text: difference, bounds, verdicts and numbers of rungs and seeds."""
        import pandas as pd

        return pd.DataFrame([_row(each) for each in self.texts])

    def document(self) -> dict[str, Any]:
        """Return the document of `marin-scale data compare --json`."""
        rows = [
            {
                **_row(each),
                "seeds": list(each.seeds),
                "p_values": dict(zip(("better", "not_worse", "worse"), each.p_values, strict=True)),
                "by_rung": [vars(rung) for rung in each.rungs],
                "left_out": list(each.left_out),
            }
            for each in self.texts
        ]
        return {
            "margin": self.margin,
            "level": LEVEL,
            "metric": self.base.metric,
            "base": {"name": self.base_name, **table_document(self.base, self.base.excluded)},
            "tables": [table_document(each, each.excluded) for each in self.tables],
            "texts": rows,
            "warnings": list(self.warnings),
            "status": self.status.value,
            "tool": f"marin-scaling {__version__}",
        }

    def __str__(self) -> str:
        return _text(self)

    def __repr__(self) -> str:
        found = ", ".join(f"{each.name} {each.verdict_after_holm.value}" for each in self.texts)
        return f"DataComparison({found}: {self.status.name})"


def compare_data(
    base: RunTable | pd.DataFrame | Path | str,
    *others: RunTable | pd.DataFrame | Path | str,
    controls: Sequence[RunTable | pd.DataFrame | Path | str] = (),
    margin: float = MARGIN,
    **choices: Unpack[ReadingChoices],
) -> DataComparison:
    """Compare the losses of runs on other texts with those on a base text, by pairs of one size, number of tokens and seed.

    Each table is a ladder's folder or a table of runs (flops, params, tokens, loss) with a column `seed`. `controls` are texts
    that must not be better than the base, such as random documents. `margin` is the relative loss up to which a text is not
    worse. `choices` are those of `ms.load_runs`. Differences are relative, averaged over rungs, then over seeds.

    Source: the t-interval over seeds; the non-inferiority rule of ICH E9 (1998), one-sided at 95 %; Holm (1979).

    `UsageError` for a margin out of range or too few tables. `RunTableError` for tables without seeds, with other metrics,
    evaluations or recipes, with fewer than three matched seeds, or with other FLOPs or tokens at one size and seed.

    >>> import pandas as pd
    >>> runs = [(1e15 * size, 1e5 * size, 1e9, seed, 2 + 0.001 * seed) for size in (1, 2, 4) for seed in range(3)]
    >>> base = pd.DataFrame(runs, columns=["flops", "params", "tokens", "seed", "loss"])
    >>> found = compare_data(base, base.assign(loss=base["loss"] * (0.98 + 0.001 * base["seed"])), margin=0.005)
    >>> found.texts[0].verdict.value, round(found.texts[0].difference, 3)
    ('better', -0.019)
    """
    _require(margin, texts=len(others) + len(controls))
    tables = [_read(each, choices) for each in (base, *others, *controls)]
    _require_one_recipe([base, *others, *controls])
    names = names_of(tables)
    allow = choices.get("allow", ())
    warnings = [each for table in tables[1:] for each in require_comparable(tables[0], table, "own", allow=allow)]
    pairs = [_pairs(tables[0], table, names=(names[0], name)) for name, table in zip(names[1:], tables[1:], strict=True)]
    found = [
        _compared(each, name, is_control=number >= len(others), margin=margin)
        for number, (name, each) in enumerate(zip(names[1:], pairs, strict=True))
    ]
    return DataComparison(
        base=tables[0],
        tables=tuple(tables[1:]),
        base_name=names[0],
        texts=tuple(_together(found)),
        margin=margin,
        warnings=tuple(dict.fromkeys((*warnings, *(each for table in tables for each in _warnings(table))))),
    )


def _require(margin: float, *, texts: int) -> None:
    if not 0 < margin < 1:
        raise UsageError(f"The margin is {margin:g}; it is a relative loss between 0 and 1.", fix=f"Use --margin {MARGIN}")
    if not 0 < texts <= len(_LETTERS):
        raise UsageError(
            f"{texts} texts are compared with the base, of 1 to {len(_LETTERS)}.", fix="Name the base, then the others."
        )


def _read(runs: RunTable | pd.DataFrame | Path | str, choices: ReadingChoices) -> RunTable:
    """Return a table of runs with seeds."""
    if isinstance(runs, RunTable):
        table = runs
    else:
        table = read_run_table(Path(runs), **choices) if isinstance(runs, Path | str) else table_of_frame(runs, **choices)
    if "seed" not in table.frame:
        raise RunTableError(
            f"{table.source} has no column of seeds; a comparison needs {LEAST_SEEDS} matched seeds.",
            fix="Name the column: --column seed=NAME",
        )
    return table


def _warnings(table: RunTable) -> tuple[str, ...]:
    """Return the warnings about a table, without those about its budgets, which pairs do not use."""
    of_budgets = {each.message for each in table.findings if each.code == "budgets"}
    return warnings_of(replace(table, warnings=tuple(each for each in table.warnings if each not in of_budgets)))


def _require_one_recipe(runs: Sequence[RunTable | pd.DataFrame | Path | str]) -> None:
    """Raise `RunTableError` if ladders' folders have different recipes; other tables do not name theirs."""
    folders = [Path(each) for each in runs if isinstance(each, Path | str) and Path(each).is_dir()]
    found = {folder: {stored.spec.recipe for stored in read_runs(folder)} for folder in folders}
    recipes = {recipe: folder for folder, names in found.items() for recipe in names}
    if len(recipes) > 1:
        raise RunTableError(
            tuple(f"{folder}: recipe {quoted(recipe)}." for recipe, folder in recipes.items()),
            why="Runs of a pair differ in their text only.",
            fix="Train all ladders with one recipe.",
        )


@dataclass(frozen=True)
class _Pairs:
    """Differences of log losses, (rung, seed), with the rungs and the names of runs without a partner."""

    seeds: tuple[str, ...]
    rungs: tuple[RungDifference, ...]
    differences: Array
    left_out: tuple[str, ...]
    repeats: bool


def _pairs(base: RunTable, other: RunTable, *, names: tuple[str, str]) -> _Pairs:
    """Pair the runs of two tables; `RunTableError` for pairs that differ in FLOPs or tokens, and for too few seeds."""
    import pandas as pd

    both = pd.concat([base.frame.assign(side=0), other.frame.assign(side=1)], ignore_index=True)
    both["rung"] = cells_of(both[["params", "tokens"]])
    where = f"{base.source} and {other.source}"
    _require_single(both, names)
    _require_equal_costs(both, where)
    paired = both.groupby(["rung", "seed"])["side"].transform("nunique") == 2
    rungs = sorted(set(both["rung"][paired]), key=lambda rung: float(both["flops"][both["rung"] == rung].mean()))
    seeds = _common_seeds(both[paired], len(rungs))
    if len(seeds) < LEAST_SEEDS:
        _refuse_seeds(both, seeds, len(rungs), where)
    kept = both[paired & both["seed"].isin(seeds)]
    losses = np.log(kept.pivot(index=["rung", "seed"], columns="side", values="loss"))
    table = (losses[1] - losses[0]).unstack("seed").loc[rungs, list(seeds)]
    unpaired = both.drop(index=kept.index)
    return _Pairs(
        seeds=seeds,
        rungs=tuple(_rung(kept[kept["rung"] == rung], table.loc[rung].to_numpy()) for rung in rungs),
        differences=table.to_numpy(dtype=np.float64),
        left_out=tuple(f"{names[side]}: {quoted(run)}" for side, run in zip(unpaired["side"], unpaired["run"], strict=True)),
        repeats=_repeats_apart(kept),
    )


def _require_single(both: pd.DataFrame, names: tuple[str, str]) -> None:
    twice = both[both.duplicated(["side", "rung", "seed"], keep=False)]
    if len(twice):
        first = twice.iloc[0]
        same = twice[(twice[["side", "rung", "seed"]] == first[["side", "rung", "seed"]]).all(axis=1)]
        raise RunTableError(
            f"{names[first['side']]}: {len(same)} runs have seed {quoted(first['seed'])} at {_place(first)}: "
            f"{joined(same['run'], most=_NAMED)}.",
            fix=f"Leave out all but one of them: --drop {quoted(same['run'].iloc[1])}",
        )


def _require_equal_costs(both: pd.DataFrame, where: str) -> None:
    """Raise `RunTableError` if runs of a size, seed and rank of tokens differ in tokens, or those of a rung in FLOPs."""
    sizes = both.assign(size=cells_of(both[["params"]]))
    sizes["rank"] = sizes.groupby(["side", "size", "seed"])["tokens"].rank(method="dense")
    faults = [*_unequal(sizes, ["size", "seed", "rank"], "tokens"), *_unequal(both, ["rung", "seed"], "flops")]
    if faults:
        more = [f"and {len(faults) - _NAMED} more pairs"] if len(faults) > _NAMED else []
        raise RunTableError(
            (f"{where}: pairs of runs differ in their cost.", *faults[:_NAMED], *more),
            why="A text that is trained on for longer has a lower loss.",
            fix="Train both ladders with the same rungs; --drop RUN leaves a run out.",
        )


def _unequal(both: pd.DataFrame, keys: list[str], column: str) -> list[str]:
    """Return a sentence for each pair whose numbers in a column differ."""
    wide = both.pivot_table(index=keys, columns="side", values=column)
    pairs = wide.dropna()
    apart = pairs[np.abs(np.log(pairs[1] / pairs[0])) > NEARNESS[column]]
    cells = ([format_number(number, 4) for number in apart[side]] for side in (0, 1))
    seeds = apart.index.get_level_values("seed")
    return [f"seed {quoted(seed)}: {a} and {b} {column}" for seed, a, b in zip(seeds, *cells, strict=True)]


def _common_seeds(paired: pd.DataFrame, rungs: int) -> tuple[str, ...]:
    counts = paired.groupby("seed")["rung"].nunique()
    return tuple(sorted(counts.index[counts == rungs]))


def _refuse_seeds(both: pd.DataFrame, seeds: Collection[str], rungs: int, where: str) -> None:
    by_side = [sorted(set(both["seed"][both["side"] == side])) for side in (0, 1)]
    raise RunTableError(
        f"{where} have {counted(len(seeds), 'seed')} with a pair at each of {counted(rungs, 'rung')}, of {LEAST_SEEDS}.",
        why=f"Their seeds are {joined(by_side[0])}, and {joined(by_side[1])}. Runs of one size, tokens and seed are a pair.",
        fix="Train both ladders with seeds: [0, 1, 2] in the ladder file, or leave out a rung that lacks seeds: --drop RUN",
    )


def _place(run: pd.Series[Any]) -> str:
    return f"{format_count(run['params'])} params and {format_count(run['tokens'])} tokens"


def _rung(runs: pd.DataFrame, differences: Array) -> RungDifference:
    numbers = {name: float(runs[name].mean()) for name in ("params", "tokens", "flops")}
    base, other = (float(runs["loss"][runs["side"] == side].mean()) for side in (0, 1))
    return RungDifference(**numbers, base_loss=base, loss=other, difference=math.expm1(differences.mean()))


def _repeats_apart(runs: pd.DataFrame) -> bool:
    """Return True if one side of a pair repeats its text, and the other less often."""
    if "epochs" not in runs:
        return False
    wide = runs.assign(epochs=runs["epochs"].fillna(1.0)).pivot(index=["rung", "seed"], columns="side", values="epochs")
    return bool(((wide.max(axis=1) > ONE_EPOCH) & (np.abs(np.log(wide[1] / wide[0])) > NEARNESS["epochs"])).any())


def _compared(pairs: _Pairs, name: str, *, is_control: bool, margin: float) -> TextComparison:
    """Return the t-interval over seeds of the mean difference, and the p-values of the three claims."""
    from scipy import stats

    means = pairs.differences.mean(axis=0)
    error = float(stats.sem(means))
    law = stats.t(df=len(means) - 1, loc=float(means.mean()), scale=max(error, np.finfo(float).tiny))
    p_values = float(law.sf(0.0)), float(law.sf(math.log1p(margin))), float(law.cdf(0.0))
    verdict = _verdict(p_values)
    return TextComparison(
        name=name,
        is_control=is_control,
        seeds=pairs.seeds,
        rungs=pairs.rungs,
        difference=math.expm1(float(means.mean())),
        low=math.expm1(float(law.ppf(LEVEL))),
        high=math.expm1(float(law.ppf(1 - LEVEL))),
        p_values=p_values,
        verdict=verdict,
        verdict_after_holm=verdict,
        left_out=pairs.left_out,
        repeats=pairs.repeats,
    )


def _verdict(p_values: Sequence[float]) -> DataVerdict:
    """Return the verdict of the p-values of better, not worse, and worse.

    Better implies not worse, so that testing both needs no correction.
    """
    better, not_worse, worse = (each <= LEVEL for each in p_values)
    if better or not_worse:
        return DataVerdict.BETTER if better else DataVerdict.NOT_WORSE
    return DataVerdict.WORSE if worse else DataVerdict.UNDECIDED


def _together(texts: Sequence[TextComparison]) -> Iterator[TextComparison]:
    """Yield the texts with verdicts after Holm's correction, for each of the three claims over all texts."""
    adjusted = [holm([each.p_values[claim] for each in texts]) for claim in range(3)]
    for each, p_values in zip(texts, zip(*adjusted, strict=True), strict=True):
        yield replace(each, verdict_after_holm=_verdict(p_values))


def _row(each: TextComparison) -> dict[str, Any]:
    return {
        "name": each.name,
        "control": each.is_control,
        "difference": each.difference,
        "q05": each.low,
        "q95": each.high,
        "verdict": each.verdict.value,
        "verdict_after_holm": each.verdict_after_holm.value,
        "rungs": len(each.rungs),
        "seeds": len(each.seeds),
    }


def _text(found: DataComparison) -> str:
    lines = [
        wrapped(f"base {found.base_name}: {counted(len(found.base.frame), 'run')}; metric {found.base.metric}"),
        wrapped(f"relative difference in loss to the base, over pairs of one size, tokens and seed; margin {found.margin:.2%}"),
        f"    {'text':<19} {'pairs':>5} {'difference':>10} {'90 % interval':>18}  {'alone':<9} together",
    ]
    for letter, each in zip(_LETTERS, found.texts, strict=False):
        interval = f"[{each.low:+.2%}, {each.high:+.2%}]"
        name = quoted(each.name, _NAME_WIDTH) + (" *" if each.is_control else "")
        lines.append(
            f"  {letter} {name:<19} {len(each.rungs) * len(each.seeds):>5} {each.difference:>+10.2%} {interval:>18}  "
            f"{each.verdict.value:<9} {each.verdict_after_holm.value}".rstrip()
        )
    if any(each.is_control for each in found.texts):
        lines.append("  * control")
    lines += ["", "by rung (mean over seeds)", *_rung_lines(found)]
    lines += [
        "",
        wrapped(
            f"Each bound is one-sided at 95 %. Together, after Holm's correction for {counted(len(found.texts), 'text')}, "
            "the chance of even one false verdict of a kind is at most 5 %."
        ),
    ]
    for each in found.texts:
        if each.left_out:
            lines.append(wrapped(f"{quoted(each.name)}: left out without a partner: {joined(each.left_out, most=_NAMED)}"))
    lines += [wrapped(f"warning: {each}") for each in found.warnings]
    return "\n".join([*lines, wrapped(f"status: {found.status.value}")])


def _rung_lines(found: DataComparison) -> Iterator[str]:
    """Yield a head, then a line for each rung with the differences of the first texts."""
    shown = found.texts[:_COLUMNS]
    letters = "".join(f" {letter:>8}" for letter in _LETTERS[: len(shown)])
    yield f"  {'FLOPs':>8} {'params':>8} {'tokens':>8} {'base loss':>10}{letters}"
    places = dict[tuple[str, ...], dict[str, RungDifference]]()
    for each in shown:
        for rung in each.rungs:
            place: tuple[str, ...] = (format_flops(rung.flops), format_count(rung.params), format_count(rung.tokens))
            places.setdefault(place, {})[each.name] = rung
    for place, rungs in places.items():
        base = next(iter(rungs.values())).base_loss
        cells = (f"{rungs[each.name].difference:+.2%}" if each.name in rungs else "" for each in shown)
        yield "".join([" ", *(f" {each:>8}" for each in place), f" {base:>10.4f}", *(f" {cell:>8}" for cell in cells)]).rstrip()
    if len(found.texts) > _COLUMNS:
        yield f"  and {len(found.texts) - _COLUMNS} more: see --json"
