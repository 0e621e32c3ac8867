"""Data mixtures in Python and as text: a table of mixtures, laws of its losses, and the best mix under limits of tokens."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from marin_scaling import __version__
from marin_scaling.errors import LadderFileError, StorageError, UsageError
from marin_scaling.files import read_bytes, replace_file, require_writable
from marin_scaling.fitting.mixture import (
    DECIMALS,
    CrossValidation,
    MixtureLaw,
    best_mix,
    fit_best_law,
    hellinger,
    nearest_mix,
    rank_correlation,
    rounded_mix,
)
from marin_scaling.ladder.config import read_ladder_file
from marin_scaling.laws import Array
from marin_scaling.printable import joined, quoted, wrapped
from marin_scaling.run.tuning_runs import MixtureTable, read_mixtures
from marin_scaling.units import counted, format_count
from marin_scaling.yaml_config import with_value

if TYPE_CHECKING:
    import pandas as pd

_DRAWS, _OPTIMA = 400, 100
"""Draws of the laws, and those of them whose best mix is found: a range of weights needs fewer than a gain."""
_STARTS = 5
_LEAST_RANK = 0.5
_MIXTURES_PER_DOMAIN = 3
"""Mixtures for each domain below which a law is doubtful. With 3, 2 and 1 for each domain, laws of RegMix's training mixtures
rank the other ones with a correlation of 0.96, 0.92 and 0.83 in the mean of four losses (`benchmarks/results/mixtures.md`)."""
_OFF_ONE = 0.02
"""Error of the sum of a given mix that rounding explains."""


class MixtureStatus(Enum):
    """Status of laws over mixtures and of a best mix, the worst first; the value is the sentence for the reader."""

    DOES_NOT_RANK = (
        "Do not use: held-out mixtures are ranked with a correlation below 0.5, so the best mix may be no better than others."
    )
    EXTRAPOLATES = "Use with care: the best mix is farther from every tried mixture than any of these is from the others."
    NO_GAIN = "Use with care: the 90 % interval of the gain contains zero, so the reference may be as good."
    FEW_MIXTURES = "Use with care: fewer than three mixtures for each domain; more would change the best mix."
    AT_BORDER = "Use with care: a weight is the largest that was tried of its domain; more of it may be better."
    ON_LIMITS = "Usable: held-out mixtures are ranked well, and limits of tokens hold the best mix back."
    USABLE = "Usable: held-out mixtures are ranked well, and the best mix lies among the tried ones."


@dataclass(frozen=True, kw_only=True, repr=False)
class MixtureFit:
    """Laws of the losses of a table of mixtures, by name, with the cross-validation of every family."""

    table: MixtureTable
    laws: Mapping[str, MixtureLaw]
    tried: Mapping[str, Sequence[CrossValidation]]
    seed: int

    def chosen(self, name: str) -> CrossValidation:
        """Return the cross-validation of a loss's law."""
        return next(each for each in self.tried[name] if each.family is self.laws[name].family)

    @property
    def frame(self) -> pd.DataFrame:
        """One row per loss: law, rank correlation of held-out mixtures with 90 % interval, error, and share in 90 % intervals.

        `error` is the root mean square of held-out mixtures and `spread` the standard deviation of the loss, both in its unit.
        `rank_FAMILY` gives the rank correlation of each family.
        """
        import pandas as pd

        return pd.DataFrame([self._row(name) for name in self.table.names])

    def _row(self, name: str) -> dict[str, Any]:
        losses, best = self.observed({name: 1.0}), self.chosen(name)
        rank, low, high = rank_correlation(best.medians, losses)
        return {
            "loss": name,
            "law": best.family.value,
            "rank_correlation": rank,
            "q05": low,
            "q95": high,
            "error": math.sqrt(best.squared_error),
            "spread": float(losses.std()),
            "inside_90": best.inside,
            **{f"rank_{each.family.value}": rank_correlation(each.medians, losses)[0] for each in self.tried[name]},
        }

    def observed(self, objective: Mapping[str, float]) -> Array:
        """Return the objective of each mix of the table: (mix,)."""
        return np.asarray(sum(part * self.table.losses[:, self.table.names.index(name)] for name, part in objective.items()))

    def rank_correlation(self, objective: Mapping[str, float]) -> tuple[float, float, float]:
        """Return the cross-validated rank correlation of a weighted mean of losses, and its 90 % interval."""
        return rank_correlation(
            np.sum([part * self.chosen(name).medians for name, part in objective.items()], axis=0), self.observed(objective)
        )

    @property
    def status(self) -> MixtureStatus:
        """The worst of what was found about the mean of the losses, best mixes aside."""
        return self.worst(_objective(self.table, None), {})

    def worst(self, objective: Mapping[str, float], found: Mapping[MixtureStatus, bool]) -> MixtureStatus:
        """Return the worst status that applies to an objective, of those of the laws and those found about a mix."""
        few = len(self.table.different) < _MIXTURES_PER_DOMAIN * len(self.table.domains)
        ranks = [self.rank_correlation(each)[0] for each in (objective, *({name: 1.0} for name in objective))]
        laws = {
            MixtureStatus.DOES_NOT_RANK: min(ranks) < _LEAST_RANK,
            MixtureStatus.FEW_MIXTURES: few,
            MixtureStatus.USABLE: True,
        }
        return next(status for status in MixtureStatus if {**laws, **found}.get(status))

    def predict(self, weights: Mapping[str, float]) -> pd.DataFrame:
        """Return the predicted losses of a run with this mix: one row per loss with median, q05 and q95."""
        import pandas as pd

        mix = _mix_of(self.table, weights, option="weights")[None]
        found = {name: self.laws[name].interval(mix)[:, 0] for name in self.table.names}
        return pd.DataFrame([{"loss": name, "median": q[1], "q05": q[0], "q95": q[2]} for name, q in found.items()])

    def best(
        self,
        minimize: str | Collection[str] | Mapping[str, float] | None = None,
        *,
        limits: Mapping[str, float] | None = None,
        tokens: float | None = None,
        epochs: float = 1.0,
        against: Mapping[str, float] | None = None,
    ) -> BestMix:
        """Return the mix with the lowest predicted mean of the losses, or of those to `minimize`, also with parts as weights.

        `limits` gives the tokens available of domains, `tokens` those of the run, and `epochs` the most passes. No
        weight is larger than the largest that was tried of its domain. The gain is that over the mix `against`, by default the
        mean of the tried ones. `UsageError` for unknown names, or for limits that leave the run without enough tokens.
        """
        objective, limit, reference = chosen_mix(
            self.table, minimize, limits=limits, tokens=tokens, epochs=epochs, against=against
        )
        caps = _within_tried(self.table, limit)
        unit, tried = float(self.observed(objective).std()), self.table.weights
        medians = {name: self.laws[name].middle for name in objective}

        def by_median(mix: Array) -> tuple[float, Array]:
            return _total([(part, medians[name].with_slope(mix, 0)) for name, part in objective.items()])

        allowed = np.array([nearest_mix(each, caps) for each in (*tried, tried.mean(0))])
        heights = np.sum([part * medians[name].losses(allowed)[:, 0] for name, part in objective.items()], axis=0)
        starts = allowed[np.argsort(heights, kind="stable")[:_STARTS]]
        mix = rounded_mix(best_mix(by_median, caps, list(starts), unit=unit), caps)
        draws = {
            name: law.paths(_DRAWS, np.random.default_rng([self.seed, 4, place]))
            for place, (name, law) in enumerate(self.laws.items())
            if name in objective
        }

        pool = np.array([reference, mix, *allowed])
        drawn = np.sum([part * draws[name].losses(pool) for name, part in objective.items()], axis=0)
        firsts = pool[1 + drawn[1:, :_OPTIMA].argmin(0)]

        def optimum(draw: int) -> Array:
            def by_draw(mix: Array) -> tuple[float, Array]:
                return _total([(part, draws[name].with_slope(mix, draw)) for name, part in objective.items()])

            return best_mix(by_draw, caps, [firsts[draw]], unit=unit)

        optima = np.array([optimum(draw) for draw in range(_OPTIMA)])
        return BestMix(
            fit=self,
            objective=objective,
            mix=mix,
            ranges=np.quantile(optima, (0.05, 0.95), axis=0).T,
            limit=limit,
            tokens=tokens,
            reference=reference,
            is_mean=not against,
            gains=np.quantile(drawn[0] - drawn[1], (0.05, 0.5, 0.95)),
        )

    def document(self, best: BestMix | None = None) -> dict[str, Any]:
        """Return the document of `marin-scale mix --json`."""
        return {
            "source": self.table.source,
            "mixtures": len(self.table.weights),
            "domains": list(self.table.domains),
            "columns": dict(self.table.columns),
            "excluded": dict(self.table.excluded),
            "losses": self.frame.to_dict("records"),
            "best": best.document() if best else None,
            "notes": list(self.table.notes),
            "status": (best or self).status.value,
            "seed": self.seed,
            "tool": f"marin-scaling {__version__}",
        }

    def __str__(self) -> str:
        return f"{_laws_text(self)}\n\n{wrapped(f'status: {self.status.value}')}"

    def __repr__(self) -> str:
        return f"MixtureFit({len(self.table.weights)} mixtures of {self.table.source}: {self.status.name})"


