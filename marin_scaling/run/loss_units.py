"""Units of losses: perplexities, bits and nats, of a whole column or of some of its runs."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from marin_scaling.errors import Finding, RunTableError, error, note
from marin_scaling.laws import Array
from marin_scaling.printable import quoted
from marin_scaling.run.audit import (
    LEAST_RUNS_OF_SURFACE,
    drop_options,
    least_absolute_surface,
    name_some,
    quadratic_in,
)
from marin_scaling.run.groups import evenly_spread
from marin_scaling.run.size_units import LOSS_UNITS, unit_named

if TYPE_CHECKING:
    import pandas as pd

_BITS_PER_NAT = 1 / math.log(2)
_LARGEST_LOSS = 12.6
"""ln of 300,000: a model that knows nothing of so large a vocabulary has this loss in nats per token."""
_LARGE_SHARE = 0.2

_CLEARER = 4.0
"""Two units count as found if they reduce the scatter about a smooth surface by this factor. Of the generated tables of
`benchmarks/audit_tables.py` those without a fault have at most 1.005, and 99 % of those with bits among nats more than 17."""
_GAP = 0.5
"""Least distance between the two kinds of runs on that surface, as a share of the step between the units."""
_SAME_STEP = 0.02
"""Two kinds of runs whose losses are 2 % more or less apart than two units are no two units."""
_MOST_CUTS = 32
_MOST_STEPS = 20
_ALIKE = math.log(1.5)
"""Logarithms of perplexities and losses of one table are so near each other, at least in the median."""


def audit_loss_unit(frame: pd.DataFrame, *, column: str, stated: str = "") -> list[Finding]:
    """Return an error if losses are perplexities, by name or level, or if some runs are in another unit than the others.

    `stated` is the user's word for the unit of the column; runs of another unit are found nevertheless.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"run": ["a", "b"], "loss": [34.0, 21.0]})
    >>> audit_loss_unit(frame, column="val_ppl")[0].code
    'loss-unit'
    """
    if mixed := _two_units(frame):
        return mixed
    if stated:
        return []
    loss = frame["loss"].to_numpy(dtype=np.float64)
    convert = "State the unit to take logarithms: --unit loss=perplexity"
    if re.search(r"perplex|(^|[^a-z])ppl([^a-z]|$)", column, re.IGNORECASE):
        return [error("loss-unit", column, f"column {quoted(column)!r} holds perplexities, not losses. {convert}")]
    large = loss > _LARGEST_LOSS
    if large.sum() > max(1, _LARGE_SHARE * len(loss)):
        message = f"{large.sum()} of {len(loss)} losses exceed {_LARGEST_LOSS}, the logarithm of a vocabulary of 300,000"
        return [error("loss-unit", column, f"{message}: perplexities in column {quoted(column)!r}? {convert}")]
    return []


def loss_in_nats(frame: pd.DataFrame, unit: str, *, column: str) -> tuple[pd.DataFrame, list[Finding]]:
    """Return the table with its losses, which are in `unit`, in nats, and a note; `RunTableError` for a perplexity below 1."""
    unit = unit_named("loss", unit)
    loss = frame["loss"].to_numpy(dtype=np.float64)
    if unit != "perplexity":
        how = "taken as nats" if unit == "nats" else "multiplied by ln 2"
        return frame.assign(loss=loss * LOSS_UNITS[unit]), [note("converted-unit", column, f"losses in {unit} were {how}")]
    if not (loss > 1).all():
        low = frame["run"][loss <= 1].iloc[0]
        raise RunTableError(
            f"column {column!r} holds {loss.min():g} for {low}, which is no perplexity.",
            why="A perplexity is the exponential of a loss above zero.",
            fix="Leave --unit loss=perplexity out, or fix the cell.",
        )
    message = "losses are the natural logarithms of the perplexities"
    return frame.assign(loss=np.log(loss)), [note("converted-unit", column, f"{message} in column {column!r}")]


def _two_units(frame: pd.DataFrame) -> list[Finding]:
    """Return an error that names the fewer runs of a table in two units of loss; none if one unit explains all."""
    loss = frame["loss"].to_numpy(dtype=np.float64)
    names = [str(name) for name in frame["run"]]
    if not (loss > 0).all():
        return []
    if len(loss) < LEAST_RUNS_OF_SURFACE:
        rows = _perplexities_by_level(loss)
    else:
        terms = quadratic_in(*(np.log10(frame[name].to_numpy(dtype=np.float64)) for name in ("flops", "params")))
        if (bits := _in_bits(frame, terms)).any():
            return [_mixed(names, bits, f"{_BITS_PER_NAT:.2f} = 1 / ln 2 times those of the others (bits and nats)")]
        rows = _perplexities(loss, terms) | _perplexities_by_level(loss)
    return [_mixed(names, rows, "perplexities and those of the others are not")] if rows.any() else []


def _mixed(names: Sequence[str], rows: NDArray[np.bool_], what: str) -> Finding:
    fewer = rows if 2 * rows.sum() <= len(rows) else ~rows
    named = name_some([names[row] for row in np.flatnonzero(fewer).tolist()])
    which = named if fewer is rows else f"all but {named}"
    message = f"two units of loss: losses of {rows.sum()} of {len(rows)} runs are {what}: {which}. Convert them in the file"
    return error("loss-unit", named, f"{message}. {drop_options(names, np.flatnonzero(fewer).tolist())}")


def _in_bits(frame: pd.DataFrame, terms: Array) -> NDArray[np.bool_]:
    """Return the runs whose log losses lie ln(1 / ln 2) above a smooth surface through the others: (run,)."""
    step, height = math.log(_BITS_PER_NAT), np.log(frame["loss"].to_numpy(dtype=np.float64))
    x, y = (np.log10(frame[name].to_numpy(dtype=np.float64)) for name in ("flops", "params"))
    first = height - least_absolute_surface(x, y, height)
    if not np.ptp(first):
        return np.zeros(len(height), dtype=bool)
    few = evenly_spread(len(height))
    starts = [values[few] > cut for values in (first, x, -x) for cut in _cuts(values[few])]
    settled = (_settled(height[few], terms[few], above, step=step) for above in starts)
    guess = min(settled, key=lambda each: each[0])[1] if starts else first[few] > step / 2
    beyond = height - terms @ (np.linalg.pinv(terms[few]) @ (height[few] - step * guess)) > step / 2
    whole = [_settled(height, terms, above, step=step) for above in (beyond, first > step / 2)]
    squares, above, off = min(whole, key=lambda each: each[0])
    if not _are_two(above) or off[above].min() - off[~above].max() < _GAP * step:
        return np.zeros(len(height), dtype=bool)
    plain = float(np.sum((height - terms @ (np.linalg.pinv(terms) @ height)) ** 2))
    fitted = np.linalg.lstsq(np.column_stack([terms, above]), height, rcond=None)[0][-1]
    is_step = abs(fitted - step) < _SAME_STEP and plain > _CLEARER**2 * squares
    return above if is_step else np.zeros(len(height), dtype=bool)


def _settled(height: Array, terms: Array, above: NDArray[np.bool_], *, step: float) -> tuple[float, NDArray[np.bool_], Array]:
    """Repeat: fit the surface, and take the runs above its middle step as shifted; return squares, these runs, and heights."""
    inverse = np.linalg.pinv(terms)  # (term, run)
    for _ in range(_MOST_STEPS):
        off = height - terms @ (inverse @ (height - step * above))
        before, above = above, off > step / 2
        if np.array_equal(before, above):
            break
    return float(np.sum((off - step * above) ** 2)), above, off


def _perplexities(loss: Array, terms: Array) -> NDArray[np.bool_]:
    """Return the runs above a cut whose logarithms go with the losses below it on one smooth surface: (run,)."""
    inverse = np.linalg.pinv(terms)  # (term, run)

    def squares(height: Array) -> float:
        return float(np.sum((height - terms @ (inverse @ height)) ** 2))

    cuts = [cut for cut in _cuts(loss) if cut >= 1]
    found = [loss > cut for cut in cuts]
    scatter = [squares(np.log(np.where(rows, np.log(np.maximum(loss, 1 + 1e-12)), loss))) for rows in found]
    best = int(np.argmin(scatter)) if found else 0
    clear = found and _are_two(found[best]) and squares(np.log(loss)) > _CLEARER**2 * scatter[best]
    return found[best] if clear else np.zeros(len(loss), dtype=bool)


def _perplexities_by_level(loss: Array) -> NDArray[np.bool_]:
    """Return the runs that exceed every loss, if their logarithms are about the losses of the others: (run,)."""
    large = loss > _LARGEST_LOSS
    if not _are_two(large):
        return np.zeros(len(loss), dtype=bool)
    apart = math.log(float(np.median(np.log(loss[large])) / np.median(loss[~large])))
    return large if abs(apart) < _ALIKE else np.zeros(len(loss), dtype=bool)


def _cuts(values: Array) -> Array:
    """Return values below the widest gaps, at most `_MOST_CUTS`: each parts the runs at itself."""
    order = np.unique(values)
    return np.asarray(order[:-1][np.argsort(-np.diff(order), kind="stable")[:_MOST_CUTS]])


def _are_two(rows: NDArray[np.bool_]) -> bool:
    return min(int(rows.sum()), int((~rows).sum())) >= 2
