"""The names that a registry may hold: at its top, and within a preregistration."""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping, Set
from pathlib import Path

from marin_scaling.check.policy import POLICY_NAME
from marin_scaling.check.public_record import RECORD_NAME
from marin_scaling.check.verified_step import refuse
from marin_scaling.preregistration.log import LOG_NAME
from marin_scaling.preregistration.registry import ATTRIBUTES_NAME, SIGNERS_NAME, is_registration_id
from marin_scaling.preregistration.timestamp import ROOTS_NAME
from marin_scaling.regular_files import shown

_TOP_FILES = {LOG_NAME, SIGNERS_NAME, ROOTS_NAME, POLICY_NAME, RECORD_NAME, ATTRIBUTES_NAME}
_PROBE = "probe"
"""The name of a file that only tries whether the disk can be written."""
_UNFINISHED = re.compile(r"\.(.+)\.[0-9a-f]{8}\.tmp")


def require_known_names(registry_dir: Path) -> None:
    """`VerificationError` where the top of a registry holds another name than those of its files and preregistrations.

    What an interrupted command left is passed over; in a pull request `require_known_additions` refuses that, too.
    """
    for path in sorted(registry_dir.iterdir()) if registry_dir.is_dir() else []:
        is_folder = stat.S_ISDIR(path.lstat().st_mode)
        is_known = is_registration_id(path.name) if is_folder else path.name in _TOP_FILES
        begun = {unfinished_name(path.name)} if is_registration_id(unfinished_name(path.name)) else set()
        if not is_known and not is_unfinished(path, files={*_TOP_FILES, _PROBE}, folders=begun):
            _refuse(path)


def require_known_additions(changes: Mapping[Path, str], *, registry_dir: Path) -> None:
    """`VerificationError` where a branch adds a name to a registry that the tool does not know, or a temporary file."""
    for path, status in changes.items():
        if status != "A":
            continue
        top, *below = path.relative_to(registry_dir).parts or (path.name,)
        is_known = is_registration_id(top) if below else top in _TOP_FILES
        if not is_known or any(name.startswith(".") for name in below):
            _refuse(path)


def is_unfinished(path: Path, *, files: Set[str], folders: Set[str] = frozenset()) -> bool:
    """Return True for a temporary file or folder that an interrupted command left, of one of these names: it is never read."""
    inner, mode = unfinished_name(path.name), path.lstat().st_mode
    return (inner in files and stat.S_ISREG(mode)) or (inner in folders and stat.S_ISDIR(mode))


def unfinished_name(name: str) -> str:
    """Return the name that a temporary file would have had; empty where it is none."""
    match = _UNFINISHED.fullmatch(name)
    return match[1] if match else ""


def _refuse(path: Path) -> None:
    refuse(
        f"{shown(path)} is no name that a registry holds",
        fix=f"Move it elsewhere: a registry holds {', '.join(sorted(_TOP_FILES))}, and a folder for each preregistration.",
    )
