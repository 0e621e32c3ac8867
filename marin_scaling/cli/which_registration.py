"""Which preregistration a person means, where it must be one."""

from __future__ import annotations

from pathlib import Path


def one_folder(which: str, *, registry: Path, sealed: bool = False) -> Path:
    """The one folder of that name or path; `UsageError` for `all`, and of one that is sealed unless it may be."""
    from marin_scaling.errors import UsageError
    from marin_scaling.preregistration.registry import find_folders
    from marin_scaling.preregistration.seal import is_sealed

    if which == "all":
        raise UsageError(
            "This is done for one preregistration at a time.", why="Each speaks of a run of its own.", fix="Name one folder."
        )
    (folder,) = find_folders(which, registry_dir=registry)
    if is_sealed(folder) and not sealed:
        raise UsageError(
            f"{folder.name} is still sealed.",
            why="What is said of a forecast is said beside it, where all can read both.",
            fix=f"Show it first: marin-scale reveal {folder.name}",
        )
    return folder
