"""The versions of the statement's format: each says which files belong to a preregistration and what must stand in them.

A new one is added beside the old ones, which stay as they are: what was once signed stays verifiable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from marin_scaling.errors import DocumentError
from marin_scaling.preregistration import version_0_1, version_0_2
from marin_scaling.preregistration.document_shape import SHA256, AtLeast, Choice, ListOf, Shape, Text, check_shape
from marin_scaling.preregistration.statement_format import STATEMENT_TYPE


@dataclass(frozen=True, kw_only=True)
class FormatVersion:
    """One version: its number, the shape of the promise, and the shapes of the files that stand in it by digest."""

    number: str
    predicate_shape: Mapping[str, Any]
    subject_shapes: Mapping[str, Shape]

    @property
    def predicate_type(self) -> str:
        """What names the version in a statement."""
        return f"urn:marin-scaling:preregistration:v{self.number}"

    @property
    def subject_names(self) -> tuple[str, ...]:
        """The files beside the statement, by name."""
        return tuple(sorted(self.subject_shapes))

    @property
    def statement_shape(self) -> dict[str, Shape]:
        """The whole statement's shape."""
        return {
            "_type": Choice(of=(STATEMENT_TYPE,)),
            "subject": ListOf(item={"name": Choice(of=self.subject_names), "digest": {"sha256": SHA256}}),
            "predicateType": Choice(of=(self.predicate_type,)),
            "predicate": self.predicate_shape,
        }


VERSION_0_1 = FormatVersion(
    number="0.1", predicate_shape=version_0_1.PREDICATE_SHAPE, subject_shapes=version_0_1.SUBJECT_SHAPES
)
VERSION_0_2 = FormatVersion(
    number="0.2", predicate_shape=version_0_2.PREDICATE_SHAPE, subject_shapes=version_0_2.SUBJECT_SHAPES
)
VERSION_0_1_ENDED = datetime(2026, 12, 1, tzinfo=UTC)
"""A younger statement in the first format would say less than is asked for now; older ones stay what they are."""
VERSIONS = (VERSION_0_1, VERSION_0_2)
LATEST = VERSION_0_2


def version_of(document: Any, *, name: str) -> FormatVersion:
    """The version that a statement says it is of; `DocumentError` when it says none that is known."""
    check_shape(document, AtLeast(keys={"predicateType": Text()}), name=name)
    for version in VERSIONS:
        if document["predicateType"] == version.predicate_type:
            return version
    raise DocumentError(
        f"{name}: predicateType: {document['predicateType'][:80]!r} is no format that this version of marin-scaling knows.",
        why=f"It knows {', '.join(version.predicate_type for version in VERSIONS)}.",
        fix="Install the newest marin-scaling; or restore the file from version control.",
    )
