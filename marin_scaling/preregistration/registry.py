"""The registry: `preregistrations/<date>-<slug>/`, one folder a forecast, and `allowed_signers` beside them.

A folder appears whole, in one step, and is never changed; only `outcome.json` is added later. What a forecast says is not known
here, except which target it is about.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from marin_scaling.canonical_json import load_strict, sha256_hex
from marin_scaling.errors import SigningError, StatementError, StorageError, UsageError
from marin_scaling.files import publish_folder, read_bytes, replace_file
from marin_scaling.preregistration.layout import (
    _SLUG,
    ATTRIBUTES,
    ATTRIBUTES_NAME,
    NOTICE_NAME,
    OUTCOME_NAME,
    SIGNERS_NAME,
    STATEMENT_NAME,
    is_sealed,
    notice_names,
)
from marin_scaling.preregistration.signing.allowed_signers import (
    compared_name,
    parse_allowed_signers,
    read_allowed_signers,
    signer_line,
)
from marin_scaling.preregistration.signing.sshsig import NAMESPACE, PublicKey
from marin_scaling.preregistration.statement import Statement, read_statement
from marin_scaling.units import counted
from marin_scaling.untrusted_files import is_present

_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
REGISTRY = Path("preregistrations")
"""The registry of a repository, below its root."""

LABELS = frozenset({"budget_flops", "ladder", "role", "statement_sha256", "data_order_seed", "format_version"})
"""Keys of a target that name it and change nothing of its training. The seed is none of them: another seed is another run."""


def identity(target: bytes) -> str:
    """Return what two targets have in common if they are one run: the content of `target.json` without its labels.

    >>> identity(b'{"seed": 0, "ladder": "a"}') == identity(b'{"ladder": "b", "seed": 0, "budget_flops": 1e9}')
    True
    """
    try:
        document = json.loads(target)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):  # it is refused where it is verified
        return target.decode("latin-1")
    return json.dumps({key: document[key] for key in sorted(document.keys() - LABELS)}, sort_keys=True)


def registration_id(slug: str, *, created_at: datetime) -> str:
    """Name of the folder: the day (UTC) and the slug.

    >>> registration_id("hero-d2560", created_at=datetime(2026, 11, 20, 8, tzinfo=UTC))
    '2026-11-20-hero-d2560'
    """
    if not _SLUG.fullmatch(slug):
        raise UsageError(
            f"{slug!r} cannot name a preregistration.",
            why="It becomes a folder and part of a web address.",
            fix="Use lower-case letters, digits and hyphens, at most 64, like hero-d2560.",
        )
    return f"{created_at.astimezone(UTC):%Y-%m-%d}-{slug}"


def register(registry_dir: Path, *, slug: str, created_at: datetime, files: Mapping[str, bytes]) -> Path:
    """Publish the files of one preregistration in one atomic step and return its folder.

    `StatementError` names the first preregistration when one for the same `target.json` stands already.
    """
    registrant = read_statement(files[STATEMENT_NAME], name=STATEMENT_NAME).predicate["registrant"]
    twin = find_twin(registry_dir, target=files["target.json"], registrant=registrant)
    if standing := find_registration(registry_dir, target=files["target.json"]) or twin:
        raise StatementError(
            f"{standing} is a preregistration for this target already.",
            why="Of two forecasts for one run, one could be chosen after the fact.",
            fix=f"Keep the first (train its target if it is not trained yet, then marin-scale check {standing.name}), "
            f"or, if nothing was trained, withdraw it (marin-scale registry withdraw {standing.name} --reason WHY) and rerun "
            "this command.",
        )
    folder = registry_dir / registration_id(slug, created_at=created_at)
    require_free(folder)
    publish_registration(folder, files)
    return folder


def require_free(folder: Path) -> None:
    """`StatementError` where another forecast has this name."""
    if is_present(folder):
        raise StatementError(
            f"{folder} is there already, for another target.",
            why="Every forecast has a folder of its own, and nothing is written over.",
            fix="Give this one another name: --slug NAME.",
        )


def publish_registration(folder: Path, files: Mapping[str, bytes]) -> None:
    """Let a folder of the registry appear, whole; git keeps the exact bytes of all in it."""
    publish_folder(folder, files)
    attributes = folder.parent / ATTRIBUTES_NAME
    if not is_present(attributes):
        replace_file(attributes, ATTRIBUTES)


def find_registration(registry_dir: Path, *, target: bytes) -> Path | None:
    """Return the folder whose `target.json` has exactly these bytes, or None; a withdrawn forecast without a run is none."""
    for folder in registration_folders(registry_dir):
        path = folder / "target.json"
        if is_present(path) and read_bytes(path) == target and not is_withdrawn_unrun(folder):
            return folder
    return None


def is_withdrawn_unrun(folder: Path) -> bool:
    """Return True if a forecast has a withdrawal by somebody who had seen no step, and neither an outcome nor a recorded run.

    Verification decides whether the withdrawal is signed by the registrant and was received in time.
    """
    present = [path.name for path in folder.iterdir()]
    withdrawals = [name for name in notice_names(present) if name.endswith("withdraw")]
    if not withdrawals or OUTCOME_NAME in present or _has_a_run(folder):
        return False
    path = folder / withdrawals[0] / NOTICE_NAME
    document = load_strict(read_bytes(path), name=str(path)) if is_present(path) else None
    return isinstance(document, dict) and document.get("target_steps_seen") == 0


def _has_a_run(folder: Path) -> bool:
    """True if the run store beside the registry has the run that is bound to this statement."""
    target, bound = load_strict(read_bytes(folder / "target.json"), name="target.json"), read_bytes(folder / STATEMENT_NAME)
    ladder = target.get("ladder") if isinstance(target, dict) else None
    if not isinstance(ladder, str) or not _FILE_NAME.fullmatch(ladder):
        return True  # verification refuses it
    specs = folder.absolute().parent.parent.joinpath("runs", ladder).glob("*/spec.json")
    return any(sha256_hex(bound).encode() in read_bytes(path) for path in specs)


def find_twin(registry_dir: Path, *, target: bytes, registrant: str) -> Path | None:
    """Return a registrant's forecast of the same run, whatever its ladder and nominal budget are called; None without one."""
    wanted = identity(target)
    for folder in registration_folders(registry_dir):
        path = folder / "target.json"
        if is_present(path) and identity(read_bytes(path)) == wanted and not is_withdrawn_unrun(folder):
            by = read_registration(folder).predicate["registrant"]
            if compared_name(by) == compared_name(registrant):
                return folder
    return None


