"""A short proof that a preregistration stands in a log, for someone who has kept the log's root and nothing else.

The root is that of the Merkle tree over the log's lines (`merkle`); who publishes it elsewhere can be held to it.
"""

from __future__ import annotations

from typing import Any

from marin_scaling.canonical_json import load_strict
from marin_scaling.errors import UsageError, VerificationError
from marin_scaling.preregistration.document_shape import SHA256, Choice, ListOf, Number, Shape, Text, check_shape
from marin_scaling.preregistration.log import Log, LogEntry, read_line
from marin_scaling.preregistration.merkle import inclusion_proof, is_included

PROOF_SHAPE: dict[str, Shape] = {
    "format_version": Choice(of=(1,)),
    "line": Text(),
    "index": Number(whole=True, least=0),
    "size": Number(whole=True, above=0),
    "root": SHA256,
    "proof": ListOf(item=SHA256),
}


def proof_document(log: Log, *, id: str) -> dict[str, Any]:
    """That a preregistration was registered, for someone who has the log's root only: its line, and the way to the root.

    `UsageError` when the log has no such line.
    """
    own = [entry for entry in log.by_id.get(id, ()) if entry.kind == "register"]
    if not own:
        raise UsageError(
            f"The log has no preregistration {id!r}.", why="A proof is of a line.", fix="Name one of: marin-scale verify all"
        )
    proof = inclusion_proof([entry.line for entry in log.entries], own[0].number)
    return {
        "format_version": 1,
        "line": own[0].line.decode("ascii"),
        "index": own[0].number,
        "size": len(log.entries),
        "root": log.root,
        "proof": [digest.hex() for digest in proof],
    }


def check_proof(raw: bytes, *, root: str, name: str) -> LogEntry:
    """The line that a proof shows to stand in the log with this root; `VerificationError` when it shows none."""
    document = load_strict(raw, name=name)
    check_shape(document, PROOF_SHAPE, name=name)
    line, size = document["line"].encode("ascii", errors="replace"), document["size"]
    proof = [bytes.fromhex(digest) for digest in document["proof"]]
    if document["root"] != root or not is_included(
        line, index=document["index"], size=size, proof=proof, root=bytes.fromhex(root)
    ):
        raise VerificationError(
            f"{name}: its line is not shown to stand in the log of {size} lines with the root {root}.",
            why="A proof leads from one line to one root; another line, place or root needs another.",
            fix="Ask for a proof from the log as it was when you kept its root, or for the log itself.",
        )
    return read_line(line, name=name)
