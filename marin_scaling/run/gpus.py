"""The GPUs of this machine, given to training processes by the environment that each begins with. Starts nothing.

A tiny model does not fill a GPU; several processes may share one, each with its part of the memory.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from marin_scaling.child_process import program

_USED_SHARE = 0.9  # of a GPU's memory by all processes together; the rest is the driver's and the compiler's


def visible_gpus() -> list[str]:
    """Those that `CUDA_VISIBLE_DEVICES` names, or all that the driver lists; none where there is no driver."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name for name in named.split(",") if name.strip() not in ("", "-1")]
    try:
        listed = subprocess.run([program("nvidia-smi"), "--list-gpus"], capture_output=True, text=True, check=False)
    except OSError:
        return []
    return [str(number) for number in range(len(listed.stdout.splitlines()))] if listed.returncode == 0 else []


def runs_that_fit(gpus_per_run: float, gpus: int) -> int:
    """How many runs have their GPUs at once.

    >>> [runs_that_fit(each, 8) for each in (0.25, 1, 3)]
    [32, 8, 2]
    """
    return gpus // int(gpus_per_run) if gpus_per_run >= 1 else gpus * _sharers(gpus_per_run)


def gpu_environment(number: int, *, gpus_per_run: float, gpus: Sequence[str]) -> dict[str, str]:
    """What to set for the process of this number: its GPUs, and its share of one; without a GPU of its own it uses none.

    >>> gpu_environment(1, gpus_per_run=2, gpus=["0", "1", "2", "3"])
    {'CUDA_VISIBLE_DEVICES': '2,3'}
    >>> gpu_environment(5, gpus_per_run=0.25, gpus=["0", "1"])
    {'CUDA_VISIBLE_DEVICES': '1', 'XLA_PYTHON_CLIENT_MEM_FRACTION': '0.225'}
    >>> gpu_environment(0, gpus_per_run=0, gpus=["0"])
    {'CUDA_VISIBLE_DEVICES': ''}
    >>> gpu_environment(0, gpus_per_run=0, gpus=[])
    {}
    """
    if not gpus_per_run:
        return {"CUDA_VISIBLE_DEVICES": ""} if gpus else {}
    if gpus_per_run >= 1:
        each = int(gpus_per_run)
        return {"CUDA_VISIBLE_DEVICES": ",".join(gpus[number * each : (number + 1) * each])}
    return {"CUDA_VISIBLE_DEVICES": gpus[number // _sharers(gpus_per_run)], **shared_memory(gpus_per_run)}


def shared_memory(gpus_per_run: float) -> dict[str, str]:
    """What keeps a process to its share of a GPU's memory; nothing where it has the whole.

    >>> shared_memory(0.5)
    {'XLA_PYTHON_CLIENT_MEM_FRACTION': '0.45'}
    """
    return {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{_USED_SHARE * gpus_per_run:g}"} if 0 < gpus_per_run < 1 else {}


def _sharers(share: float) -> int:
    return int(1 / share + 1e-9)
