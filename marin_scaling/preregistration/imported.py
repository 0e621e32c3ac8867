"""Registries of other repositories, `registries/NAME/`: copied from a commit and verified.

`source.json` names address and commit, and git's own id of the copied folder, so that a changed copy is refused.
The registrants, signers and times of a copy are those of its repository. No track record here counts its forecasts.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from pydantic import StringConstraints

from marin_scaling.canonical_json import dump_canonical, load_strict
from marin_scaling.errors import StatementError, UsageError, VerificationError
from marin_scaling.files import new_folder, read_bytes
from marin_scaling.git import Repository, TreeEntry, fetched
from marin_scaling.preregistration.layout import LOG_NAME
from marin_scaling.preregistration.log import extends, read_log
from marin_scaling.preregistration.outcome import State, Verdict
from marin_scaling.preregistration.registry import REGISTRY, identity, registration_folders
from marin_scaling.preregistration.verdict import verdicts_on
from marin_scaling.preregistration.verification import require_whole_registry
from marin_scaling.preregistration.verify.rules import log_step
from marin_scaling.printable import IMPORTED_BYTES, IMPORTED_FILES
from marin_scaling.strict_model import COMMIT_PATTERN, One, Part, Reason, check_document
from marin_scaling.untrusted_files import is_present, require_regular_tree, shown

REGISTRIES = Path("registries")
"""Folder of the imported registries, below the root of a repository."""
SOURCE_NAME = "source.json"
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}")
_NAMED_PARTS = 2
_REGULAR, _EXECUTABLE, _FOLDER = "100644", "100755", "40000"
_NO_RUNS = "no-runs"
"""Run store of an imported registry: its runs stay in its repository."""


class Source(Part):
    """The content of `source.json`."""

    format_version: One
    address: Reason
    """Address of the repository, as git takes it."""
    commit: Annotated[str, StringConstraints(pattern=COMMIT_PATTERN)]
    """Commit whose folder `preregistrations` was copied."""
    tree: Annotated[str, StringConstraints(pattern=COMMIT_PATTERN)]
    """Git's id of that folder, as `git rev-parse COMMIT:preregistrations` prints it."""


@dataclass(frozen=True, kw_only=True)
class ImportedRegistry:
    """Copy of a registry: its `name`, where it came from, and the verdicts on its forecasts."""

    name: str
    source: Source
    folder: Path
    """The copied `preregistrations`."""
    verdicts: Sequence[Verdict]

    def __repr__(self) -> str:
        counts = {state: sum(each.state == state for each in self.verdicts) for state in State}
        states = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
        return f"ImportedRegistry({self.name}: {len(self.verdicts)} forecasts: {states or 'none'})"


def import_registry(
    address: str, *, commit: str, name: str | None = None, registries: Path | str = REGISTRIES
) -> ImportedRegistry:
    """Copy and verify the registry of another repository, as it is at `commit` (40 digits), into `registries/NAME`.

    `name` is derived from the address if it is not given. A copy of an earlier commit is replaced, if the new log continues
    its log. `UsageError` for an unusable address, commit or name, `VerificationError` for an unsound registry; nothing is
    written then. Single forecasts that do not verify are kept, with the state refused.
    """
    name, place = name or _name_of(str(Path(address).resolve()) if Path(address).is_dir() else address), Path(registries)
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a name for a registry.",
            why="The name becomes a folder.",
            fix="Use at most 64 lower-case letters, digits, dots and hyphens: --name lab-forecasts",
        )
    if not re.fullmatch(COMMIT_PATTERN, commit):
        raise UsageError(
            f"--commit {commit!r} is not a commit with all its 40 digits.",
            why="A branch or a short id can mean another commit tomorrow.",
            fix=f"List the commits of its branches: git ls-remote {address}",
        )
    folder, fresh, standing = place / name, place / f".{name}.new", _standing(place, name)
    shutil.rmtree(fresh, ignore_errors=True)  # of an interrupted import
    with fetched(address, commit=commit) as repository:
        files = _registry_files(repository, commit=commit, address=address)
        tree = repository.ask("rev-parse", f"{commit}:{REGISTRY}").decode("ascii").strip()
        if standing is not None:
            _require_continued(standing, repository, files, address=address)
        source = Source(format_version=1, address=address, commit=commit, tree=tree)
        with new_folder(fresh) as temporary:
            _write(temporary / REGISTRY, files, repository)
            (temporary / SOURCE_NAME).write_bytes(dump_canonical(source.model_dump()))
            require_regular_tree([temporary / REGISTRY])
            _require_sound(temporary / REGISTRY, address=address)
    if standing is not None:
        shutil.rmtree(folder)
    fresh.rename(folder)
    return _read(folder, at=datetime.now(UTC))