def chosen_mix(
    table: MixtureTable,
    minimize: str | Collection[str] | Mapping[str, float] | None = None,
    *,
    limits: Mapping[str, float] | None = None,
    tokens: float | None = None,
    epochs: float = 1.0,
    against: Mapping[str, float] | None = None,
) -> tuple[dict[str, float], Array, Array]:
    """Return the part of each loss, and for each domain the largest allowed weight and that of the reference.

    The arguments and errors are those of `MixtureFit.best`, which are so found before laws are fitted.
    """
    limit = _largest_weights(table.domains, _by_name(table, limits or {}), tokens=tokens, epochs=epochs)
    _within_tried(table, limit)
    reference = _mix_of(table, against, option="--against") if against else table.weights.mean(0)
    return _objective(table, minimize), limit, np.asarray(reference)


def _by_name(table: MixtureTable, given: Mapping[str, float]) -> dict[str, float]:
    """Return numbers by the names of domains and losses, which may be given by their columns."""
    own = {column: name for name, column in table.columns.items()}
    return {own.get(name, name): number for name, number in given.items()}


def _objective(table: MixtureTable, minimize: str | Collection[str] | Mapping[str, float] | None) -> dict[str, float]:
    """Return the part of each loss in what is minimized: of all in equal parts by default; parts add up to one."""
    given = table.names if minimize is None else (minimize,) if isinstance(minimize, str) else minimize
    parts = _by_name(table, {name: float(given[name]) if isinstance(given, Mapping) else 1.0 for name in given})
    _require_known(parts, table.names, option="--minimize", what="loss")
    if not parts or not all(0 < part < math.inf for part in parts.values()):
        raise UsageError("--minimize: parts must be positive numbers.", fix=f"Write it like --minimize {table.names[0]}=2.")
    return {name: part / sum(parts.values()) for name, part in parts.items()}


