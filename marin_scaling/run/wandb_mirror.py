"""Weights & Biases as a mirror of the loss curve, when the user asks for it by `WANDB_MODE` or `WANDB_PROJECT`.

`history.json` is the source of truth; nothing is ever read back from here. Offline mode needs no account.
"""

from __future__ import annotations

import os

from levanter.tracker.tracker import Tracker

from marin_scaling.errors import missing_extra
from marin_scaling.run.run_spec import RunSpec


def wandb_is_asked_for() -> bool:
    """Whether the environment asks for W&B."""
    return os.environ.get("WANDB_MODE", "") not in ("", "disabled") or bool(os.environ.get("WANDB_PROJECT"))


def wandb_trackers(spec: RunSpec) -> list[Tracker]:
    """Levanter's W&B tracker for this run, or none when it was not asked for."""
    if not wandb_is_asked_for():
        return []
    try:
        from levanter.tracker.wandb import WandbConfig
    except ImportError as error:
        raise missing_extra("wandb", needed_for="mirroring runs to Weights & Biases") from error
    mode = os.environ.get("WANDB_MODE", "online")
    project = os.environ.get("WANDB_PROJECT", "marin-scaling")
    tracker: Tracker = WandbConfig(
        project=project, name=f"{spec.ladder}-{spec.directory_name}", group=spec.ladder, mode=mode, save_code=False
    ).init(spec.directory_name)
    tracker.log_hyperparameters(spec.model_dump(mode="json"))
    return [tracker]