def _require_sound(registry: Path, *, address: str) -> None:
    """Raise the fault of a whole registry with the names of its repository and a remedy for its reader."""
    try:
        require_whole_registry(registry)
    except VerificationError as error:
        lines = tuple(line.replace(f"{registry.parent}/", "") for line in error.lines)
        fix = f"Ask the maintainers of {address}, or import an earlier commit."
        raise VerificationError(lines, why=error.why, fix=fix) from error


def imported_registries(registries: Path | str = REGISTRIES) -> list[ImportedRegistry]:
    """Return the imported registries, verified, by name. `VerificationError` for a copy that differs from its commit."""
    place, now = Path(registries), datetime.now(UTC)
    require_regular_tree([place])
    return [_read(folder, at=now) for folder in _folders(place)]


def _folders(place: Path) -> list[Path]:
    found = sorted(path for path in place.iterdir() if not path.name.startswith(".")) if place.is_dir() else []
    if bare := [path for path in found if not is_present(path / SOURCE_NAME)]:
        raise VerificationError(
            f"{bare[0]} has no {SOURCE_NAME}.",
            why="Nothing tells from where it was imported.",
            fix=f"Restore it from version control: git checkout -- {bare[0]}; or remove {bare[0]}.",
        )
    return found


def _standing(place: Path, name: str) -> ImportedRegistry | None:
    folder = place / name
    if not is_present(folder):
        return None
    require_regular_tree([folder])
    return _read(folder, at=datetime.now(UTC))


def _name_of(address: str) -> str:
    """Return a name for a registry: the last parts of its address.

    >>> _name_of("https://example.org/Lab/forecasts.git"), _name_of("git@example.org:lab/forecasts")
    ('lab-forecasts', 'lab-forecasts')
    """
    parts = [part for part in re.split(r"[/:]", address.lower().removesuffix("/").removesuffix(".git")) if part]
    return re.sub(r"[^a-z0-9.-]+", "-", "-".join(parts[-_NAMED_PARTS:])).strip("-.")


def _registry_files(repository: Repository, *, commit: str, address: str) -> dict[Path, TreeEntry]:
    """Return the files of the registry by their path in it; refuse links, submodules, and more than the limits."""
    found = repository.tree(commit, repository.root / REGISTRY)
    files = {path.relative_to(REGISTRY): entry for path, entry in found.items()}
    if not files:
        raise UsageError(
            f"{address} has no folder {REGISTRY} at {commit}.",
            why="A registry of marin-scaling lies there.",
            fix="Name the commit that holds it: --commit COMMIT",
        )
    odd = [path for path, entry in files.items() if not entry.is_regular]
    if odd:
        raise VerificationError(
            f"{shown(odd[0])} of {address} is a link or a submodule.",
            why="A registry holds regular files only.",
            fix="Ask its maintainers to replace it by a file.",
        )
    if len(files) > IMPORTED_FILES or (size := repository.bytes_of(files.values())) > IMPORTED_BYTES:
        held = f"{len(files):,} files" if len(files) > IMPORTED_FILES else f"{size:,} bytes"
        raise VerificationError(
            f"The registry of {address} has {held}, more than {IMPORTED_FILES:,} files or {IMPORTED_BYTES:,} bytes.",
            why="Every file is read and verified.",
            fix="Verify it in a clone of its repository: marin-scale verify all",
        )
    return files