def _mix_of(table: MixtureTable, given: Mapping[str, float], *, option: str) -> Array:
    """Return the mix, (domain,), of weights by domain; `UsageError` for an unknown domain or another sum than one."""
    given = _by_name(table, given)
    _require_known(given, table.domains, option=option, what="domain")
    mix = np.array([given.get(name, 0.0) for name in table.domains])
    if not (mix >= 0).all() or abs(mix.sum() - 1) > _OFF_ONE:
        raise UsageError(
            f"{option}: the weights add up to {mix.sum():g}, the least is {mix.min():g}.",
            fix="Give weights of zero or more that add up to 1.",
        )
    return np.asarray(mix / mix.sum())


def _require_known(given: Collection[str], known: Sequence[str], *, option: str, what: str) -> None:
    if unknown := [name for name in given if name not in known]:
        raise UsageError(
            f"{option}: the table has no {what} {joined(map(repr, map(quoted, unknown)))}.",
            fix=f"Choose of {joined(known, most=40)}.",
        )


def _total(parts: Sequence[tuple[float, tuple[float, Array]]]) -> tuple[float, Array]:
    value = sum(part * value for part, (value, _) in parts)
    return value, np.sum([part * slope for part, (_, slope) in parts], axis=0)


def _largest_weights(domains: Sequence[str], limits: Mapping[str, float], *, tokens: float | None, epochs: float) -> Array:
    """Return the largest weight that the tokens of each domain allow."""
    _require_known(limits, domains, option="--limit", what="domain")
    if bool(limits) != (tokens is not None):
        raise UsageError("--limit and --tokens belong together.", fix="Give both, as in --tokens 100B --limit web=50B")
    numbers = [*limits.values(), epochs, *([] if tokens is None else [tokens])]
    if not all(0 < number < math.inf for number in numbers):
        raise UsageError(
            f"--tokens, --limit and --epochs: {min(numbers):g} is not a positive number.", fix="Correct the number."
        )
    if tokens is None:
        return np.ones(len(domains))
    caps = np.array([min(1.0, epochs * limits.get(name, math.inf) / tokens) for name in domains])
    if caps.sum() < 1:
        available = sum(epochs * limits[name] for name in domains)
        raise UsageError(
            f"With --epochs {epochs:g} there are {format_count(available)} tokens, and the run needs {format_count(tokens)}.",
            fix=f"Raise --limit or --epochs, or lower --tokens to {format_count(available)}.",
        )
    return caps


