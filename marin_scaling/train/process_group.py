"""Several processes that train one run together, as the machines of a TPU slice do: how they meet, and how they agree.

Each computes on its own devices. Decisions that hang on a clock or on files are the first one's. It writes the files, except
checkpoints, of which each writes its part into a folder that all of them see. When one dies, the others cannot go on; started
again, all go on from the last checkpoint. Starting them is `ray_pool`' business.
"""

from __future__ import annotations

from dataclasses import dataclass

_MEETING_SECONDS = 600  # a node may still have to be started


@dataclass(frozen=True, kw_only=True)
class ProcessGroup:
    """Of how many processes this is which, and where the first one listens (HOST:PORT); without arguments one alone.

    >>> alone = ProcessGroup()
    >>> alone.is_leader, alone.leaders(7), alone.is_everywhere(False)
    (True, 7, False)
    """

    count: int = 1
    rank: int = 0
    coordinator: str = ""

    @property
    def is_leader(self) -> bool:
        """Whether this is the process that decides and writes."""
        return self.rank == 0

    def join(self) -> None:
        """Meet the others; before JAX is asked for its devices."""
        if self.count > 1:
            import jax

            jax.distributed.initialize(
                self.coordinator,
                num_processes=self.count,
                process_id=self.rank,
                cluster_detection_method="deactivate",  # else what starts us (Slurm, MPI) would choose devices
                initialization_timeout=_MEETING_SECONDS,
            )

    def leaders(self, number: int) -> int:
        """The number (or truth) that the leader gave, in all processes; each has to come here."""
        if self.count == 1:
            return number
        import numpy as np
        from jax.experimental.multihost_utils import broadcast_one_to_all

        return int(broadcast_one_to_all(np.int32(number), is_source=self.is_leader))

    def is_everywhere(self, flag: bool) -> bool:
        """Whether it is so in all processes; each has to come here, and none goes on before all have."""
        if self.count == 1:
            return flag
        import numpy as np
        from jax.experimental.multihost_utils import process_allgather

        return bool(np.all(process_allgather(np.int32(flag))))


ALONE = ProcessGroup()
"""A process that trains a run by itself."""
