"""Which targets are one run, and which are nearly one: names and nominal budgets do not tell runs apart."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LABELS = frozenset({"budget_flops", "ladder", "role", "statement_sha256", "data_order_seed", "format_version"})
"""Keys of a target that name it and change nothing of its training. The seed is none of them: another seed is another run."""
NEAR = math.log(1.1)
"""Two runs are nearly one if their parameters and tokens differ by at most 10 %."""

_NO_MORE_THAN_ZERO = 1e-6
"""A difference between two constants of a recipe that changes no run: a weight of 1e-30 is no weight."""


@dataclass(frozen=True, kw_only=True)
class RunSize:
    """What decides whether two runs are nearly one: kind of run, parameters and trained tokens."""

    recipe: str
    optimizer: Mapping[str, Any]
    data: Mapping[str, Any]
    params: float
    tokens: float

    def is_near(self, other: RunSize) -> bool:
        """Return True if two runs are of one kind, and their parameters and tokens differ by at most 10 %.

        A recipe under another name whose constants differ by at most 10 % is the same kind, and so is a text with the same
        name or the same digest.
        """
        return (
            _are_near(self.params, other.params)
            and _are_near(self.tokens, other.tokens)
            and any(self.data.get(key) == other.data.get(key) for key in ("source", "digest"))
            and (self.recipe == other.recipe or _are_alike(self.optimizer, other.optimizer))
        )


def run_size(predicate: Mapping[str, Any]) -> RunSize:
    """Return the size of the run that a statement's predicate promises; the first format says less of its kind."""
    run, recipe = predicate["targetRun"], predicate.get("recipe", {})
    return RunSize(
        recipe=run.get("recipe", ""),
        optimizer=recipe.get("optimizer", {}),
        data=recipe.get("data", {}),
        params=run["paramsTotal"],
        tokens=run["tokens"],
    )


def identity(target: bytes) -> str:
    """Return what two targets have in common if they are one run: the content of `target.json` without its labels.

    >>> identity(b'{"seed": 0, "ladder": "a"}') == identity(b'{"ladder": "b", "seed": 0, "budget_flops": 1e9}')
    True
    """
    try:
        document = json.loads(target)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):  # it is refused where it is verified
        return target.decode("latin-1")
    return json.dumps({key: document[key] for key in sorted(document.keys() - LABELS)}, sort_keys=True)


def _are_near(one: float, other: float) -> bool:
    return abs(math.log(one) - math.log(other)) <= NEAR


def _are_alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one.keys() == other.keys() and all(_is_like(one[key], other[key]) for key in one)


def _is_like(one: Any, other: Any) -> bool:
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=0.1, abs_tol=_NO_MORE_THAN_ZERO)
    return bool(one == other)