def _require_continued(
    standing: ImportedRegistry, repository: Repository, files: Mapping[Path, TreeEntry], *, address: str
) -> None:
    """Raise `VerificationError` unless the new commit is from the same address, and its log begins with that of the copy."""
    if address != standing.source.address:
        raise VerificationError(
            f"{standing.folder.parent} was imported from {standing.source.address}, not from {address}.",
            why="A copy is continued from its own repository.",
            fix=f"Choose another name (--name NAME), or remove {standing.folder.parent} first.",
        )
    before, entry = read_bytes(standing.folder / LOG_NAME), files.get(Path(LOG_NAME))
    if entry is None or not extends(before, repository.content(entry)):
        old, place = standing.source.commit, standing.folder.parent
        raise VerificationError(
            f"The log at the new commit does not begin with that of {old}, which {place} holds.",
            why="A registry only grows: a line that is gone could be a forecast that missed.",
            fix=f"Ask its maintainers for the missing lines. To import it anew, remove {place}.",
        )


def _write(folder: Path, files: Mapping[Path, TreeEntry], repository: Repository) -> None:
    for (path, entry), content in zip(files.items(), repository.contents(files.values()), strict=True):
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        if entry.mode == _EXECUTABLE:
            place.chmod(0o755)


def _read(folder: Path, *, at: datetime) -> ImportedRegistry:
    """Return the registry in `registries/NAME`; `VerificationError` if it is not what its source says."""
    path, registry = folder / SOURCE_NAME, folder / REGISTRY
    document = load_strict(read_bytes(path), name=str(path))
    check_document(document, Source, name=str(path))
    source = Source.model_validate(document)
    if (tree := _tree_id(registry)) != source.tree:
        again = f"marin-scale registry import {source.address} --commit {source.commit} --name {folder.name}"
        raise VerificationError(
            f"{registry} has the tree {tree}, and {SOURCE_NAME} says {source.tree}.",
            why="The copy was changed after it was imported.",
            fix=f"Remove {folder} and import it again: {again}",
        )
    require_whole_registry(registry)
    verdicts = verdicts_on(registration_folders(registry), runs_dir=folder / _NO_RUNS, at=at)
    logged = [_as_logged(each, registry) for each in verdicts]
    return ImportedRegistry(name=folder.name, source=source, folder=registry, verdicts=logged)


def _as_logged(verdict: Verdict, registry: Path) -> Verdict:
    """Return a verdict, refused if the log has other files than the folder: a removed outcome would be a forecast to come."""
    try:
        log_step(registry / verdict.id, log=read_log(registry))
    except VerificationError as error:
        return Verdict(id=verdict.id, state=State.REFUSED, sentence=f"refused: {error}", outcome=None)
    return verdict


def _tree_id(folder: Path) -> str:
    """Return git's id of a folder of regular files: the SHA-1 of its listing, with the ids of its files and folders."""
    listing = b""
    for path in sorted(folder.iterdir(), key=lambda each: f"{each.name}/" if each.is_dir() else each.name):
        if path.is_dir():
            mode, identity_ = _FOLDER, _tree_id(path)
        else:
            mode = _EXECUTABLE if path.stat().st_mode & 0o100 else _REGULAR
            identity_ = _object_id("blob", read_bytes(path))
        listing += f"{mode} {path.name}".encode() + b"\0" + bytes.fromhex(identity_)
    return _object_id("tree", listing)


def _object_id(kind: str, content: bytes) -> str:
    return hashlib.sha1(f"{kind} {len(content)}".encode() + b"\0" + content, usedforsecurity=False).hexdigest()


def require_unknown_outcome(target: bytes, *, registries: Path | str = REGISTRIES) -> None:
    """Raise `StatementError` if an imported registry has the outcome of the run in this `target.json`."""
    for registry in imported_registries(registries):
        for verdict in registry.verdicts:
            path = registry.folder / verdict.id / "target.json"
            if verdict.outcome and is_present(path) and identity(read_bytes(path)) == identity(target):
                raise StatementError(
                    f"{registry.folder / verdict.id} has the outcome of this run.",
                    why="A known loss cannot be forecast.",
                    fix="Forecast a run that has not begun.",
                )