def _within_tried(table: MixtureTable, limit: Array) -> Array:
    """Return the largest weight of each domain that is allowed and was tried."""
    tried = table.weights.max(0)
    caps = np.minimum(limit, tried)
    if caps.sum() < 1:
        held = [name for name, low, high in zip(table.domains, tried, limit, strict=True) if low < high]
        raise UsageError(
            f"The limits and the largest tried weights allow weights that add up to {caps.sum():.3g}, not 1.",
            why=f"Limits allow {limit.sum():.3g}, with more of {joined(held)} than was tried.",
            fix="Raise --limit or --epochs, or train mixtures with more of these domains.",
        )
    return np.asarray(caps)


@dataclass(frozen=True, kw_only=True, repr=False)
class BestMix:
    """Best mix of a fit: `mix` (domain,) in four decimals, and `ranges` (domain, 2) of the weights in 90 % of drawn laws.

    `limit` (domain,) is the largest weight that the tokens of each domain allow, 1 without a limit.
    `gains` are 5 %, 50 % and 95 % quantiles of what the objective falls from `reference` to the best mix, noise of runs aside.
    """

    fit: MixtureFit
    objective: Mapping[str, float]
    mix: Array
    ranges: Array
    limit: Array
    tokens: float | None
    reference: Array
    is_mean: bool
    gains: Array

    @property
    def weights(self) -> dict[str, float]:
        """Weight of each domain; they add up to one."""
        return dict(zip(self.fit.table.domains, self.mix.tolist(), strict=True))

    @property
    def frame(self) -> pd.DataFrame:
        """One row per domain, the largest weight first: weight, q05, q95, largest tried weight, limit (NaN for none)."""
        import pandas as pd

        return pd.DataFrame(
            {
                "domain": self.fit.table.domains,
                "weight": self.mix,
                "q05": self.ranges[:, 0],
                "q95": self.ranges[:, 1],
                "tried": self.fit.table.weights.max(0),
                "reference": self.reference,
                "limit": np.where(self.limit < 1, self.limit, np.nan),
            }
        ).sort_values("weight", ascending=False, kind="stable", ignore_index=True)

    @property
    def losses(self) -> pd.DataFrame:
        """One row per loss: part in the objective, medians of the reference and the best mix, and 90 % interval of a run."""
        import pandas as pd

        pair = np.array([self.reference, self.mix])
        found = {name: law.interval(pair) for name, law in self.fit.laws.items()}
        return pd.DataFrame(
            [
                {
                    "loss": name,
                    "part": self.objective.get(name, 0.0),
                    "reference": q[1, 0],
                    "best": q[1, 1],
                    "q05": q[0, 1],
                    "q95": q[2, 1],
                }
                for name, q in found.items()
            ]
        )

    @property
    def distance(self) -> float:
        """Hellinger distance to the nearest tried mix, from 0 to 1."""
        return float(hellinger(self.mix[None], self.fit.table.weights).min())

    @property
    def usual_distance(self) -> float:
        """Largest distance of a tried mix to the nearest different one."""
        tried = self.fit.table.different
        between = hellinger(tried, tried)
        np.fill_diagonal(between, 1.0)
        return float(between.min(1).max())

    @property
    def at_limit(self) -> list[str]:
        """Domains whose weight is as high as their limit."""
        return self._named((self.limit < 1) & (self.mix > self.limit - 1 / DECIMALS))

    @property
    def at_border(self) -> list[str]:
        """Domains with the largest weight that was tried."""
        return self._named(self.mix > self.fit.table.weights.max(0) - 1 / DECIMALS)

    def _named(self, are: NDArray[np.bool_]) -> list[str]:
        return [name for name, is_named in zip(self.fit.table.domains, are.tolist(), strict=True) if is_named]

    @property
    def status(self) -> MixtureStatus:
        """The worst of what was found about the laws and the mix."""
        found = {
            MixtureStatus.EXTRAPOLATES: self.distance > self.usual_distance,
            MixtureStatus.NO_GAIN: bool(self.gains[0] <= 0),
            MixtureStatus.AT_BORDER: bool(self.at_border),
            MixtureStatus.ON_LIMITS: bool(self.at_limit),
        }
        return self.fit.worst(self.objective, found)

    def write_ladder(self, path: Path | str, *, base: Path | str) -> Path:
        """Write a ladder file: the file `base` with this mix in `data.mix`; the corpora of the base are the domains.

        `StorageError` if the file exists, `LadderFileError` for a base without these corpora.
        """
        path = Path(path)
        text = base_text(self.fit.table, path, base=Path(base))
        text = with_value(text, ("name",), json.dumps(path.stem))
        mix = ",\n".join(f"    {json.dumps(name)}: {weight:.4f}" for name, weight in self.weights.items())
        text = with_value(text, ("data", "mix"), "{\n" + mix + "\n  }")
        head = (
            f"# data.mix is the best of {len(self.fit.table.weights)} mixtures in {self.fit.table.source}, by marin-scale mix"
        )
        replace_file(path, f"{head} {__version__}.\n# {self.status.value}\n{text}".encode())
        return path

    def document(self) -> dict[str, Any]:
        """Return the part of `marin-scale mix --json` about the best mix, with finite numbers or null."""
        domains = self.frame.astype(object).where(self.frame.notna(), None)
        return {
            "objective": dict(self.objective),
            "domains": domains.to_dict("records"),
            "losses": self.losses.to_dict("records"),
            "gain": dict(zip(("q05", "median", "q95"), self.gains.tolist(), strict=True)),
            "rank_correlation": dict(zip(("rank", "q05", "q95"), self.fit.rank_correlation(self.objective), strict=True)),
            "distance": self.distance,
            "largest_distance_of_tried": self.usual_distance,
            "at_limit": self.at_limit,
            "at_border": self.at_border,
            "tokens": self.tokens,
        }

    def __str__(self) -> str:
        return f"{_laws_text(self.fit)}\n\n{_best_text(self)}\n\n{wrapped(f'status: {self.status.value}')}"

    def __repr__(self) -> str:
        return f"BestMix({self.fit.table.source}: {self.status.name})"


