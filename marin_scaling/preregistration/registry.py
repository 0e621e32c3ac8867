"""Registry: `preregistrations/<date>-<slug>/`, one folder per forecast, and `allowed_signers` beside them; families.

A folder is published atomically and never changed; only events such as `outcome.json` are added later. A family is all of one
person's forecasts of similar runs; it counts once, so that a lucky one cannot be picked.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from marin_scaling.canonical_json import load_strict, sha256_hex
from marin_scaling.errors import (
    MarinScalingError,
    SigningError,
    StatementError,
    StorageError,
    UsageError,
    VerificationError,
    refuse,
)
from marin_scaling.files import publish_folder, read_bytes, read_plain, replace_file
from marin_scaling.git import NOT_COMMITTED, restoring_command
from marin_scaling.preregistration.layout import (
    _SLUG,
    AMENDMENT_NAME,
    ATTRIBUTES,
    ATTRIBUTES_NAME,
    NOTICE_NAME,
    OUTCOME_NAME,
    SEAL_NAME,
    SIGNATURE_NAME,
    SIGNERS_NAME,
    STATEMENT_NAME,
    amendment_names,
    is_sealed,
    notice_names,
    observation_files,
)
from marin_scaling.preregistration.outside_format import OUTSIDE
from marin_scaling.preregistration.signing.allowed_signers import (
    compared_name,
    fingerprint_at,
    joined_people,
    parse_allowed_signers,
    read_allowed_signers,
    representative,
    signer_line,
)
from marin_scaling.preregistration.signing.sshsig import NAMESPACE, PublicKey, verify_signature
from marin_scaling.preregistration.statement import Statement, read_statement, read_subject
from marin_scaling.units import counted
from marin_scaling.untrusted_files import is_present

_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
REGISTRY = Path("preregistrations")
"""Default registry, below the root of a repository."""

LABELS = frozenset({"budget_flops", "ladder", "role", "statement_sha256", "data_order_seed", "format_version"})
"""Keys of a target that label it without affecting its training. The seed is not one: another seed is another run."""


def identity(target: bytes) -> str:
    """Return what two targets have in common if they are one run: the content of `target.json` without its labels.

    Outside runs are one if their outcome is read from one key of one run of a tracker.

    >>> identity(b'{"seed": 0, "ladder": "a"}') == identity(b'{"ladder": "b", "seed": 0, "budget_flops": 1e9}')
    True
    """
    try:
        document = json.loads(target)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):  # it is refused where it is verified
        return target.decode("latin-1")
    outcome = document.get("outcome")
    if document.get("role") == OUTSIDE and isinstance(outcome, dict):
        return json.dumps([compared_name(str(outcome.get(key)).strip()) for key in ("project", "run", "key")])
    return json.dumps({key: document[key] for key in sorted(document.keys() - LABELS)}, sort_keys=True)


def outside_runs(folder: Path) -> list[str]:
    """Return the runs from whose logs the outcome of an outside run is read, as `run_key`: the promised one, then its restarts.

    Empty for a run of this tool.
    """
    target = _object_at(folder / "target.json")
    outcome = target.get("outcome")
    if target.get("role") != OUTSIDE or not isinstance(outcome, dict):
        return []
    names = [name for name in notice_names(path.name for path in folder.iterdir()) if name.endswith("-restart")]
    runs = [outcome.get("run"), *(_object_at(folder / name / NOTICE_NAME).get("run") for name in names)]
    return [run_key(outcome, run=run) for run in runs]


def run_key(outcome: Mapping[str, Any], *, run: object = None) -> str:
    """Return project and run of an outcome's source, or another `run` of that project, in a form for comparison."""
    return compared_name(f"{outcome.get('project')}: {outcome.get('run') if run is None else run}".strip())


def claimant(registry_dir: Path, *, run: str, promised: str) -> Path | None:
    """Return a forecast of another promised run whose outcome is read from `run`; None if there is none."""
    forecasts = ((folder, outside_runs(folder)) for folder in registration_folders(registry_dir))
    return next((folder for folder, runs in forecasts if run in runs and runs[0] != promised), None)


