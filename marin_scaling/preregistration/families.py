"""Families: one person's forecasts of similar runs, which count once, so that a lucky one cannot be picked."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marin_scaling.errors import MarinScalingError
from marin_scaling.preregistration.layout import SIGNATURE_NAME
from marin_scaling.preregistration.registry import read_registration, registration_folders
from marin_scaling.preregistration.signing.allowed_signers import compared_name, fingerprint_at, joined_people, representative
from marin_scaling.preregistration.statement import Statement

NEAR = math.log(1.1)
"""Largest log ratio of parameters and of tokens within a family: 10 %."""

_NO_MORE_THAN_ZERO = 1e-6
"""Absolute tolerance for constants of a recipe near zero."""


@dataclass(frozen=True, kw_only=True)
class RunSize:
    """Kind, parameters and trained tokens of a run, for comparing runs."""

    recipe: str
    optimizer: Mapping[str, Any]
    data: Mapping[str, Any]
    params: float
    tokens: float

    def is_near(self, other: RunSize) -> bool:
        """Return True if two runs are of one kind, and their parameters and tokens differ by at most 10 %.

        Recipes are of one kind if they share a name or their constants differ by at most 10 %; texts, if they share a name
        or digest.
        """
        return (
            _are_near(self.params, other.params)
            and _are_near(self.tokens, other.tokens)
            and any(self.data.get(key) == other.data.get(key) for key in ("source", "digest"))
            and (self.recipe == other.recipe or _are_alike(self.optimizer, other.optimizer))
        )


def run_size(predicate: Mapping[str, Any]) -> RunSize:
    """Return the size of the run that a statement's predicate promises."""
    run, recipe = predicate["targetRun"], predicate["recipe"]
    return RunSize(
        recipe=run["recipe"],
        optimizer=recipe["optimizer"],
        data=recipe["data"],
        params=run["paramsTotal"],
        tokens=run["tokens"],
    )


@dataclass(frozen=True, kw_only=True)
class Forecaster:
    """Name and key of a forecast's author, and the run."""

    name: str
    key: str
    run: RunSize


def forecaster(folder: Path, statement: Statement) -> Forecaster:
    """Return the author of the forecast in a folder whose signature is verified."""
    predicate = statement.predicate
    key = fingerprint_at(folder / SIGNATURE_NAME)
    return Forecaster(name=compared_name(predicate["registrant"]), key=key, run=run_size(predicate))


def family_numbers(made: Sequence[Forecaster | None]) -> list[int]:
    """Return a number for each forecast, equal within a family; None is a family of its own.

    Names that share a key are one person, and so are keys that share a name. Families chain similar forecasts.
    """
    people = joined_people((each.name, each.key) for each in made if each)
    leads_to = {place: place for place in range(len(made))}
    known = sorted(((each.run.params, place, each) for place, each in enumerate(made) if each), key=lambda item: item[:2])
    for start, (params, place, each) in enumerate(known):
        for larger, other_place, other in map(known.__getitem__, range(start + 1, len(known))):
            if larger > params * (1 + NEAR * 1.1):  # a little more than 10 %; `is_near` decides
                break
            one, another = representative(place, leads_to), representative(other_place, leads_to)
            if one != another and people.are_one(each.name, other.name) and each.run.is_near(other.run):
                leads_to[max(one, another)] = min(one, another)
    return [representative(place, leads_to) for place in range(len(made))]


def families(forecasts: Sequence[tuple[Path, Statement]]) -> dict[str, list[tuple[Path, Statement]]]:
    """Return all forecasts of each forecast's family, by folder name, including the forecast itself."""
    numbers = family_numbers([forecaster(*each) for each in forecasts])
    members: dict[int, list[tuple[Path, Statement]]] = {}
    for each, number in zip(forecasts, numbers, strict=True):
        members.setdefault(number, []).append(each)
    return {folder.name: members[number] for (folder, _), number in zip(forecasts, numbers, strict=True)}


def readable_forecasts(registry: Path) -> Iterator[tuple[Path, Statement]]:
    """Yield the forecasts of a registry with a readable statement and signature; verification refuses the others."""
    for folder in registration_folders(registry):
        with contextlib.suppress(MarinScalingError):
            statement = read_registration(folder)
            fingerprint_at(folder / SIGNATURE_NAME)
            yield folder, statement


def _are_near(one: float, other: float) -> bool:
    return abs(math.log(one) - math.log(other)) <= NEAR


def _are_alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one.keys() == other.keys() and all(_is_like(one[key], other[key]) for key in one)


def _is_like(one: Any, other: Any) -> bool:
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=0.1, abs_tol=_NO_MORE_THAN_ZERO)
    return bool(one == other)