def find_statement(registry_dir: Path, *, sha256: str) -> Path | None:
    """The folder whose statement has this digest, which is what its run carries; None where it is not in this registry."""
    for folder in registration_folders(registry_dir):
        path = folder / STATEMENT_NAME
        if is_present(path) and sha256_hex(read_bytes(path)) == sha256:
            return folder
    return None


def registration_folders(registry_dir: Path) -> list[Path]:
    """All preregistrations, by name; empty when there is no registry yet."""
    if not registry_dir.is_dir():
        return []
    return sorted(path for path in registry_dir.iterdir() if path.is_dir() and not path.name.startswith("."))


def find_folders(name: str, *, registry_dir: Path) -> list[Path]:
    """The folders that a person means: `all`, the name of one in the registry, or a path to one."""
    if not registry_dir.is_dir() and not is_present(Path(name) / STATEMENT_NAME):
        raise StorageError(
            f"{registry_dir} is not a folder{'' if name == 'all' else f', and {name} holds no {STATEMENT_NAME}'}.",
            why="Preregistrations are read from there.",
            fix="Go to the root of the repository, or name the folder with --registry.",
        )
    if name == "all":
        return registration_folders(registry_dir)
    by_name = {folder.name: folder for folder in registration_folders(registry_dir)}
    if name in by_name:
        return [by_name[name]]
    if Path(name).is_dir():
        return [Path(name).absolute()]
    known = ", ".join(by_name) or "none"
    raise UsageError(
        f"There is no preregistration {name!r}.",
        why=f"{registry_dir} holds: {known}.",
        fix="Name one of these." if by_name else "Make the first: marin-scale preregister ladders/NAME.yaml",
    )


def one_folder(which: str, *, registry: Path, sealed: bool = False) -> Path:
    """Return the one folder of that name or path; `UsageError` for `all`, and for a sealed one unless `sealed`."""
    if which == "all":
        raise UsageError(
            "This is done for one preregistration at a time.", why="Each speaks of a run of its own.", fix="Name one folder."
        )
    (folder,) = find_folders(which, registry_dir=registry)
    if is_sealed(folder) and not sealed:
        raise UsageError(
            f"{folder.name} is still sealed.",
            why="What is said of a forecast is said beside it, where all can read both.",
            fix=f"Show it first: marin-scale registry reveal {folder.name}",
        )
    return folder


def signers_path(folder: Path) -> Path:
    """The `allowed_signers` that speaks for a preregistration: the one beside its folder."""
    return folder.absolute().parent / SIGNERS_NAME


def require_readable_signers(registry_dir: Path) -> None:
    """`DocumentError` where the registry has a list of signers that nobody can read, also before the first forecast."""
    path = registry_dir / SIGNERS_NAME
    if is_present(path):
        read_allowed_signers(path)


def read_registration(folder: Path) -> Statement:
    """The statement of one folder, sound in itself; whether it is authentic is for `check` to say."""
    path = folder / STATEMENT_NAME
    return read_statement(read_bytes(path), name=str(path))


def allow_signer(registry_dir: Path, *, principal: str, key: PublicKey, at: datetime) -> str | None:
    """Let a principal sign with a key, and say so in one line; None when a line allows it already.

    A key whose line does not cover `at` (expired, other namespace) is refused: a second line would undo the first.
    """
    path = registry_dir / SIGNERS_NAME
    raw = read_bytes(path) if is_present(path) else b""
    same_key = [line for line in parse_allowed_signers(raw, name=str(path)) if line.key.wire == key.wire]
    known = [line for line in same_key if line.names(principal)]
    if same_key and not known:
        raise SigningError(
            f"The key {key.fingerprint} is listed as {same_key[0].principal} in {path}, not as {principal}.",
            why="One key that speaks for two names would make two people of one.",
            fix=f"Sign as {same_key[0].principal} (--as), or with another key (--key).",
        )
    refusals = [line.refusal(namespace=NAMESPACE, at=at) for line in known]
    if None in refusals:
        return None
    if refusals:
        raise SigningError(
            f"{principal} may not sign with the key {key.fingerprint}: {refusals[0]}.",
            why="What a maintainer has limited is not widened by the next signature.",
            fix="Sign with another key (--key), or let a maintainer change that line.",
        )
    added = signer_line(principal, key=key, namespace=NAMESPACE)
    before = raw if not raw or raw.endswith(b"\n") else raw + b"\n"
    replace_file(path, before + added.encode("ascii") + b"\n")
    others = sum(line.names(principal) for line in parse_allowed_signers(raw, name=str(path)))
    beside = f", beside {counted(others, 'other key')} of that name" if others else ""
    return f"added {principal} with the key {key.fingerprint} to {path}{beside}"
