"""Changes of a branch: files, byte by byte between base branch, log, commit and working tree; and signers, policy and roots.

Nothing is verified here.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes

from marin_scaling.canonical_json import has_digest, sha256_hex
from marin_scaling.errors import DocumentError, MarinScalingError, UsageError, VerificationError, refuse
from marin_scaling.files import read_bytes, read_plain
from marin_scaling.git import GitError, Repository, TreeEntry, require_repository, restoring
from marin_scaling.preregistration.layout import POLICY_NAME, SIGNERS_NAME, STATEMENT_NAME
from marin_scaling.preregistration.log import Log, extends, is_whole_log
from marin_scaling.preregistration.signing.allowed_signers import (
    AllowedSigner,
    compared_name,
    parse_allowed_signers,
    read_allowed_signers,
)
from marin_scaling.preregistration.signing.sshsig import NAMESPACE
from marin_scaling.preregistration.statement import LONGEST_TERM, moment_text, read_statement
from marin_scaling.preregistration.verify.rules import Policy, read_policy
from marin_scaling.printable import SIGNERS_CHANGED, printable
from marin_scaling.untrusted_files import GIT_NAME, MOST_TABLE_BYTES, is_present, shown

_LINK, _PROGRAM, _FILE, _OTHER = "120000", "100755", "100644", "000000"


def working_tree(folder: Path, *, repository: Repository, is_sha256: bool) -> dict[Path, TreeEntry]:
    """Return every file at or below `folder` by its path from the root, also ignored, hidden and temporary ones."""
    return {repository.path_from_root(path): _entry(path, is_sha256=is_sha256) for path in _files(folder, root=repository.root)}


def without_modes(entries: Mapping[Path, TreeEntry]) -> dict[Path, TreeEntry]:
    """Return the files without executable bits, for disks that do not keep them."""
    return {path: replace(entry, mode=_FILE) if entry.mode == _PROGRAM else entry for path, entry in entries.items()}


def _files(folder: Path, *, root: Path) -> Iterator[Path]:
    if not os.path.lexists(folder):
        return
    if folder.is_symlink() or not folder.is_dir():
        yield folder
        return
    for entry in sorted(os.scandir(folder), key=lambda each: each.name):
        path = folder / entry.name
        if entry.name == GIT_NAME and path.absolute() == root / GIT_NAME:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _files(path, root=root)
        else:
            yield path


def _entry(path: Path, *, is_sha256: bool) -> TreeEntry:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return TreeEntry(mode=_LINK, id=blob_id(os.fsencode(os.readlink(path)), is_sha256=is_sha256))
    if not stat.S_ISREG(mode):
        return TreeEntry(mode=_OTHER, id="")
    content = read_bytes(path, most_bytes=MOST_TABLE_BYTES)
    return TreeEntry(mode=_PROGRAM if mode & stat.S_IXUSR else _FILE, id=blob_id(content, is_sha256=is_sha256))


def blob_id(content: bytes, *, is_sha256: bool = False) -> str:
    """Return git's id of a file with this content.

    >>> blob_id(b"")
    'e69de29bb2d1d6434b8b29ae775ad8c2e48c5391'
    """
    digest = hashlib.sha256() if is_sha256 else hashlib.sha1(usedforsecurity=False)
    digest.update(b"blob %d\0" % len(content))
    digest.update(content)
    return digest.hexdigest()


_SHA256_DIGITS = 64


class ComparedTrees:
    """Files of one folder in three places, by their paths from the root of the repository."""

    def __init__(self, repository: Repository, folder: Path, *, base: str) -> None:
        self._repository, self._folder = repository, folder
        head = repository.head()
        self._base = repository.tree(base, folder)
        self._head = repository.tree(head, folder) if head else {}
        self._now = working_tree(folder, repository=repository, is_sha256=len(base) == _SHA256_DIGITS)
        if repository.setting("core.fileMode", "--type=bool") == "false":
            self._base, self._head, self._now = map(without_modes, (self._base, self._head, self._now))

    def changes(self) -> dict[Path, str]:
        """Return what was added (A), removed (D) or modified (M) since the base, in the commit or the working tree.

        A change of the commit counts also where the working tree hides it: attributes can check out the base's bytes.
        """
        found = _differences(self._base, self._head) | _differences(self._base, self._now)
        return {self._path(name): status for name, status in found.items()}

    def require_committed(self, *, growing: Path | None = None) -> None:
        """Raise `VerificationError` if a file that the commit changes differs in the working tree.

        The `growing` file may extend the commit's content.
        """
        for name in _differences(self._base, self._head):
            entry, path = self._head.get(name), self._path(name)
            if self._now.get(name) == entry:
                continue
            if path == growing and entry and name in self._now and extends(self._repository.content(entry), read_bytes(path)):
                continue
            refuse(
                f"{shown(path)} differs between the working tree and the commit that is checked out",
                fix=f"Commit it, or restore it (git checkout -- {shown(path)}). If git sees no change, an attribute in a "
                ".gitattributes file rewrites it: remove that attribute.",
            )

    def _path(self, name: Path) -> Path:
        return self._folder / name.relative_to(self._repository.path_from_root(self._folder))


def compared_trees(base: str, folder: Path) -> ComparedTrees:
    """Return the comparison of a folder with the base; `UsageError` if git knows no such base, or the folder is elsewhere."""
    repository, commit = _at(base, folder)
    return ComparedTrees(repository, folder, base=commit)


def file_at(base: str, path: Path) -> bytes | None:
    """Return the bytes of a regular file of the base; None if it has none there."""
    repository, commit = _at(base, path)
    entry = repository.tree(commit, path).get(repository.path_from_root(path))
    return repository.content(entry) if entry and entry.is_regular else None


@dataclass(frozen=True, kw_only=True)
class BaseFault:
    """File of the base with other bytes than the base's log records, or than a recorded statement promises."""

    path: Path
    digest: str
    """SHA-256 of the recorded bytes."""
    restored: bool
    """True if the branch has the recorded bytes."""

    @property
    def fix(self) -> str:
        """Sentence with the command that restores the recorded bytes."""
        return restoring(self.path, fits=partial(has_digest, digest=self.digest))


