"""Names of the files in a registry, and the event to which each belongs."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Mapping, Set
from pathlib import Path

from marin_scaling.errors import refuse
from marin_scaling.untrusted_files import is_present, shown

SIGNERS_NAME = "allowed_signers"
STATEMENT_NAME = "statement.json"
SIGNATURE_NAME = "statement.json.sig"
OUTCOME_NAME = "outcome.json"
OBSERVATION_DIR, OBSERVATION_NAME, OBSERVATION_SIGNATURE_NAME = "observed", "observed.json", "observed.json.sig"
ATTRIBUTES_NAME = ".gitattributes"
PRINCIPAL = r"[A-Za-z0-9._+-]+@[A-Za-z0-9._-]+"
"""Pattern of the name of a person, as in `allowed_signers`."""
_SLUG = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
ID = re.compile(rf"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}-{_SLUG.pattern}")
ATTRIBUTES = b"# Signed files keep their exact bytes.\n* -text\n"


def observation_files(names: Iterable[str]) -> tuple[str, ...]:
    """Return the files of the reading of an outside run's log, if it is among the names in a folder.

    >>> observation_files(["observed", "outcome.json"])
    ('observed/observed.json', 'observed/observed.json.sig')
    """
    files = (OBSERVATION_NAME, OBSERVATION_SIGNATURE_NAME)
    return tuple(f"{OBSERVATION_DIR}/{name}" for name in files) if OBSERVATION_DIR in set(names) else ()


def is_registration_id(name: str) -> bool:
    """Return True if a folder of this name can be a preregistration.

    >>> is_registration_id("2026-11-20-hero-d2560"), is_registration_id("refs")
    (True, False)
    """
    return ID.fullmatch(name) is not None


NOTICE_NAME, NOTICE_SIGNATURE_NAME = "notice.json", "notice.json.sig"
_NOTICE_FOLDER = re.compile(r"notice-([1-9][0-9]{0,3})-(withdraw|void|deviate|correct|restart)")


def notice_names(names: Iterable[str]) -> list[str]:
    """Return the notices among the names in a folder, in order.

    >>> notice_names(["statement.json", "notice-10-deviate", "notice-9-deviate"])
    ['notice-9-deviate', 'notice-10-deviate']
    """
    matches = [match for match in map(_NOTICE_FOLDER.fullmatch, names) if match]
    return [match[0] for match in sorted(matches, key=lambda match: int(match[1]))]


AMENDMENT_NAME, AMENDMENT_SIGNATURE_NAME = "amendment.json", "amendment.json.sig"
SUBJECT_NAMES = ("forecast.json", "ladder.json", "samples.json")
AMENDMENT_FILES = (AMENDMENT_NAME, AMENDMENT_SIGNATURE_NAME, *SUBJECT_NAMES)
_AMENDMENT_FOLDER = re.compile(r"amend-([1-9][0-9]{0,2})")


def amendment_names(names: Iterable[str]) -> list[str]:
    """Return the amendments among the names in a folder, in order.

    >>> amendment_names(["statement.json", "amend-10", "amend-9"])
    ['amend-9', 'amend-10']
    """
    matches = [match for match in map(_AMENDMENT_FOLDER.fullmatch, names) if match]
    return [match[0] for match in sorted(matches, key=lambda match: int(match[1]))]


SEAL_NAME, SEAL_SIGNATURE_NAME, OPENING_NAME = "seal.json", "seal.json.sig", "opening.json"
SEAL_FILES = (SEAL_NAME, SEAL_SIGNATURE_NAME)


def is_sealed(folder: Path) -> bool:
    """Return True if a folder of the registry has a seal but no statement yet."""
    return is_present(folder / SEAL_NAME) and not is_present(folder / STATEMENT_NAME)


def seal_names(names: Iterable[str]) -> set[str]:
    """Return the files of a seal and its opening among the names in a folder."""
    return {*SEAL_FILES, OPENING_NAME} & set(names)


ROOTS_NAME = "tsa_roots.pem"
_STAMP_FILE = re.compile(r"stamp-([1-9][0-9]{0,2})\.tsr")


def stamp_names(names: Iterable[str]) -> list[str]:
    """Return the stamps among the names in a folder, in order.

    >>> stamp_names(["stamp-10.tsr", "stamp-2.tsr", "statement.json"])
    ['stamp-2.tsr', 'stamp-10.tsr']
    """
    matches = [match for match in map(_STAMP_FILE.fullmatch, names) if match]
    return [match[0] for match in sorted(matches, key=lambda match: int(match[1]))]


_COUNTERSIGNATURE_FILE = re.compile(rf"{re.escape(STATEMENT_NAME)}\.({PRINCIPAL})\.sig")


def countersignature_name(principal: str) -> str:
    """Return the file name of a person's signature.

    >>> countersignature_name("bob@example.org")
    'statement.json.bob@example.org.sig'
    """
    return f"{STATEMENT_NAME}.{principal}.sig"


def countersigners(names: Iterable[str]) -> dict[str, str]:
    """Return the file names that are signatures of others, by principal.

    >>> countersigners(["statement.json.sig", "statement.json.bob@example.org.sig"])
    {'bob@example.org': 'statement.json.bob@example.org.sig'}
    """
    found = ((name, _COUNTERSIGNATURE_FILE.fullmatch(name)) for name in sorted(names))
    return {match[1]: name for name, match in found if match}


LOG_NAME = "log.jsonl"


POLICY_NAME = "policy.yaml"


RECORD_NAME = "public-record.csv"


_TOP_FILES = {LOG_NAME, SIGNERS_NAME, ROOTS_NAME, POLICY_NAME, RECORD_NAME, ATTRIBUTES_NAME}
_PROBE = "probe"
"""Name of the file that tests whether the disk is writable."""
_UNFINISHED = re.compile(r"\.(.+)\.[0-9a-f]{8}\.tmp")


def require_known_names(registry_dir: Path) -> None:
    """Raise `VerificationError` for an unknown name at the top of a registry.

    Remains of interrupted commands are allowed here; `require_known_additions` refuses them in pull requests.
    """
    for path in sorted(registry_dir.iterdir()) if registry_dir.is_dir() else []:
        is_folder = stat.S_ISDIR(path.lstat().st_mode)
        is_known = is_registration_id(path.name) if is_folder else path.name in _TOP_FILES
        begun = {unfinished_name(path.name)} if is_registration_id(unfinished_name(path.name)) else set()
        if not is_known and not is_unfinished(path, files={*_TOP_FILES, _PROBE}, folders=begun):
            _refuse(path)


def require_known_additions(changes: Mapping[Path, str], *, registry_dir: Path) -> None:
    """Raise `VerificationError` if a branch adds an unknown name or a temporary file to a registry."""
    for path, status in changes.items():
        if status != "A":
            continue
        top, *below = path.relative_to(registry_dir).parts or (path.name,)
        is_known = is_registration_id(top) if below else top in _TOP_FILES
        if not is_known or any(name.startswith(".") for name in below):
            _refuse(path)


def is_unfinished(path: Path, *, files: Set[str], folders: Set[str] = frozenset()) -> bool:
    """Return True for a temporary file or folder of an interrupted command with one of these names; it is never read."""
    inner, mode = unfinished_name(path.name), path.lstat().st_mode
    return (inner in files and stat.S_ISREG(mode)) or (inner in folders and stat.S_ISDIR(mode))


def unfinished_name(name: str) -> str:
    """Return the final name of a temporary file; empty for any other file."""
    match = _UNFINISHED.fullmatch(name)
    return match[1] if match else ""


def _refuse(path: Path) -> None:
    refuse(
        f"{shown(path)} is no name that a registry holds",
        fix=f"Move it elsewhere: a registry holds {', '.join(sorted(_TOP_FILES))}, and a folder for each preregistration.",
    )
