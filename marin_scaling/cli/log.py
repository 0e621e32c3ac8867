"""`marin-scale log`: a registry's chained log, its root, and proofs for those who kept only that."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from marin_scaling.cli.app import app

if TYPE_CHECKING:
    from marin_scaling.preregistration.log import LogEntry

_REGISTRY = typer.Option(Path("preregistrations"), "--registry", help="Where preregistrations lie.")
_PROVE = typer.Option(None, "--prove", metavar="NAME", help="Print a proof that this one is in the log, as JSON.")
_PROOF = typer.Option(None, "--check-proof", metavar="FILE", help="Check such a proof against --root.")
_ROOT = typer.Option(None, "--root", metavar="HEX", help="The log's root, as you kept it.")
_HEX_DIGITS = 64


@app.command("log")
def log(
    registry: Path = _REGISTRY, prove: str | None = _PROVE, check_proof: Path | None = _PROOF, root: str | None = _ROOT
) -> None:
    """Write into the log what lies in the registry and is not in it yet, and print its root.

    preregister, sign and check write their lines by themselves; this is for a branch whose lines came second: take the other
    log as it is, and type this. The root is one digest for all lines; publish it elsewhere, and nobody can change the log
    behind it.

    Example: marin-scale log
    """
    if check_proof is not None:
        _check(check_proof, root=root)
    elif prove is not None:
        _prove(registry, name=prove)
    else:
        _write_down(registry)


def _write_down(registry: Path) -> None:
    from datetime import UTC, datetime

    from marin_scaling.preregistration.log import log_path, read_log, write_down

    added = write_down(registry, at=datetime.now(UTC))
    for entry in added:
        typer.echo(f"line {entry.number + 1}: {entry.kind} {entry.id}")
    if added:
        _say_what_was_logged_before(added, registry=registry)
    found = read_log(registry)
    typer.echo(f"{log_path(registry)} has {len(found.entries)} lines; root {found.root}")


def _say_what_was_logged_before(added: Sequence[LogEntry], *, registry: Path) -> None:
    """A log that was cut is written anew with the time of today, by which amendments and notices count."""
    from marin_scaling.check.base_branch import logged_there
    from marin_scaling.preregistration.log import log_path
    from marin_scaling.units import counted

    before = {(entry.id, *entry.files): entry for entry in logged_there("HEAD", registry_dir=registry).entries}
    again = [then for entry in added if (then := before.get((entry.id, *entry.files))) and then.logged_at != entry.logged_at]
    if again:
        typer.echo(
            f"note: {counted(len(again), 'line')} of these stood in the log of your last commit, {again[0].id} since "
            f"{again[0].logged_at}. From now on they count as of today. If that log was lost, and not given up in a merge: "
            f"git checkout HEAD -- {log_path(registry)}"
        )


def _prove(registry: Path, *, name: str) -> None:
    import json

    from marin_scaling.preregistration.log import read_log
    from marin_scaling.preregistration.log_proof import proof_document

    typer.echo(json.dumps(proof_document(read_log(registry), id=name), indent=1))


def _check(path: Path, *, root: str | None) -> None:
    from marin_scaling.durable_files import read_bytes
    from marin_scaling.errors import UsageError
    from marin_scaling.preregistration.log_proof import check_proof

    if root is None or len(root) != _HEX_DIGITS or set(root) - set("0123456789abcdef"):
        raise UsageError(
            f"--check-proof {path} needs --root with {_HEX_DIGITS} hexadecimal digits.",
            why="A proof leads to a root, and only the one that you kept yourself shows anything.",
            fix="Give the root that marin-scale log printed when you kept it.",
        )
    entry = check_proof(read_bytes(path), root=root, name=str(path))
    typer.echo(f"{entry.id} stands in that log, line {entry.number + 1}, since {entry.logged_at}.")
