"""What a forger does who holds an allowed key and knows every format: edit, sign again, log again; and what a reader then sees.

A forged registry is as whole as its forger can make it, so that a test sees the rule that stops the forgery and not the next
digest that does not fit.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ed25519
from registration_factory import CREATED_AT, signing_key
from typer.testing import CliRunner

from marin_scaling.canonical_json import dump_canonical, sha256_hex
from marin_scaling.cli.app import app
from marin_scaling.errors import MarinScalingError
from marin_scaling.preregistration.layout import LOG_NAME
from marin_scaling.preregistration.log import FIRST_PREVIOUS, write_down
from marin_scaling.preregistration.registry import allow_signer
from marin_scaling.preregistration.signing.keys import SigningKey
from marin_scaling.preregistration.signing.sshsig import make_signature

BOB, CAROL, MALLORY = (f"{name}@example.org" for name in ("bob", "carol", "mallory"))
CONDITION = "the evaluation text is gone"
Change = Callable[[dict[str, Any]], object]


def key_of(name: str) -> SigningKey:
    """The key of someone else than the registrant, the same each time."""
    return signing_key(ed25519.Ed25519PrivateKey.from_private_bytes(sha256_hex(name.encode()).encode()[:32]))


def allow(registry: Path, *names: str) -> None:
    """Let others sign, each with a key of their own."""
    for name in names:
        allow_signer(registry, principal=name, key=key_of(name).public_key, at=CREATED_AT)


def edit(path: Path, change: Change) -> None:
    """Change a JSON document, and write it in the canonical form."""
    document = json.loads(path.read_bytes())
    change(document)
    path.write_bytes(dump_canonical(document))


def sign_again(folder: Path, change: Change = lambda predicate: None, *, files: Mapping[str, bytes] | None = None) -> None:
    """Put other `files` in, change the promise, and sign all of it with the registrant's own key."""
    for name, content in (files or {}).items():
        (folder / name).write_bytes(content)

    def edited(document: dict[str, Any]) -> None:
        for subject in document["subject"]:
            subject["digest"]["sha256"] = sha256_hex((folder / subject["name"]).read_bytes())
        change(document["predicate"])

    edit(folder / "statement.json", edited)
    sign_bytes_again(folder, (folder / "statement.json").read_bytes())


def sign_bytes_again(folder: Path, statement: bytes, *, key: SigningKey | None = None) -> None:
    """Make any bytes at all the statement, with a good signature over exactly these, and log them as if first seen so."""
    (folder / "statement.json").write_bytes(statement)
    (folder / "statement.json.sig").write_bytes(make_signature(statement, private_key=(key or signing_key()).private_key))
    log_again(folder.parent)


def edited(folder: Path, name: str, change: Change) -> dict[str, bytes]:
    """A file of the folder as it would be after a change, for `sign_again`."""
    document = json.loads((folder / name).read_bytes())
    change(document)
    return {name: dump_canonical(document)}


def log_again(registry: Path) -> None:
    """Write the whole log anew, as if nothing had ever been otherwise."""
    (registry / LOG_NAME).unlink(missing_ok=True)
    write_down(registry, at=CREATED_AT)


def log_now(registry: Path) -> None:
    """Write the whole log anew, as if all of it had been received just now."""
    (registry / LOG_NAME).unlink()
    write_down(registry, at=datetime.now(UTC))


def log_lines(registry: Path) -> list[bytes]:
    """The lines of the log, without their ends."""
    return (registry / LOG_NAME).read_bytes().split(b"\n")[:-1]


def log_entries(registry: Path) -> list[dict[str, Any]]:
    """What the lines say."""
    return [json.loads(line) for line in log_lines(registry)]


def write_lines(registry: Path, lines: Iterable[bytes]) -> None:
    """Write other lines into the log."""
    (registry / LOG_NAME).write_bytes(b"".join(line + b"\n" for line in lines))


def chain(registry: Path, entries: Iterable[Mapping[str, Any]]) -> None:
    """Write other entries into the log, each with the right number and the right digest of the line before."""
    made: list[bytes] = []
    for number, entry in enumerate(entries):
        previous = sha256_hex(made[-1]) if made else FIRST_PREVIOUS
        document = {**entry, "seq": number, "prev": previous}
        made.append(json.dumps(document, sort_keys=True, separators=(",", ":")).encode())
    write_lines(registry, made)


def said_by(command: str, root: Path, *options: str) -> tuple[int, str]:
    """Exit status of `marin-scale verify` or `check` on the registry in `root`, and all that it says."""
    place = ("--registry", str(root / "preregistrations"), "--runs", str(root / "runs"))
    with contextlib.chdir(root):  # git is asked about the repository of the current directory
        done = CliRunner().invoke(app, [command, "all", *place, *options])
    if isinstance(done.exception, MarinScalingError):  # as `marin-scale` itself ends: a message, and this status
        return done.exception.exit_status, f"{done.output}error: {done.exception}"
    assert done.exception is None or isinstance(done.exception, SystemExit), "a traceback is no refusal"
    return done.exit_code, done.output


def refused(root: Path, *fragments: str, command: str = "verify", options: Iterable[str] = ()) -> None:
    """That the answer is no, in one line of the message that has all `fragments`: which file, key or line, and why."""
    status, said = said_by(command, root, *options)
    assert status == 1, said
    assert any(all(fragment in line for fragment in fragments) for line in said.splitlines()), said
