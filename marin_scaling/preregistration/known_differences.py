"""Constants of the recipe that were one thing in all of a ladder's runs and are another in its target: these must be declared.

Seen in the specs of the runs. A constant that acts through a formula only, as a tuned learning rate does, is not seen here: the
formula gives the target another number in any case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_SIZES = {"hidden_dim"}
"""Without a formula, and meant to differ."""


def undeclared_differences(
    rungs: Sequence[Mapping[str, Any]], *, target: Mapping[str, Any], recipe: Mapping[str, Any], declared: Sequence[str]
) -> list[str]:
    """What differs, as `name: value of the ladder's runs, value of the target`; empty where the statement names all of it.

    `rungs` and `target` are the content of spec.json and target.json, `recipe` that of recipe.json: what has a formula there
    may follow the size. `declared` are the known differences; one of them has to have the name in it.

    >>> rung, target = ({"model": {}, "optimizer": {"z_loss_weight": each}} for each in (1e-7, 0.0))
    >>> undeclared_differences([rung], target=target, recipe={"numbers": []}, declared=["another corpus"])
    ['z_loss_weight: 1e-07 in the runs of the ladder, 0.0 in the target']
    >>> undeclared_differences([rung], target=target, recipe={"numbers": []}, declared=["no z_loss_weight"])
    []
    """
    by_formula = {number["name"] for number in recipe["numbers"] if number["formula"]}
    found = []
    for name, value in _constants(target).items():
        before = [_constants(rung).get(name) for rung in rungs]
        is_one = all(each == before[0] for each in before)
        if name not in by_formula | _SIZES and before and is_one and before[0] != value:
            found.append((name, f"{name}: {before[0]!r} in the runs of the ladder, {value!r} in the target"))
    return [said for name, said in found if not any(name in words for words in declared)]


def _constants(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {**spec["model"], **spec["optimizer"]}
