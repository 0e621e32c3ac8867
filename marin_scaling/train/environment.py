"""Processes, software and hardware of a training run, and the W&B mirror of its curve.

The processes of a group train one run together, as on the hosts of a TPU slice. Each process computes on its own devices. The
first one decides whatever depends on a clock or on files. It writes the files, except for checkpoints: each process writes its
part into a folder that all of them see. If one dies, the others stop; a restarted group resumes from the last checkpoint.
`ray_pool` starts groups.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from marin_scaling.errors import first_line, missing_extra
from marin_scaling.ladder.config import ONE_AXIS, Mesh
from marin_scaling.run.spec import RunSpec
from marin_scaling.run.store import Hardware

if TYPE_CHECKING:
    from levanter.tracker.tracker import Tracker

_MEETING_SECONDS = 600  # a node may still be starting
_PACKAGES = ("marin-scaling", "marin-levanter", "marin-haliax", "jax", "jaxlib", "optax", "numpy")


@dataclass(frozen=True, kw_only=True)
class ProcessGroup:
    """Number of processes, rank of this one, and address of the first one (HOST:PORT); default: a single process.

    >>> alone = ProcessGroup()
    >>> alone.is_leader, alone.leaders(7), alone.is_everywhere(False)
    (True, 7, False)
    """

    count: int = 1
    rank: int = 0
    coordinator: str = ""

    @property
    def is_leader(self) -> bool:
        """Return True for the process that decides and writes."""
        return self.rank == 0

    def join(self) -> None:
        """Connect to the other processes, before JAX looks for devices."""
        if self.count > 1:
            import jax

            jax.distributed.initialize(
                self.coordinator,
                num_processes=self.count,
                process_id=self.rank,
                cluster_detection_method="deactivate",  # otherwise Slurm or MPI would choose devices
                initialization_timeout=_MEETING_SECONDS,
            )

    def leaders(self, number: int) -> int:
        """Return the leader's number (or truth) in all processes; every process must call this."""
        if self.count == 1:
            return number
        import numpy as np
        from jax.experimental.multihost_utils import broadcast_one_to_all

        return int(broadcast_one_to_all(np.int32(number), is_source=self.is_leader))

    def is_everywhere(self, flag: bool) -> bool:
        """Return True if `flag` is true in all processes; every process must call this, and waits for the others."""
        if self.count == 1:
            return flag
        import numpy as np
        from jax.experimental.multihost_utils import process_allgather

        return bool(np.all(process_allgather(np.int32(flag))))


ALONE = ProcessGroup()
"""Group of a single process."""


def hardware(mesh: Mesh = ONE_AXIS) -> Hardware:
    """Return the devices that JAX sees and their mesh, and the number of cores that this process may use."""
    import jax  # not at the top, because the launcher needs only the commit

    device = jax.devices()[0]
    return Hardware(
        platform=f"{platform.system()} {platform.machine()}, {device.platform}",
        device_kind=device.device_kind,
        device_count=jax.device_count(),
        cpu_count=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        mesh=None if mesh == ONE_AXIS else mesh.over(jax.device_count()),
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
