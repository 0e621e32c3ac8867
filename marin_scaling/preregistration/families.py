"""Families: forecasts of nearly the same run by one person, of which the lucky one could be shown and the others forgotten."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from marin_scaling.errors import MarinScalingError
from marin_scaling.preregistration.layout import SIGNATURE_NAME
from marin_scaling.preregistration.registry import read_registration, registration_folders
from marin_scaling.preregistration.run_identity import NEAR, RunSize, run_size
from marin_scaling.preregistration.signing.allowed_signers import compared_name, joined_people
from marin_scaling.preregistration.signing.signatures import fingerprint_at
from marin_scaling.preregistration.statement import Statement


@dataclass(frozen=True, kw_only=True)
class Forecaster:
    """Who made a forecast, by name and key, and of which run."""

    name: str
    key: str
    run: RunSize


def forecaster(folder: Path, statement: Statement) -> Forecaster:
    """Return who made the forecast in a folder, whose signature was verified before."""
    predicate = statement.predicate
    key = fingerprint_at(folder / SIGNATURE_NAME)
    return Forecaster(name=compared_name(predicate["registrant"]), key=key, run=run_size(predicate))


def family_numbers(made: Sequence[Forecaster | None]) -> list[int]:
    """Return a number for each forecast, the same for all of one family; None, of which nothing is known, is alone.

    One key under two names is one person, and so are two keys of one name. Near forecasts are joined from one to the next.
    """
    people = joined_people((each.name, each.key) for each in made if each)
    numbers = list(range(len(made)))
    known = sorted(((each.run.params, place, each) for place, each in enumerate(made) if each), key=lambda item: item[:2])
    for start, (params, place, each) in enumerate(known):
        for larger, other_place, other in known[start + 1 :]:
            if larger > params * (1 + NEAR * 1.1):  # a little more than 10 %; `is_near` decides
                break
            if people.are_one(each.name, other.name) and each.run.is_near(other.run):
                kept, joined = sorted((numbers[place], numbers[other_place]))
                numbers = [kept if number == joined else number for number in numbers]
    return numbers


def near_forecasts(folder: Path, statement: Statement, *, registry: Path) -> Iterator[tuple[Path, Statement]]:
    """Yield the other forecasts in a registry that are of one family with the one in `folder`."""
    found = [(folder, statement), *_others(folder, registry=registry)]
    numbers = family_numbers([forecaster(*each) for each in found])
    yield from (each for each, number in zip(found[1:], numbers[1:], strict=True) if number == numbers[0])


def _others(folder: Path, *, registry: Path) -> Iterator[tuple[Path, Statement]]:
    for other in registration_folders(registry):
        try:
            statement = read_registration(other)
            fingerprint_at(other / SIGNATURE_NAME)
        except MarinScalingError:
            continue  # sealed, or refused by the registry's own verification
        if other.name != folder.name:
            yield other, statement
