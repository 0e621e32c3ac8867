"""Stability of a run in training: gradient norms and their spikes, router entropy, dropped tokens and loads of experts."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from marin_scaling.laws import Array
from marin_scaling.run.columns import spelled
from marin_scaling.run.import_runs import TrackedRun
from marin_scaling.run.store import HistoryRow
from marin_scaling.run.table_io import number_in

Shares = Sequence[Sequence[float]]
"""Shares of the tokens' choices by layer and expert; each layer's sum to 1."""


@dataclass(frozen=True, kw_only=True)
class Stability:
    """Gradient norms of a run by step, and the latest routing of a mixture; parts that were not logged are empty or None."""

    steps: Sequence[float] = field(default=(), repr=False)
    norms: Sequence[float] = field(default=(), repr=False)
    """Norm of all gradients before clipping, at `steps`."""
    broken: Sequence[float] = field(default=(), repr=False)
    """Steps at which the logged norm was no finite number."""
    entropies: Sequence[float] = ()
    """Router entropy in nats of each layer, or their mean alone."""
    experts: int | None = None
    shares: Shares = ()
    routed_at: float | None = None
    """Step of the latest routing."""
    dropped: float | None = None
    """Share of the routed tokens that no expert computed."""
    most_dropped: float | None = None
    """Dropped share of the worst layer, where it is logged by layer."""

    @property
    def is_empty(self) -> bool:
        """Return True if nothing was logged."""
        return not self.norms and not self.broken and not self.entropies and not self.shares and self.dropped is None


def stability_of_rows(rows: Sequence[HistoryRow]) -> Stability:
    """Return the stability of a run of this package; its mixtures drop no token, so that share is 0."""
    norms = [(row.step, row.gradient_norm) for row in rows if row.gradient_norm is not None]
    latest = next((row for row in reversed(rows) if row.expert_shares), None)
    return Stability(
        steps=[step for step, _ in norms],
        norms=[norm for _, norm in norms],
        entropies=latest.router_entropy_nats if latest else (),
        experts=len(latest.expert_shares[0]) if latest else None,
        shares=latest.expert_shares if latest else (),
        routed_at=latest.step if latest else None,
        dropped=0.0 if latest else None,
    )


SPIKE_MADS = 10.0
"""Spikes lie so many MADs above the running median, in logarithms: 6.7 standard deviations of normal scatter. None of 100
simulated smooth runs of 2,000 steps has one. With Student scatter of 4 degrees of freedom, none has `SUSTAINED` in a row."""
SPIKE_LEAST = 2.0
"""Least ratio of a spike to the running median: steadier runs have small MADs."""
SUSTAINED = 3
"""Logged steps in a row above the bound that give a warning; a single one is a bad batch, which clipping handles."""
_LEAST_WINDOW, _WINDOW_SHARE = 16, 0.02  # logged steps of the running median: a number, or a share of all if that is more


@dataclass(frozen=True, kw_only=True)
class Spike:
    """Logged steps in a row with gradient norms above the bound; `norm` is the largest, `median` the running median before."""

    step: float
    length: int
    norm: float
    median: float


def norm_spikes(steps: Sequence[float], norms: Sequence[float]) -> list[Spike]:
    """Return the spikes of gradient norms, in the order of steps.

    >>> norm_spikes(range(60), [1.0, 1.1] * 20 + [30.0, 40.0, 35.0] + [1.0] * 17)
    [Spike(step=40, length=3, norm=40.0, median=1.05)]
    """
    values = np.array(norms, dtype=np.float64)
    window = max(_LEAST_WINDOW, round(_WINDOW_SHARE * len(values)))
    if len(values) <= 2 * window:
        return []
    medians = pd.Series(values).rolling(window).median().to_numpy()[window - 1 : -1]  # of the steps before each one
    with np.errstate(divide="ignore", invalid="ignore"):
        above = np.log(values[window:] / medians)
    bound = max(SPIKE_MADS * float(np.median(np.abs(above))), math.log(SPIKE_LEAST))
    high = np.flatnonzero(above > bound)
    stretches = np.split(high, np.flatnonzero(np.diff(high) > 1) + 1) if high.size else []
    return [_spike(each, steps, values, medians, window) for each in stretches]


def _spike(high: Any, steps: Sequence[float], values: Array, medians: Array, window: int) -> Spike:
    first = int(high[0])
    return Spike(
        step=steps[window + first],
        length=len(high),
        norm=float(values[window + high].max()),
        median=float(medians[first]),
    )


LEAST_ENTROPY = 0.5
"""Share of ln(experts) below which a router has collapsed: it then prefers fewer than the root of the number of experts."""
MOST_DROPPED = 0.01
"""Share of dropped tokens that gives a warning; capacities are usually chosen for less."""
_LEAST_OF_EVEN = 0.1  # share of an even load, which balancing by quantiles gives every expert


def stability_findings(found: Stability) -> list[str]:
    """Return a sentence for each fault: broken norms, sustained spikes, a collapsed router, dropped tokens, idle experts."""
    of_norms = [*_broken_findings(found), *_spike_findings(found)]
    return [*of_norms, *_entropy_findings(found), *_dropped_findings(found), *router_faults(found.shares)]


def _broken_findings(found: Stability) -> list[str]:
    if not found.broken:
        return []
    count = len(found.broken) + len(found.norms)
    return [f"{len(found.broken)} of {count} logged gradient norms are not finite, the first at step {found.broken[0]:g}"]


def _spike_findings(found: Stability) -> list[str]:
    return [
        f"the gradient norm was more than {SPIKE_MADS:g} MADs above its running median for {each.length} logged steps from "
        f"step {each.step:g}: up to {each.norm:.3g}, after a median of {each.median:.3g}"
        for each in norm_spikes(found.steps, found.norms)
        if each.length >= SUSTAINED
    ]


def _entropy_findings(found: Stability) -> list[str]:
    share = entropy_share(found)
    if share is None or found.experts is None or share >= LEAST_ENTROPY:
        return []
    return [
        f"the lowest router entropy is {min(found.entropies):.3g} nats, below {LEAST_ENTROPY:.0%} of ln({found.experts}) = "
        f"{math.log(found.experts):.3g}"
    ]


def entropy_share(found: Stability) -> float | None:
    """Return the lowest router entropy as a share of ln(experts); None if it is not known, or is not in nats."""
    if not found.entropies or not found.experts or found.experts < 2:
        return None
    share = min(found.entropies) / math.log(found.experts)
    return share if max(found.entropies) <= 1.001 * math.log(found.experts) else None


def _dropped_findings(found: Stability) -> list[str]:
    worst = max(found.dropped or 0.0, found.most_dropped or 0.0)
    if worst <= MOST_DROPPED:
        return []
    where = " in the worst layer" if worst > (found.dropped or 0.0) else ""
    return [f"{worst:.2%} of the routed tokens are dropped{where}, more than {MOST_DROPPED:.0%}"]


def router_faults(shares: Shares) -> list[str]:
    """Return a sentence for each layer with experts that hardly any token chooses.

    >>> router_faults([[0.25, 0.26, 0.24, 0.25], [0.5, 0.49, 0.01, 0.0]])
    ['layer 1: 2 of 4 experts get less than a tenth of an even share of the tokens']
    """
    return [
        f"layer {layer}: {idle} of {len(each)} experts get less than a tenth of an even share of the tokens"
        for layer, each in enumerate(shares)
        if (idle := sum(share < _LEAST_OF_EVEN / len(each) for share in each))
    ]


def stability_lines(found: Stability | None) -> list[str]:
    """Format the stability of a run, without its findings; empty if nothing was logged."""
    if found is None or found.is_empty:
        return []
    return ["stability", *(f"  {line}" for line in (*_norm_lines(found), *_routing_lines(found)))]


def _norm_lines(found: Stability) -> list[str]:
    if not found.norms:
        return []
    median, spikes = float(np.median(found.norms)), norm_spikes(found.steps, found.norms)
    line = f"gradient norm {found.norms[-1]:.3g} at step {found.steps[-1]:g}"
    line += f", {found.norms[-1] / median:.3g} x the run's median {median:.3g}" if median else ""
    if not spikes:
        return [f"{line}; no spikes"]
    worst = max(spikes, key=lambda each: each.norm / each.median)
    times = f"{worst.norm / worst.median:.3g} x the median before"
    return [line, f"gradient spikes: {len(spikes)}; the highest at step {worst.step:g}, {times}"]


def _routing_lines(found: Stability) -> list[str]:
    lines = [_entropy_line(found)] if found.entropies else []
    if found.shares:
        for name, (load, layer, expert) in zip(("least", "most"), extreme_loads(found.shares), strict=True):
            lines.append(f"{name} loaded: expert {expert} of layer {layer}, {load:.2f} x an even share")
    lines += [] if found.dropped is None else [f"dropped tokens {found.dropped:.2%}"]
    return [f"routing at step {found.routed_at:g}", *lines] if lines and found.routed_at is not None else lines


def _entropy_line(found: Stability) -> str:
    line, share = f"router entropy {np.mean(found.entropies):.3g} nats", entropy_share(found)
    if share is None or found.experts is None:
        return f"{line}; lowest layer {min(found.entropies):.3g}" if len(found.entropies) > 1 else line
    most = math.log(found.experts)
    lowest = f"; lowest layer {share:.0%}" if len(found.entropies) > 1 else ""
    return f"{line}, {np.mean(found.entropies) / most:.0%} of ln({found.experts}) = {most:.3g}{lowest}"


def extreme_loads(shares: Shares) -> tuple[tuple[float, int, int], tuple[float, int, int]]:
    """Return the least and the largest load in even shares, each with its layer and expert.

    >>> extreme_loads([[0.5, 0.5], [0.25, 0.75]])
    ((0.5, 1, 0), (1.5, 1, 1))
    """
    loads = [(share * len(each), layer, expert) for layer, each in enumerate(shares) for expert, share in enumerate(each)]
    return min(loads), max(loads, key=lambda each: each[0])


def stability_document(found: Stability | None) -> dict[str, Any] | None:
    """Return the stability of a run as a document; None if nothing was logged."""
    if found is None or found.is_empty:
        return None
    least, most = extreme_loads(found.shares) if found.shares else (None, None)
    norms: dict[str, float | None] = {"gradient_norm": None, "gradient_norm_median": None, "gradient_norm_step": None}
    if found.norms:
        median = float(np.median(found.norms))
        norms = {"gradient_norm": found.norms[-1], "gradient_norm_median": median, "gradient_norm_step": found.steps[-1]}
    return {
        **norms,
        "gradient_spikes": [vars(each) for each in norm_spikes(found.steps, found.norms)],
        "router_entropy_nats": list(found.entropies),
        "router_entropy_share": entropy_share(found),
        "experts": found.experts,
        "routed_at_step": found.routed_at,
        "dropped_share": found.dropped,
        "dropped_share_of_worst_layer": found.most_dropped,
        "least_load": None if least is None else dict(zip(("even_shares", "layer", "expert"), least, strict=True)),
        "most_load": None if most is None else dict(zip(("even_shares", "layer", "expert"), most, strict=True)),
        "expert_shares": [list(each) for each in found.shares],
        "findings": stability_findings(found),
    }


GRADIENT_NORM_KEYS = (
    "grad/norm/total",
    "grads/norm/total",
    "train/grad_norm",
    "train/gradient_norm",
    "grad_norm",
    "gradient_norm",
    "grad norm",
    "global_grad_norm",
    "train/global_grad_norm",
    "optim/grad_norm",
    "optim/total_grad_norm",
    "optimizer/grad_norm",
    "learning/grad_norm",
    "learning/raw_grad_norm",
)
"""Keys of the norm of all gradients, the preferred one first: Levanter and Marin, Hugging Face, Megatron-LM, OLMo, MaxText."""
_NORM_NAMES = [spelled(key) for key in GRADIENT_NORM_KEYS]
_LAYER, _EXPERT = re.compile(r"(?:^|_)layers?_?(\d+)(?:_|$)"), re.compile(r"(?:^|_)expert_?(\d+)(?:_|$)")
_ENTROPY = re.compile(r"(?:^|_)rout(?:er|ing)_(?:\w+_)?entropy(?:_(mean|avg|nats|bits))*$")
_DROPPED = re.compile(
    r"(?:^|_)(?:capacity_overflow|token_drop|tokens_dropped|dropped_tokens?|drop|dropped|overflow)"
    r"_(rate|fraction|ratio|share|percent|pct)(?:_(?:mean|avg))?$"
)
_OF_ROUTING = re.compile(r"moe|rout|expert|token|capacity")
_LOAD = re.compile(r"(?:^|_)(?:loads?|counts?|share|fraction|usage|utilization|tokens)(?:_|$)")
_NO_LOAD = re.compile(r"bias|beta|grad|norm|loss|param|weight|overflow|drop|entropy")
_LOADS_OF_LAYERS = re.compile(r"(?:^|_)(?:routing_counts|expert_counts|expert_loads?|expert_shares)_per_layer$")
_EXPERTS = re.compile(r"(?:^|_)(?:num|n|moe_num)_(?:routed_|local_)?experts$")
_MOST_EXPERTS = 1_000_000


def stability_of_log(run: TrackedRun) -> Stability:
    """Return what a trainer's log holds of the stability of a run, by the names of its keys and the units in them.

    Loads may be shares or counts, and are divided by their sum. Entropies are in nats unless the key ends in `bits`. Dropped
    tokens are taken only from keys that name a share.
    """
    named = {spelled(key): value for key, value in run.metrics.items()}
    norms, broken = _norms_of(run)
    shares = _shares_of(named)
    entropies = _entropies_of(named)
    whole, by_layer = _dropped_of(named)
    routed = [run.last_steps[key] for key in run.metrics if _is_of_routing(spelled(key)) and key in run.last_steps]
    return Stability(
        steps=[step for step, _ in norms],
        norms=[norm for _, norm in norms],
        broken=broken,
        entropies=entropies,
        experts=len(shares[0]) if shares else _experts_of(run.config),
        shares=shares,
        routed_at=max(routed, default=None),
        dropped=float(np.mean(whole or by_layer)) if whole or by_layer else None,
        most_dropped=max(by_layer, default=None),
    )


def without_norms(run: TrackedRun) -> list[tuple[float, Mapping[str, Any]]]:
    """Return the history of a run without gradient norms, and without the rows of a log that hold nothing else."""
    names = frozenset(_NORM_NAMES)
    rows = [
        ({key: each for key, each in values.items() if spelled(key) not in names}, step, values) for step, values in run.history
    ]
    return [(step, rest) for rest, step, values in rows if rest.keys() - {"_step"} or not values or run.kind == "csv"]


def _norms_of(run: TrackedRun) -> tuple[list[tuple[float, float]], list[float]]:
    """Return finite norms by step, of the preferred key, and the steps of norms that are not finite.

    Where the run went back to an earlier step, the later ones count.
    """
    names = {spelled(key) for _, values in run.history for key in values} | {spelled(key) for key in run.metrics}
    name = next((each for each in _NORM_NAMES if each in names), None)
    rows = run.history or [(max(run.last_steps.values(), default=0.0), run.metrics)]
    found = list[tuple[float, float]]()
    for step, values in rows:
        for number in (
            _number(value) for key, value in values.items() if spelled(key) == name and not _is_absent(value, run.kind)
        ):
            while found and found[-1][0] >= step:
                found.pop()
            found.append((step, number))
    is_sound = [0 <= norm < math.inf for _, norm in found]
    broken = [step for (step, _), sound in zip(found, is_sound, strict=True) if not sound]
    return [each for each, sound in zip(found, is_sound, strict=True) if sound], broken


def _is_absent(value: Any, kind: str) -> bool:
    """Return True for an empty cell, which a table gives as NaN; elsewhere NaN is what was logged."""
    return value is None or not str(value).strip() or (kind == "csv" and isinstance(value, float) and math.isnan(value))


def _is_of_routing(name: str) -> bool:
    return any(pattern.search(name) for pattern in (_ENTROPY, _DROPPED, _LOADS_OF_LAYERS)) or bool(
        _EXPERT.search(name) and _LOAD.search(name) and not _NO_LOAD.search(name)
    )


def _entropies_of(named: Mapping[str, Any]) -> list[float]:
    """Return the entropies of the layers in their order; where none is logged by layer, their mean."""
    by_layer, rest = dict[int, float](), list[float]()
    for name, value in named.items():
        found, number = _ENTROPY.search(name), number_in(value)
        if found is None or number is None or not 0 <= number < math.inf:
            continue
        nats = number * math.log(2) if found[1] == "bits" else number
        if layer := _LAYER.search(name):
            by_layer[int(layer[1])] = nats
        else:
            rest.append(nats)
    return [by_layer[layer] for layer in sorted(by_layer)] or rest[:1]


def _dropped_of(named: Mapping[str, Any]) -> tuple[list[float], list[float]]:
    """Return the dropped share of all layers, if a key names it, and that of each layer, as far as keys name shares."""
    whole, by_layer = list[float](), list[float]()
    for name, value in named.items():
        found, number = _DROPPED.search(name), number_in(value)
        if found is None or number is None or not _OF_ROUTING.search(name) or re.search("sender|receiver", name):
            continue
        share = number / 100 if found[1] in ("percent", "pct") else number
        if 0 <= share <= 1:
            (by_layer if _LAYER.search(name) else whole).append(share)
    return whole[:1], by_layer


def _shares_of(named: Mapping[str, Any]) -> list[list[float]]:
    """Return loads by layer and expert, from a key for each, or from one key with a list for each layer."""
    found = defaultdict[int, dict[int, float]](dict)
    for name, value in named.items():
        number, expert, layer = number_in(value), _EXPERT.search(name), _LAYER.search(name)
        if number is not None and expert and _LOAD.search(name) and not _NO_LOAD.search(name):
            found[int(layer[1]) if layer else 0][int(expert[1])] = number
        elif isinstance(value, list) and _LOADS_OF_LAYERS.search(name):
            found |= {layer: dict(enumerate(map(_number, each))) for layer, each in enumerate(value) if isinstance(each, list)}
    layers = [_normalized(found[layer]) for layer in sorted(found)]
    return layers if all(layers) and len(set(map(len, layers))) == 1 else []


def _number(value: Any) -> float:
    number = number_in(value)
    return math.nan if number is None else number


def _normalized(loads: Mapping[int, float]) -> list[float]:
    """Return the shares of experts 0, 1, ...; empty if one is missing, or the loads are no shares of anything."""
    values = [loads[expert] for expert in sorted(loads)]
    total = sum(values)
    if sorted(loads) != list(range(len(loads))) or len(loads) < 2 or not 0 < total < math.inf or min(values) < 0:
        return []
    return [value / total for value in values]


def _experts_of(config: Mapping[str, Any]) -> int | None:
    """Return the number of experts in a run's settings; None if they name none, or several."""
    return _only(number_in(value) for key, value in config.items() if _EXPERTS.search(spelled(key)))


def _only(numbers: Iterable[float | None]) -> int | None:
    found = {int(number) for number in numbers if number is not None and 1 < number < _MOST_EXPERTS and number == int(number)}
    return found.pop() if len(found) == 1 else None
