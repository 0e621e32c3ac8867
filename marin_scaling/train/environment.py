"""Software and hardware of a training run, and the W&B mirror of its curve."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Callable

from levanter.tracker.tracker import Tracker

from marin_scaling.errors import first_line, missing_extra
from marin_scaling.run.spec import RunSpec
from marin_scaling.run.store import Hardware

_PACKAGES = ("marin-scaling", "marin-levanter", "marin-haliax", "jax", "jaxlib", "optax", "numpy")


def hardware() -> Hardware:
    """Return the devices that JAX sees, and the number of cores that this process may use."""
    import jax  # not at the top, because the launcher needs only the commit

    device = jax.devices()[0]
    return Hardware(
        platform=f"{platform.system()} {platform.machine()}, {device.platform}",
        device_kind=device.device_kind,
        device_count=jax.device_count(),
        cpu_count=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
    )


def package_versions() -> dict[str, str]:
    """Return the versions of Python and of packages that influence a loss; missing packages are left out."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


_AWAY: list[str] = []


def wandb_is_asked_for() -> bool:
    """Return True if the environment configures W&B."""
    return os.environ.get("WANDB_MODE", "") not in ("", "disabled") or bool(os.environ.get("WANDB_PROJECT"))


def wandb_trackers(spec: RunSpec, *, on_note: Callable[[str], None]) -> list[Tracker]:
    """Return Levanter's W&B tracker for this run; empty if W&B is not configured, or, with a note, if it cannot be reached.

    After one timeout, which takes minutes, a process does not try again for other runs.
    """
    if not wandb_is_asked_for():
        return []
    if _AWAY:
        on_note(f"W&B could not be reached for the run {_AWAY[0]}, so this run is not mirrored there.")
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
    except Exception as error:  # whatever the client raises: no key, no network, no such project
        _AWAY.append(spec.directory_name)
        on_note(f"W&B cannot be reached, so the run is not mirrored there; training continues. {first_line(error)}.")
        return []
    return [tracker]
