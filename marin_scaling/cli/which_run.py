"""Which run a person means: the target of a preregistration, or a run of the store, by the first digits of its digest.

Names only; whether the run is finished is for the commands to ask.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from marin_scaling.run.run_spec import RunSpec


def named_spec(run: str, *, registry: Path) -> RunSpec:
    """The spec of the run that `run` names: a preregistration (by name or path), digits of a digest, or a run's folder.

    `UsageError` where there is no such run, or more than one.
    """
    from marin_scaling.cli.training import workplace
    from marin_scaling.preregistration.binding import answering_spec
    from marin_scaling.run.curve_files import find_spec

    folder = registration_folder(run, registry=registry)
    if folder is not None:
        return answering_spec(folder)
    return find_spec(Path(run).name if Path(run).is_dir() else run, workplace())


def registration_folder(name: str, *, registry: Path) -> Path | None:
    """The preregistration of this name or at this path, of one's own sealed one its files; None where there is none."""
    from marin_scaling.preregistration.seal import SEAL_NAME, whole_folder
    from marin_scaling.regular_files import is_present

    places = (registry / name, Path(name))
    known = (place for place in places if name and any(is_present(place / file) for file in ("statement.json", SEAL_NAME)))
    return next(map(whole_folder, known), None)
