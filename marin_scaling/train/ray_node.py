"""Ray task on a node: start a training process on reserved cores, and forward its lines. Nodes import it without JAX."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from marin_scaling.canonical_json import sha256_hex
from marin_scaling.child_process import child_environment
from marin_scaling.files import claim, make_private, replace_file
from marin_scaling.ladder.config import PerRun
from marin_scaling.run.paths import Workplace, spec_path
from marin_scaling.run.spec import RunSpec
from marin_scaling.train.environment import ProcessGroup
from marin_scaling.train.launcher import shared_memory, worker_command
from marin_scaling.train.progress import parse_event

_POLL_SECONDS = 0.5


def train_one(
    spec: RunSpec, workplace: Workplace, per_run: PerRun, events: Any, group: ProcessGroup, coordinator: str = ""
) -> int:
    """Train one run in a process, alone or in a group, and forward its lines; return the exit status."""
    import ray

    if workplace.storage is not None:
        workplace = _place_of_node(workplace, workplace.storage)
        replace_file(spec_path(spec, workplace), spec.to_bytes())
    log = workplace.work_root / "logs" / f"ray-{socket.gethostname()}-{os.getpid()}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    sent = []
    with _own_cores(per_run.cpus) as cores, open(log, "a") as stream:
        group = replace(group, coordinator=coordinator)
        command = worker_command([spec], workplace=workplace, cores=cores, group=group)
        with subprocess.Popen(
            command,
            cwd=workplace.runs_dir.parent,
            env=child_environment(os.environ | shared_memory(per_run.gpus)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stream,
            text=True,
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if not group.is_leader and not _is_failure(line):
                    continue
                sent = [events.add.remote(line)]  # not awaited: Ray gives the cores of a waiting task to another
    with contextlib.suppress(ray.exceptions.RayActorError):
        ray.get(sent)  # the last line, and so all before it, have arrived
    return process.returncode


def _is_failure(line: str) -> bool:
    event = parse_event(line)
    return event is not None and event.kind == "failed"


def free_address() -> str:
    """Return a free HOST:PORT of this node."""
    import ray

    with socket.socket() as probe:
        probe.bind(("", 0))
        return f"{ray.util.get_node_ip_address()}:{probe.getsockname()[1]}"


def _place_of_node(workplace: Workplace, storage: str) -> Workplace:
    """Return a working folder on this node for this user and storage; its content is a copy."""
    folder = _folder_of_user("marin-scaling") / sha256_hex(storage.encode())[:16]
    return replace(workplace, runs_dir=folder / "runs", work_root=folder / ".marin-scaling")


def _folder_of_user(name: str) -> Path:
    """Return a temporary folder of this user; `StorageError` if another user created it, or a link to it."""
    folder = Path(tempfile.gettempdir()) / f"{name}-{os.getuid()}"
    make_private(folder, allow_link=False)
    return folder


@contextlib.contextmanager
def _own_cores(wanted: int) -> Iterator[list[int]]:
    """Reserve cores of this machine that no other run of ours uses, since Ray counts cores without assigning them.

    Always reserve `wanted` cores (or all, if there are fewer), since sums over more cores differ in their last digits.
    """
    folder = _folder_of_user("marin-scaling-cores")
    cores = sorted(os.sched_getaffinity(0))
    while True:
        with contextlib.ExitStack() as stack:
            mine: list[int] = []
            for core in cores:
                if len(mine) < wanted and stack.enter_context(claim(folder / f"core-{core}")):
                    mine.append(core)
            if len(mine) == min(wanted, len(cores)):
                yield mine
                return
        time.sleep(_POLL_SECONDS)