def base_faults(base: str, registry_dir: Path, *, log: Log) -> list[BaseFault]:
    """Return the files of a registry that changed in `base` after its `log` recorded them; missing files included."""
    changed, found = compared_trees(base, registry_dir).changes(), []
    for folder in (registry_dir / name for name in log.by_id):
        for name, digest in _recorded_digests(folder, log=log).items():
            path = folder / name
            now = _digest_of_file(path)
            raw = file_at(base, path) if path in changed else None
            before = now if path not in changed else None if raw is None else sha256_hex(raw)
            if before != digest:
                found.append(BaseFault(path=path, digest=digest, restored=now == digest))
    return found


def _recorded_digests(folder: Path, *, log: Log) -> dict[str, str]:
    """Return the digests of a preregistration's files by the log, and by its statement if that is the recorded one."""
    digests = {name: digest for entry in log.by_id[folder.name] for name, digest in entry.files.items()}
    with contextlib.suppress(MarinScalingError):
        raw = read_plain(folder / STATEMENT_NAME)
        if sha256_hex(raw) == digests.get(STATEMENT_NAME):
            digests |= read_statement(raw, name=STATEMENT_NAME).subjects
    return digests


def _digest_of_file(path: Path) -> str | None:
    try:
        return sha256_hex(read_plain(path))
    except MarinScalingError:
        return None


def log_at(base: str, path: Path) -> bytes:
    """Return the log of the base; if its lines are broken there, the newest whole log that the base had."""
    raw = file_at(base, path) or b""
    if not raw or is_whole_log(raw):
        return raw
    repository, commit = _at(base, path)
    return next((content for _, content in repository.versions(path, branch=commit) if is_whole_log(content)), raw)


def first_received(base: str, path: Path) -> tuple[str, bytes]:
    """Return the commit with which the base received a file first, and its content there."""
    repository, commit = _at(base, path)
    return repository.first_version(path, branch=commit)


def _differences(before: Mapping[Path, TreeEntry], after: Mapping[Path, TreeEntry]) -> dict[Path, str]:
    return {
        name: "A" if name not in before else "D" if name not in after else "M"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    }


def _at(base: str, path: Path) -> tuple[Repository, str]:
    try:
        repository = require_repository()
        repository.path_from_root(path)
        return repository, repository.commit_id(base)
    except GitError as error:
        raise UsageError(
            f"git cannot compare {shown(path)} with {base!r}: {error.reason}.",
            why="What a branch changed is seen against the branch that it is to be merged into.",
            fix=error.fix,
        ) from error


