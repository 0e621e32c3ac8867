"""People behind names and keys: names that share a key are one person, and so are all keys of one name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from marin_scaling.preregistration.allowed_signers import AllowedSigner, compared_name, read_allowed_signers
from marin_scaling.regular_files import is_present


@dataclass(frozen=True, kw_only=True)
class People:
    """The people of a list of signers: `person_of` maps each name, as it is compared, to a name that stands for the person."""

    person_of: Mapping[str, str]

    def of(self, name: str) -> str:
        """Return the name that stands for a person; a name that is not listed stands for itself."""
        compared = compared_name(name)
        return self.person_of.get(compared, compared)

    def are_one(self, one: str, other: str) -> bool:
        """Return True if two names are of one person."""
        return self.of(one) == self.of(other)

    def count(self, names: Iterable[str], *, besides: str) -> int:
        """Return how many people these names are, without one of them."""
        return len({self.of(name) for name in names} - {self.of(besides)})


def listed_people(allowed_signers: Path) -> People:
    """Return the people of the `allowed_signers` at a path; without that file every name is a person."""
    return people_of(read_allowed_signers(allowed_signers) if is_present(allowed_signers) else ())


def people_of(signers: Iterable[AllowedSigner]) -> People:
    """Return the people of these lines."""
    return joined_people((each.principal, each.key.fingerprint) for each in signers)


def joined_people(pairs: Iterable[tuple[str, str]]) -> People:
    """Return the people of pairs of a name and a key.

    >>> people = joined_people([("ada@a", "key 1"), ("bob@b", "key 2"), ("carol@c", "key 1")])
    >>> people.are_one("ada@a", "Carol@c"), people.are_one("ada@a", "bob@b")
    (True, False)
    """
    leads_to: dict[str, str] = {}
    owner_of: dict[str, str] = {}
    for principal, key in pairs:
        name = compared_name(principal)
        owner = owner_of.setdefault(key, leads_to.setdefault(name, name))
        leads_to[_person(name, leads_to)] = _person(owner, leads_to)
    return People(person_of={name: _person(name, leads_to) for name in leads_to})


def _person(name: str, leads_to: dict[str, str]) -> str:
    """Return the name at the end of a chain of names, and shorten the chain: long lists take linear time."""
    while leads_to[name] != name:
        leads_to[name] = leads_to[leads_to[name]]
        name = leads_to[name]
    return name