def _object_at(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; empty for anything else, which is refused where it is verified."""
    try:
        document = json.loads(read_bytes(path)) if is_present(path) else None
    except (ValueError, RecursionError):
        document = None
    return document if isinstance(document, dict) else {}


def registration_id(slug: str, *, created_at: datetime) -> str:
    """Return the name of the folder: the day (UTC) and the slug.

    >>> registration_id("hero-d2560", created_at=datetime(2026, 11, 20, 8, tzinfo=UTC))
    '2026-11-20-hero-d2560'
    """
    if not _SLUG.fullmatch(slug):
        raise UsageError(
            f"{slug!r} is not a valid slug.",
            why="A slug becomes a folder and part of a web address.",
            fix="Use at most 64 lower-case letters, digits and hyphens, such as hero-d2560.",
        )
    return f"{created_at.astimezone(UTC):%Y-%m-%d}-{slug}"


def register(registry_dir: Path, *, slug: str, created_at: datetime, files: Mapping[str, bytes]) -> Path:
    """Publish the files of one preregistration atomically and return its folder.

    `StatementError` names an existing preregistration of the same `target.json`.
    """
    registrant = read_statement(files[STATEMENT_NAME], name=STATEMENT_NAME).predicate["registrant"]
    folder = registry_dir / registration_id(slug, created_at=created_at)
    require_unforecast(registry_dir, target=files["target.json"], registrant=registrant)
    require_free(folder)
    publish_registration(folder, files)
    return folder


def require_unforecast(registry_dir: Path, *, target: bytes, registrant: str) -> None:
    """Raise `StatementError` if this person may not forecast this target any more: it has a forecast, or a known outcome."""
    for folder in registration_folders(registry_dir):
        path = folder / "target.json"
        is_known = is_present(folder / OUTCOME_NAME) and is_outside_target(target)
        if is_known and is_present(path) and identity(read_bytes(path)) == identity(target):
            raise StatementError(
                f"{folder} has the outcome of this run.",
                why="A known loss cannot be forecast.",
                fix=f"See it: marin-scale check {folder.name}. Forecast a run that has not begun.",
            )
    outcome = json.loads(target).get("outcome") if is_outside_target(target) else None
    run = run_key(outcome) if outcome else ""
    if outcome and (other := claimant(registry_dir, run=run, promised=run)):
        raise StatementError(
            f"{other} reads its outcome from {outcome['run']}, a declared restart of its run.",
            why="One run cannot answer forecasts of two runs.",
            fix="Forecast a run of its own.",
        )
    if standing := standing_forecast(registry_dir, target=target, registrant=registrant):
        raise StatementError(
            f"{standing} already forecasts this target.",
            why="With two forecasts of one run, the better one could be picked afterwards.",
            fix=f"{_answer(target, standing)}. If nothing was trained, withdraw it "
            f"(marin-scale registry withdraw {standing.name} --reason WHY) and rerun this command.",
        )


def standing_forecast(registry_dir: Path, *, target: bytes, registrant: str) -> Path | None:
    """Return the forecast that refuses another one of this target by this person; None if there is none.

    An outside run may have a forecast by each person.
    """
    twin = find_twin(registry_dir, target=target, registrant=registrant)
    return twin if is_outside_target(target) else find_registration(registry_dir, target=target) or twin


def is_outside_target(target: bytes) -> bool:
    """Return True if this `target.json` is a run that another trainer trains."""
    document = json.loads(target)
    return isinstance(document, dict) and document.get("role") == OUTSIDE


def _answer(target: bytes, folder: Path) -> str:
    if is_outside_target(target):
        return f"Record its outcome (marin-scale outcome {folder.name} --log PATH)"
    return f"Train its target (marin-scale run {folder.name})"


def require_free(folder: Path) -> None:
    """Raise `StatementError` if another forecast has this name."""
    if is_present(folder):
        raise StatementError(
            f"{folder} exists already, for another target.",
            why="Every forecast has its own folder.",
            fix="Use another name: --slug NAME",
        )


def publish_registration(folder: Path, files: Mapping[str, bytes]) -> None:
    """Publish a folder of the registry atomically; git keeps the exact bytes of its files."""
    publish_folder(folder, files)
    attributes = folder.parent / ATTRIBUTES_NAME
    if not is_present(attributes):
        replace_file(attributes, ATTRIBUTES)


def find_registration(registry_dir: Path, *, target: bytes) -> Path | None:
    """Return the folder with exactly this `target.json`, or None; a withdrawn forecast without a run does not count."""
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
    """Return True if the run store beside the registry has the run that is bound to this statement."""
    target, bound = load_strict(read_bytes(folder / "target.json"), name="target.json"), read_bytes(folder / STATEMENT_NAME)
    ladder = target.get("ladder") if isinstance(target, dict) else None
    if not isinstance(ladder, str) or not _FILE_NAME.fullmatch(ladder):
        return True  # verification refuses it
    specs = folder.absolute().parent.parent.joinpath("runs", ladder).glob("*/spec.json")
    return any(sha256_hex(bound).encode() in read_bytes(path) for path in specs)


def find_twin(registry_dir: Path, *, target: bytes, registrant: str) -> Path | None:
    """Return a registrant's forecast of the same run under any ladder name and nominal budget; None without one."""
    wanted = identity(target)
    for folder in registration_folders(registry_dir):
        path = folder / "target.json"
        if is_present(path) and identity(read_bytes(path)) == wanted and not is_withdrawn_unrun(folder):
            by = read_registration(folder).predicate["registrant"]
            if compared_name(by) == compared_name(registrant):
                return folder
    return None


def find_statement(registry_dir: Path, *, sha256: str) -> Path | None:
    """Return the folder whose statement has this digest; None if it is not in this registry."""
    for folder in registration_folders(registry_dir):
        path = folder / STATEMENT_NAME
        if is_present(path) and sha256_hex(read_bytes(path)) == sha256:
            return folder
    return None


def registration_folders(registry_dir: Path) -> list[Path]:
    """Return all preregistrations, by name; empty without a registry."""
    if not registry_dir.is_dir():
        return []
    return sorted(path for path in registry_dir.iterdir() if path.is_dir() and not path.name.startswith("."))


def find_folders(name: str, *, registry_dir: Path) -> list[Path]:
    """Return the folders that a name selects: `all`, a name in the registry, or a path."""
    if not registry_dir.is_dir() and not is_present(Path(name) / STATEMENT_NAME):
        raise StorageError(
            f"{registry_dir} is not a folder{'' if name == 'all' else f', and {name} has no {STATEMENT_NAME}'}.",
            why="Preregistrations are read from the registry.",
            fix="Change to the root of the repository, or name the registry: --registry FOLDER",
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
        why=f"{registry_dir} has: {known}.",
        fix="Name one of these." if by_name else "Register one: marin-scale preregister ladders/NAME.yaml",
    )


def one_folder(which: str, *, registry: Path, sealed: bool = False) -> Path:
    """Return the one folder of that name or path; `UsageError` for `all`, and for a sealed one unless `sealed`."""
    if which == "all":
        raise UsageError(
            "This command takes one preregistration, not all.",
            why="Each preregistration has its own run.",
            fix="Name one folder.",
        )
    (folder,) = find_folders(which, registry_dir=registry)
    if is_sealed(folder) and not sealed:
        raise UsageError(
            f"{folder.name} is still sealed.",
            why="This command needs the statement.",
            fix=f"Reveal the forecast first: marin-scale registry reveal {folder.name}",
        )
    return folder


def signers_path(folder: Path) -> Path:
    """Return the `allowed_signers` of a preregistration's registry."""
    return folder.absolute().parent / SIGNERS_NAME


def require_readable_signers(registry_dir: Path) -> None:
    """Raise `DocumentError` if the registry's list of signers cannot be read."""
    path = registry_dir / SIGNERS_NAME
    if is_present(path):
        read_allowed_signers(path)


def read_registration(folder: Path) -> Statement:
    """Return the statement of one folder; its signature is not checked."""
    path = folder / STATEMENT_NAME
    return read_statement(read_bytes(path), name=str(path))


def read_subject_in(folder: Path, name: str) -> Any:
    """Return the document of one subject of the preregistration in a folder; its digest is not checked."""
    return read_subject(read_bytes(folder / name), name=name, path=str(folder / name))


def allow_signer(registry_dir: Path, *, principal: str, key: PublicKey, at: datetime) -> str | None:
    """Allow a principal to sign with a key; return a message, or None if a line allows it already.

    A listed key whose line does not cover `at` (expired, other namespace) is refused.
    """
    path = registry_dir / SIGNERS_NAME
    raw = read_bytes(path) if is_present(path) else b""
    same_key = [line for line in parse_allowed_signers(raw, name=str(path)) if line.key.wire == key.wire]
    known = [line for line in same_key if line.names(principal)]
    if same_key and not known:
        raise SigningError(
            f"The key {key.fingerprint} is listed as {same_key[0].principal} in {path}, not as {principal}.",
            why="One key under two names would make two people of one.",
            fix=f"Sign as {same_key[0].principal} (--as), or with another key (--key).",
        )
    refusals = [line.refusal(namespace=NAMESPACE, at=at) for line in known]
    if None in refusals:
        return None
    if refusals:
        raise SigningError(
            f"{principal} may not sign with the key {key.fingerprint}: {refusals[0]}.",
            why="Only a maintainer changes the limits of a key.",
            fix="Sign with another key (--key), or ask a maintainer to change the line.",
        )
    added = signer_line(principal, key=key, namespace=NAMESPACE)
    before = raw if not raw or raw.endswith(b"\n") else raw + b"\n"
    replace_file(path, before + added.encode("ascii") + b"\n")
    others = sum(line.names(principal) for line in parse_allowed_signers(raw, name=str(path)))
    more = f", which lists {counted(others, 'other key')} of that name" if others else ""
    return f"added {principal} with the key {key.fingerprint} to {path}{more}"


def read_whole(place: Path, *, names: Sequence[str]) -> dict[str, bytes]:
    """Return the files of a folder by name; `VerificationError` unless it is a plain folder with exactly `names`."""
    present = sorted(path.name for path in place.iterdir()) if place.is_dir() and not place.is_symlink() else []
    if present != sorted(names):
        *first, last = sorted(names)
        refuse(
            f"{place} holds {', '.join(present) or 'nothing'}, not {', '.join(first)} and {last}",
            fix="Restore it from version control.",
        )
    return {name: read_plain(place / name) for name in present}


def require_unchanged(folder: Path) -> None:
    """Raise `VerificationError` if a signed file of a preregistration does not fit its signature; nothing of it is parsed.

    Missing and unreadable files are left to the later steps. The error names the commit that has the signed bytes.
    """
    for path in _signed_files(folder):
        signature = path.with_name(f"{path.name}.sig")
        with contextlib.suppress(MarinScalingError):
            raw, armored = read_plain(path), read_plain(signature)
            if (fault := _fault(raw, signature=armored, path=signature)) is not None:
                break
    else:
        return
    raise _changed(path, signature, raw=raw, armored=armored, fault=fault)


def signature_faults(folders: Iterable[Path]) -> list[VerificationError]:
    """Return the first fault of `require_unchanged` of each folder that has one."""
    found = []
    for folder in folders:
        try:
            require_unchanged(folder)
        except VerificationError as error:
            found.append(error)
    return found


def _signed_files(folder: Path) -> Iterator[Path]:
    names = [path.name for path in folder.iterdir()]
    yield from (folder / name for name in (STATEMENT_NAME, SEAL_NAME) if name in names)
    yield from (folder / name / NOTICE_NAME for name in notice_names(names))
    yield from (folder / name / AMENDMENT_NAME for name in amendment_names(names))
    yield from (folder / name for name in observation_files(names)[:1])


def _fault(content: bytes, *, signature: bytes, path: Path) -> VerificationError | None:
    try:
        verify_signature(signature, content=content, name=str(path))
    except VerificationError as error:
        return error
    return None


def _changed(path: Path, signature: Path, *, raw: bytes, armored: bytes, fault: VerificationError) -> VerificationError:
    """Return the refusal of a signed file, or of its signature, with the command that restores the one that was changed."""
    for changed, fits in (
        (path, lambda content: _fault(content, signature=armored, path=signature) is None),
        (signature, lambda content: _fault(raw, signature=content, path=signature) is None),
    ):
        if command := restoring_command(changed, fits=fits):
            fix = f"Restore the signed bytes and commit them: {command}"
            return VerificationError((f"{changed} was changed after signing.", *fault.lines), fix=fix)
    what = f"{path} or its signature was changed after signing."
    return VerificationError((what, *fault.lines), fix=NOT_COMMITTED)


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
