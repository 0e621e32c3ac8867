"""Which preregistration a person means, where it must be one."""

from __future__ import annotations

from pathlib import Path


def one_folder(which: str, *, registry: Path) -> Path:
    """The one folder of that name or path; `UsageError` for `all`."""
    from marin_scaling.errors import UsageError
    from marin_scaling.preregistration.registry import find_folders

    if which == "all":
        raise UsageError(
            "This is done for one preregistration at a time.", why="Each speaks of a run of its own.", fix="Name one folder."
        )
    (folder,) = find_folders(which, registry_dir=registry)
    return folder