_LOOKS_LIKE = (("0", "o"), ("1", "l"), ("i", "l"), ("rn", "m"), ("vv", "w"), ("5", "s"), ("-", ""), ("_", ""), (".", ""))
"""Characters that look alike, in lower case."""
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class TrustChange:
    """One change: a sentence on its effect, and warnings."""

    sentence: str
    warnings: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Sentence with its warnings."""
        return "; warning: ".join([self.sentence, *self.warnings])


def trust_changes(path: Path, *, before: bytes | None, base: str) -> list[TrustChange]:
    """Return every change of a trusted file from the bytes of `base` to the current file.

    `VerificationError` for a missing list of signers or unreadable content.
    """
    if path.name == SIGNERS_NAME:
        found = list(_signer_changes(path, before=before, base=base))
    elif path.name == POLICY_NAME:
        found = list(_policy_changes(path, before=before))
    else:
        found = list(_root_changes(path, before=before, base=base))
    return found or [TrustChange(sentence=f"{path.name} changed in comments, order or spaces only")]


def _signer_changes(path: Path, *, before: bytes | None, base: str) -> Iterator[TrustChange]:
    if not is_present(path):
        refuse(
            f"{path} was removed since {base}: no forecast of the registry could be verified any more",
            fix=f"Restore it (git checkout {base} -- {path}); a key that ends is given valid-before, not taken out.",
        )
    try:
        signers = read_allowed_signers(path)
    except DocumentError as error:  # readable before, so the answer is no
        raise VerificationError(error.lines, why=error.why, fix=error.fix) from error
    try:
        old = parse_allowed_signers(before or b"", name=f"{path} of {base}")
    except MarinScalingError as error:
        old = ()
        yield TrustChange(sentence=f"{path.name} of {base} cannot be read, so every line counts as new", warnings=(error.what,))
    was = {(each.principal, each.key.wire): each for each in old}
    now = {(each.principal, each.key.wire): each for each in signers}
    changed = sorted(pair for pair in was.keys() | now.keys() if _options(was.get(pair)) != _options(now.get(pair)))
    if len(changed) > SIGNERS_CHANGED:
        refuse(
            f"{len(changed)} lines of {path} changed since {base}; a review covers at most {SIGNERS_CHANGED}",
            fix="Split the change over several pull requests.",
        )
    for pair in changed:
        if pair not in was:
            warnings = tuple(_warnings_of_new(now[pair], listed=[*signers, *old]))
            yield TrustChange(sentence=f"{_line(now[pair])}, new: {_allows(now[pair])}", warnings=warnings)
        elif pair not in now:
            each = was[pair]
            sentence = f"{path.name}, removed: {each.principal} with {each.key.fingerprint}, which {_allows(each)}"
            yield TrustChange(sentence=sentence, warnings=("what this key has signed is refused from then on",))
        else:
            sentence = f"{_line(now[pair])}, changed: {_allows(now[pair])}; before, it {_allows(was[pair])}"
            yield TrustChange(sentence=sentence, warnings=tuple(_widened(was[pair], now[pair])))


def _line(each: AllowedSigner) -> str:
    return f"{Path(each.where).name}, {each.principal} with {each.key.fingerprint}"


def _options(each: AllowedSigner | None) -> tuple[Any, ...] | None:
    """Return what a line allows; None if there is no line."""
    return (each.namespaces, each.valid_after, each.valid_before) if each else None


def _allows(each: AllowedSigner) -> str:
    purposes = "for any purpose" if each.namespaces is None else f"for {each.namespaces!r}"
    if not each.names_space(NAMESPACE):
        return f"may sign {purposes}, and so no forecast"
    start = f" from {moment_text(each.valid_after)}" if each.valid_after else ""
    end = f" until {moment_text(each.valid_before)}" if each.valid_before else " without an end"
    return f"may sign forecasts as {each.principal}{start}{end}, {purposes}"


def _warnings_of_new(each: AllowedSigner, *, listed: Sequence[AllowedSigner]) -> Iterator[str]:
    own = [other for other in listed if other.principal == each.principal]
    keys = sorted({other.key.fingerprint for other in own} - {each.key.fingerprint})
    names = sorted({other.principal for other in listed if other.key.wire == each.key.wire} - {each.principal})
    alike = sorted({other.principal for other in listed if look_alike(other.principal, each.principal)})
    if not each.names_space(NAMESPACE):
        yield f"this line may not sign here: it has other namespaces than {NAMESPACE}"
    if keys:
        yield f"{each.principal} has another key: {', '.join(keys)}"
    else:
        yield f"this is the first key of {each.principal}: anyone who signs with it speaks in that name"
    if names:
        yield f"one key for two names: {each.principal} and {', '.join(names)} count as one person"
    if alike:
        yield f"{each.principal} looks like {', '.join(alike)}"
    if each.namespaces is None or any(mark in each.namespaces for mark in "*?"):
        yield "its namespaces are not limited to forecasts"


def _widened(was: AllowedSigner, now: AllowedSigner) -> Iterator[str]:
    for what, old, new in (
        ("end", was.valid_before or _LAST, now.valid_before or _LAST),
        ("start", now.valid_after or _FIRST, was.valid_after or _FIRST),
    ):
        if new > old:
            moved = "later" if what == "end" else "earlier"
            gone = (now.valid_before if what == "end" else now.valid_after) is None
            ended = what == "end" and old < datetime.now(UTC)
            again = ": a key that was given up counts again" if ended else ""
            yield f"the {what} of this key was {'removed' if gone else f'moved {moved}'}{again}"
    if now.namespaces != was.namespaces and was.namespaces is not None and not _is_within(now.namespaces, was.namespaces):
        yield "its namespaces are wider"


def _is_within(now: str | None, was: str) -> bool:
    return now is not None and set(now.split(",")) <= set(was.split(","))


def look_alike(one: str, other: str) -> bool:
    """Return True if two different names are easily taken for one another.

    >>> look_alike("ada@example.org", "ada@examp1e.org"), look_alike("ada@example.org", "bob@example.org")
    (True, False)
    """
    first, second = compared_name(one), compared_name(other)
    return one != other and (first == second or _skeleton(first) == _skeleton(second) or _one_edit(first, second))


def _skeleton(name: str) -> str:
    for seen, taken_for in _LOOKS_LIKE:
        name = name.replace(seen, taken_for)
    return name


def _one_edit(one: str, other: str) -> bool:
    """Return True if one sign was changed, added, removed, or exchanged with the next."""
    short, long = sorted((one, other), key=len)
    start = next((place for place, pair in enumerate(zip(short, long, strict=False)) if pair[0] != pair[1]), len(short))
    if len(short) == len(long):
        swapped = long[:start] + long[start : start + 2][::-1] + long[start + 2 :]
        return short[start + 1 :] == long[start + 1 :] or short == swapped
    return len(long) - len(short) == 1 and short[start:] == long[start + 1 :]


def _policy_changes(path: Path, *, before: bytes | None) -> Iterator[TrustChange]:
    was, now = _old_policy(before), read_policy(path) if is_present(path) else None
    if now is None and before is not None:
        yield TrustChange(
            sentence=f"{path.name}, removed: nothing is asked of a forecast beyond its signature", warnings=("looser",)
        )
    old, new = _rules(was), _rules(now)
    for rule in old:
        if old[rule] != new[rule]:
            said = f"{path.name}, {rule}: {_shown(old[rule])} -> {_shown(new[rule])}"
            looser = _is_looser(rule, old[rule], new[rule], removed=now is None)
            yield TrustChange(sentence=said if looser else f"{said} (stricter)", warnings=("looser",) * looser)
    if now is not None and now.since > datetime.now(UTC).date():
        yield TrustChange(
            sentence=f"{path.name} binds nothing before {now.since}", warnings=("forecasts of today need not follow it",)
        )


def _old_policy(raw: bytes | None) -> Policy | None:
    if raw is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / POLICY_NAME
        path.write_bytes(raw)
        try:
            return read_policy(path)
        except MarinScalingError:
            return None


def _rules(policy: Policy | None) -> Mapping[str, Any]:
    """Return what is asked, by rule; the default of every rule where there is no policy, which begins on no day."""
    found = (policy or Policy(since=date.max)).model_dump()
    return {**found, "due_days": found["due_days"] or LONGEST_TERM.days}


def _shown(value: Any) -> str:
    return "none" if value == date.max else str(value).lower() if isinstance(value, bool) else str(value)


def _is_looser(rule: str, was: Any, now: Any, *, removed: bool) -> bool:
    if removed:
        return True
    return bool(now < was) if rule in ("reviewers", "stamps") else bool(now > was)


def _root_changes(path: Path, *, before: bytes | None, base: str) -> Iterator[TrustChange]:
    was = _certificates(before, name=f"{path} of {base}", may_fail=True)
    now = _certificates(read_bytes(path) if is_present(path) else None, name=str(path))
    for fingerprint, subject in now.items():
        if fingerprint not in was:
            warning = "from then on this authority says when signatures were there"
            yield TrustChange(sentence=f"{path.name}, new: {subject}, SHA-256 {fingerprint}", warnings=(warning,))
    for fingerprint, subject in was.items():
        if fingerprint not in now:
            warning = "stamps of this authority are refused from then on"
            yield TrustChange(sentence=f"{path.name}, removed: {subject}, SHA-256 {fingerprint}", warnings=(warning,))


def _certificates(raw: bytes | None, *, name: str, may_fail: bool = False) -> dict[str, str]:
    """Return the subjects of certificates by fingerprint."""
    from cryptography import x509

    try:
        found: Iterable[x509.Certificate] = x509.load_pem_x509_certificates(raw) if raw else ()
        return {each.fingerprint(hashes.SHA256()).hex(): printable(each.subject.rfc4514_string()) for each in found}
    except ValueError as error:
        if may_fail:
            return {}
        refuse(
            f"{name} holds no certificates that can be read ({error})",
            fix="Put PEM certificates of authorities there, or remove it.",
        )
