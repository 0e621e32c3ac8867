"""Options and arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from marin_scaling.run.spec import RunSpec

REGISTRY = typer.Option(Path("preregistrations"), "--registry", help="Where preregistrations and allowed_signers lie.")
REASON = typer.Option(..., "--reason", help="Why, in a sentence.")


def require_reason(reason: str) -> None:
    """`UsageError` where the reason for what is signed has no words in it, or more than one line."""
    from marin_scaling.errors import UsageError

    if not reason.strip() or len(reason.splitlines()) > 1:
        raise UsageError(
            f"--reason {reason!r} is no sentence.",
            why="It is signed, and stands beside the forecast for ever.",
            fix="Say it in one line: --reason 'two more budgets were trained'",
        )


STEPS_SEEN = typer.Option(
    None,
    "--steps-seen",
    min=0,
    help="How many steps of the target's loss you have seen; default: none, where it has not begun.",
)


def steps_said(said: int | None, *, folder: Path) -> int:
    """The steps that were said, else none; `UsageError` where nothing was said and the run of `folder` has begun here."""
    from marin_scaling.errors import UsageError
    from marin_scaling.preregistration.register import answering_spec
    from marin_scaling.run.curves import losses_so_far
    from marin_scaling.train.session import hardware_of, looked_at

    if said is not None:
        return said
    spec = answering_spec(folder)
    done = len(losses_so_far(spec, looked_at([spec], storage=hardware_of(spec.ladder).storage)))
    if done:
        raise UsageError(
            f"The run of {folder.name} has begun here: step {done} of {spec.train_steps}.",
            why="What was seen of a run stands beside what is said of it afterwards.",
            fix="Say how many steps of its loss you have seen, 0 if you did not look: --steps-seen N",
        )
    return 0


def named_spec(run: str, *, registry: Path) -> RunSpec:
    """The spec of the run that `run` names: a preregistration (by name or path), digits of a digest, or a run's folder.

    `UsageError` where there is no such run, or more than one.
    """
    from marin_scaling.preregistration.register import answering_spec
    from marin_scaling.run.curves import find_spec
    from marin_scaling.train.session import workplace

    folder = registration_folder(run, registry=registry)
    if folder is not None:
        return answering_spec(folder)
    return find_spec(Path(run).name if Path(run).is_dir() else run, workplace())


def registration_folder(name: str, *, registry: Path) -> Path | None:
    """The preregistration of this name or at this path, of one's own sealed one its files; None where there is none."""
    from marin_scaling.preregistration.events.seal import whole_folder
    from marin_scaling.preregistration.layout import SEAL_NAME
    from marin_scaling.untrusted_files import is_present

    places = (registry / name, Path(name))
    known = (place for place in places if name and any(is_present(place / file) for file in ("statement.json", SEAL_NAME)))
    return next(map(whole_folder, known), None)


def one_folder(which: str, *, registry: Path, sealed: bool = False) -> Path:
    """The one folder of that name or path; `UsageError` for `all`, and of one that is sealed unless it may be."""
    from marin_scaling.errors import UsageError
    from marin_scaling.preregistration.layout import is_sealed
    from marin_scaling.preregistration.registry import find_folders

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