def base_text(table: MixtureTable, path: Path, *, base: Path) -> str:
    """Return the text of a ladder file whose corpora are the domains, to be written to another path with a mix.

    `StorageError` if the path exists, `LadderFileError` for a base without these corpora.
    """
    if path.exists():
        raise StorageError(f"{path} exists.", fix="Give another name, or delete it.")
    data = read_ladder_file(base).data
    if set(data.corpora) != set(table.domains):
        lines = (
            f"{base}: the names of data.corpora are not the domains of {table.source}.",
            *(
                f"{what}: {joined(names, most=40) or 'none'}"
                for what, names in (("corpora", sorted(data.corpora)), ("domains", table.domains))
            ),
        )
        raise _refused(lines)
    if data.phases:
        raise _refused(f"{base}: data.phases has {len(data.phases)} mixes, and this is one for the whole run.")
    require_writable(path.parent)
    return read_bytes(base).decode("utf-8-sig")


def _refused(what: str | tuple[str, ...]) -> LadderFileError:
    return LadderFileError(what, fix="Give a ladder with data.mix and one name in data.corpora for each domain: --base LADDER")


def mix(
    table: pd.DataFrame | MixtureTable | Path | str,
    *,
    weights: Collection[str] = (),
    metrics: Collection[str] = (),
    where: Mapping[str, str] | None = None,
    drop: Collection[str] = (),
    skip_incomplete: bool = False,
    seed: int = 0,
) -> MixtureFit:
    """Fit laws of losses over data mixtures; `.best()` is the best mix.

    `table` has one row per run: weights of domains that add up to one (or 100), and losses in one unit. The columns are found
    by their sums and names; `weights` and `metrics` name them, also by patterns such as "weight_*". `where` chooses rows,
    `drop` names rows to leave out, and `skip_incomplete` leaves out rows with an empty cell. Each loss gets the family of law
    with the least error in ten-fold cross-validation.

    `RunTableError` lists all rows whose weights do not add up, and cells without a number. `FitRefused` for fewer than ten
    mixtures.

    >>> import pandas as pd
    >>> shares = np.random.default_rng(0).dirichlet([1.0, 1.0, 1.0], size=60)
    >>> frame = pd.DataFrame(shares, columns=["web", "code", "books"])
    >>> found = mix(frame.assign(loss=3 + (frame["web"] - 0.2) ** 2 - 0.3 * frame["code"]))
    >>> best = found.best(limits={"code": 5e9}, tokens=10e9)
    >>> {name: round(weight, 1) for name, weight in best.weights.items()}
    {'books': 0.3, 'code': 0.5, 'web': 0.2}
    """
    read = table
    if not isinstance(read, MixtureTable):
        read = read_mixtures(read, weights=weights, metrics=metrics, where=where, drop=drop, skip_incomplete=skip_incomplete)
    fitted = {
        name: fit_best_law(read.weights, column, seed=seed) for name, column in zip(read.names, read.losses.T, strict=True)
    }
    return MixtureFit(
        table=read,
        laws={name: law for name, (law, _) in fitted.items()},
        tried={name: tried for name, (_, tried) in fitted.items()},
        seed=seed,
    )


