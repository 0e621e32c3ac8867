"""How much of its run a registrant had seen when they took a forecast back or made it again: asked once it has begun."""

from __future__ import annotations

from pathlib import Path

import typer

STEPS_SEEN = typer.Option(
    None,
    "--steps-seen",
    min=0,
    help="How many steps of the target's loss you have seen; default: none, where it has not begun.",
)


def steps_said(said: int | None, *, folder: Path) -> int:
    """The steps that were said, else none; `UsageError` where nothing was said and the run of `folder` has begun here."""
    from marin_scaling.cli.training import hardware_of, looked_at
    from marin_scaling.errors import UsageError
    from marin_scaling.preregistration.binding import answering_spec
    from marin_scaling.run.curve_files import losses_so_far

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
