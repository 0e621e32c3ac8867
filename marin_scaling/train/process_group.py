"""Groups of processes that train one run together, as on the hosts of a TPU slice.

Each process computes on its own devices. The first one decides whatever depends on a clock or on files. It writes the files,
except for checkpoints: each process writes its part into a folder that all of them see. If one dies, the others stop; a
restarted group resumes from the last checkpoint. `ray_pool` starts groups.
"""

from __future__ import annotations

from dataclasses import dataclass

_MEETING_SECONDS = 600  # a node may still be starting


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
