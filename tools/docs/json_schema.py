"""JSON Schemas of the files of a preregistration, for editors and other programs, from the models that check the files.

A schema allows a little more than is accepted: what the fields must mean together is checked in `statement`.
"""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from marin_scaling.preregistration.events.amendment import AmendmentFile
from marin_scaling.preregistration.events.notice import NoticeFile
from marin_scaling.preregistration.events.seal import Opening, SealFile
from marin_scaling.preregistration.format import StatementFile

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_BESIDE: dict[str, Any] = {"amendment": AmendmentFile, "notice": NoticeFile, "opening": Opening, "seal": SealFile}


def statement_schema() -> dict[str, Any]:
    """Return the schema of `statement.json`.

    >>> statement_schema()["title"]
    'marin-scaling preregistration 1'
    """
    return _schema(StatementFile, "preregistration")


def schemas_beside() -> dict[str, dict[str, Any]]:
    """Return the schemas of the files beside a statement, by name and version.

    >>> sorted(schemas_beside())
    ['amendment-1', 'notice-1', 'opening-1', 'seal-1']
    """
    return {f"{name}-1": _schema(model, name) for name, model in _BESIDE.items()}


def _schema(model: Any, name: str) -> dict[str, Any]:
    return {"$schema": _DIALECT} | TypeAdapter(model).json_schema() | {"title": f"marin-scaling {name} 1"}
