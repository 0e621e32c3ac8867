"""Weights & Biases as a mirror of the loss curve, when the user asks for it by `WANDB_MODE` or `WANDB_PROJECT`.

`history.json` is the source of truth; nothing is ever read back from here. Offline mode needs no account.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from levanter.tracker.tracker import Tracker

from marin_scaling.errors import first_line, missing_extra
from marin_scaling.run.run_spec import RunSpec

_AWAY: list[str] = []


def wandb_is_asked_for() -> bool:
    """Whether the environment asks for W&B."""
    return os.environ.get("WANDB_MODE", "") not in ("", "disabled") or bool(os.environ.get("WANDB_PROJECT"))


def wandb_trackers(spec: RunSpec, *, on_note: Callable[[str], None]) -> list[Tracker]:
    """Levanter's W&B tracker for this run; none when it was not asked for, or with a note when W&B cannot be reached.

    To wait for a server that is away takes minutes: a process that has done so once does not for its other runs.
    """
    if not wandb_is_asked_for():
        return []
    if _AWAY:
        on_note(f"W&B could not be reached for the run {_AWAY[0]} and is not asked again: this one is not mirrored there.")
        return []
    try:
        from levanter.tracker.wandb import WandbConfig
    except ImportError as error:
        raise missing_extra("wandb", needed_for="mirroring runs to Weights & Biases") from error
    mode = os.environ.get("WANDB_MODE", "online")
    project = os.environ.get("WANDB_PROJECT", "marin-scaling")
    config = WandbConfig(
        project=project, name=f"{spec.ladder}-{spec.directory_name}", group=spec.ladder, mode=mode, save_code=False
    )
    try:
        tracker: Tracker = config.init(spec.directory_name)
        tracker.log_hyperparameters(spec.model_dump(mode="json"))
    except Exception as error:  # no key, no network, no such project: whatever the client raises
        _AWAY.append(spec.directory_name)
        on_note(f"W&B cannot be reached, and the run is not mirrored there; nothing else is lost. {first_line(error)}.")
        return []
    return [tracker]