def _laws_text(fit: MixtureFit) -> str:
    table = fit.table
    runs, different = len(table.weights), counted(len(table.different), "mixture")
    mixtures = different if runs == len(table.different) else f"{runs} runs of {different}"
    lines = [
        wrapped(f"{table.source}: {mixtures} of {counted(len(table.domains), 'domain')}"),
        *(wrapped(each, "  ") for each in table.notes),
        *(
            [wrapped(f"left out: {joined(f'{name}, because {why}' for name, why in table.excluded.items())}", "  ")]
            if table.excluded
            else []
        ),
        "",
        wrapped("laws of the losses, tested on held-out mixtures; covered is the share in their 90 % intervals"),
        f"  {'loss':<20} {'law':<11} {'rank correlation':>21} {'error':>7} {'spread':>7} {'covered':>7}",
    ]
    for row in fit.frame.to_dict("records"):
        rank = f"{row['rank_correlation']:.3f} [{row['q05']:.3f}, {row['q95']:.3f}]"
        numbers = f"{row['error']:>7.4f} {row['spread']:>7.4f} {row['inside_90']:>7.0%}"
        lines.append(f"  {quoted(row['loss'], 20):<20} {row['law']:<11} {rank:>21} {numbers}")
    return "\n".join(lines)


def _best_text(best: BestMix) -> str:
    reference = "mean mix" if best.is_mean else "given mix"
    equal = len(set(best.objective.values())) == 1
    parts = [quoted(name, 30) if equal else f"{part:.0%} {quoted(name, 30)}" for name, part in best.objective.items()]
    whole = f"the mean of {len(parts)} losses" if equal and len(parts) == len(best.fit.table.names) > 1 else joined(parts)
    lines = [
        wrapped(f"best mix for {whole}; ranges are of the best mixes of {_OPTIMA} drawn laws"),
        f"  {'domain':<26} {'weight':>7} {'90 % range':>18} {'tried to':>8} {'limit':>7}",
    ]
    for row in best.frame.to_dict("records"):
        limit = "" if math.isnan(row["limit"]) else f"{row['limit']:.4f}"
        span = f"[{row['q05']:.4f}, {row['q95']:.4f}]"
        lines.append(
            f"  {quoted(row['domain'], 26):<26} {row['weight']:>7.4f} {span:>18} {row['tried']:>8.4f} {limit:>7}".rstrip()
        )
    lines += ["", f"  {'loss':<26} {reference:>9} {'best mix':>9} {'90 % interval':>20}"]
    for row in best.losses.to_dict("records"):
        span = f"[{row['q05']:.4f}, {row['q95']:.4f}]"
        lines.append(f"  {quoted(row['loss'], 26):<26} {row['reference']:>9.4f} {row['best']:>9.4f} {span:>20}")
    low, middle, high = best.gains.tolist()
    rank, worst, most = best.fit.rank_correlation(best.objective)
    lines += [
        "",
        wrapped(f"gain over the {reference}: {middle:.4f} [{low:.4f}, {high:.4f}], in the unit of the losses", "  "),
        wrapped(f"rank correlation of held-out mixtures for what is minimized: {rank:.3f} [{worst:.3f}, {most:.3f}]", "  "),
        wrapped(
            f"distance to the nearest tried mix: {best.distance:.3f}; the largest of a tried one is {best.usual_distance:.3f}",
            "  ",
        ),
    ]
    for names, place in (
        (best.at_border, "warning: at the largest weight that was tried"),
        (best.at_limit, "at the limit of tokens"),
    ):
        lines += [wrapped(f"{place}: {joined(names)}", "  ")] if names else []
    return "\n".join(lines)
