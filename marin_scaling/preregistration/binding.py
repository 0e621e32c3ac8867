"""The run carries its forecast: the statement's digest is an input of the run from step 0, and seeds its data order.

So a run trained before the statement existed cannot be presented as its outcome, a statement cannot be moved to another
run, and of many statements only one can belong to a run. The seed has 64 bits: matching a finished run to a new statement
takes 2^64 attempts.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marin_scaling.canonical_json import digest_of, sha256_hex
from marin_scaling.durable_files import read_bytes
from marin_scaling.errors import StatementError

if TYPE_CHECKING:
    from marin_scaling.run.run_spec import RunSpec


def order_seed(statement: bytes) -> int:
    """Seed of the data order: the first 8 bytes of the statement's SHA-256, as an unsigned integer.

    >>> order_seed(b"") == 0xE3B0C44298FC1C14
    True
    """
    return int(sha256_hex(statement)[:16], 16)


def unbound_spec(target: RunSpec) -> RunSpec:
    """The target as it stands in `target.json`: no statement, and a data order of 0."""
    return target.model_copy(update={"statement_sha256": None, "data_order_seed": 0})


def bound_spec(target: RunSpec, *, statement: bytes) -> RunSpec:
    """The spec of the run that answers `statement` (its exact bytes): what must be trained, and what `check` looks for.

    `StatementError` when `target` is not a target, or is bound to another statement already.
    """
    if target.role != "target" or target.statement_sha256 not in (None, sha256_hex(statement)):
        raise StatementError(
            f"A run of the role {target.role!r} with the statement {target.statement_sha256} cannot answer this statement.",
            why="One run answers one forecast, the one that it carried from its first step.",
            fix="Take the spec in target.json beside the statement.",
        )
    return target.model_copy(update=_binding(statement))


def answering_spec(folder: Path) -> RunSpec:
    """The spec of the run that answers the preregistration in `folder`, from its `target.json` and `statement.json`."""
    from marin_scaling.run.run_spec import read_spec

    path = folder / "target.json"
    return bound_spec(read_spec(read_bytes(path), name=str(path)), statement=read_bytes(folder / "statement.json"))


def bound_digest(target: Mapping[str, Any], *, statement: bytes) -> str:
    """Digest of the bound spec, from the content of `target.json`: the name of the run to look for."""
    return digest_of({**target, **_binding(statement)})


def _binding(statement: bytes) -> dict[str, Any]:
    return {"statement_sha256": sha256_hex(statement), "data_order_seed": order_seed(statement)}
