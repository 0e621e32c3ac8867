"""Read runs of W&B: offline files, and projects through its client."""

from __future__ import annotations

import importlib.util
import json
import struct
import zlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from marin_scaling.errors import RunTableError, UsageError, first_line, missing_extra
from marin_scaling.files import read_bytes
from marin_scaling.run.columns import spelled
from marin_scaling.run.stability import GRADIENT_NORM_KEYS
from marin_scaling.run.table_io import damaged, flat
from marin_scaling.run.tracked_run import Keep, TrackedRun, kept_values, moment_in
from marin_scaling.untrusted_files import MOST_TABLE_BYTES


def offline_runs(path: Path, keep: Keep) -> list[TrackedRun]:
    """Return the run in a .wandb file (protocol buffers in LevelDB's log format), as far as a file that was cut off goes."""
    if importlib.util.find_spec("wandb") is None:
        raise missing_extra("wandb", needed_for=f"reading {path}")
    from google.protobuf.message import DecodeError
    from wandb.proto import wandb_internal_pb2

    config, metrics, name, state = dict[str, Any](), dict[str, Any](), path.stem, "running"
    known, last, steps, first = dict[str, Any](), dict[str, float](), list[float](), dict[str, Any]()
    history = list[tuple[float, Mapping[str, Any]]]()
    for raw in _records(path):
        record = wandb_internal_pb2.Record()
        try:
            record.ParseFromString(raw)
        except DecodeError as error:
            raise damaged(str(path), "a record in it cannot be read") from error
        kind = record.WhichOneof("record_type")
        if kind == "run":
            name = record.run.display_name or record.run.run_id or name
            known = _known_to_tracker(record.run)
            config.update(_items(record.run.config.update))
        elif kind == "config":
            config.update(_items(record.config.update))
        elif kind == "history":
            items = _items(record.history.item)
            metrics.update(items)
            steps.append(float(items.get("_step", record.history.step.num)))
            last |= dict.fromkeys(items, steps[-1])
            first = items | first
            history += [(steps[-1], kept)] if (kept := kept_values(items, keep)) else []
        elif kind == "summary":
            metrics.update(_items(record.summary.update))
        elif kind == "exit":
            state = "finished" if record.exit.exit_code == 0 else "failed"
    return [
        TrackedRun(
            name=name,
            source=str(path),
            config=config,
            metrics=metrics,
            state=state,
            last_steps=last,
            kind="wandb",
            history=history,
            steps=sorted(set(steps)),
            first=first,
            **known,
        )
    ]


def _known_to_tracker(run: Any) -> dict[str, Any]:
    """Return id, project and start of a run from W&B's record of it."""
    began = datetime.fromtimestamp(run.start_time.seconds, UTC) if run.start_time.seconds else None
    return {"id": run.run_id, "project": "/".join(filter(None, (run.entity, run.project))), "started_at": began}


def _items(items: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for item in items:
        value = json.loads(item.value_json)
        name = item.key or "/".join(item.nested_key)
        found.update(flat(value, f"{name}/") if isinstance(value, dict) and value else {name: value})
    return found


def online_runs(project: str, keep: Keep) -> list[TrackedRun]:
    """Return the runs of a project, read by W&B's own client with the account that is logged in."""
    if importlib.util.find_spec("wandb") is None:
        raise missing_extra("wandb", needed_for=f"reading the project {project}")
    import wandb

    try:
        runs = list(wandb.Api().runs(project))
    except Exception as error:  # whatever the client raises: no key, no network, no such project
        raise UsageError(
            f"The W&B project {project} cannot be read: {first_line(error)}.",
            fix="Log in (wandb login), check ENTITY/PROJECT and the network, or name offline files.",
        ) from error
    return [_of_client(run, keep) for run in runs]


def _of_client(run: Any, keep: Keep) -> TrackedRun:
    config, metrics = flat(dict(run.config)), flat(dict(run.summary))
    kept = [name for name in metrics if spelled(name) in keep]
    norms = [name for name in GRADIENT_NORM_KEYS if name in kept]
    scans = [each for each in ([name for name in kept if name not in norms], norms[:1]) if each]  # rows with all keys of a scan
    return TrackedRun(
        name=run.name,
        source=run.url,
        config=config,
        metrics=metrics,
        state=run.state,
        id=run.id,
        project=f"{run.entity}/{run.project}",
        started_at=moment_in(run.created_at),
        kind="wandb",
        history=[(float(row["_step"]), row) for scan in scans for row in run.scan_history(keys=["_step", *scan])],
    )


_BLOCK, _HEADER = 32_768, struct.Struct("<IHB")  # of LevelDB's log format: checksum, length, kind of part
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


def _records(path: Path) -> Iterator[bytes]:
    """Yield the records of a .wandb file."""
    content = read_bytes(path, most_bytes=MOST_TABLE_BYTES)
    if content and content[:4] != b":W&B":  # a run killed at once leaves an empty file
        raise RunTableError(f"{path} is not a W&B file.", fix="Name another file.")
    record = b""
    for kind, part in _parts(path, content):
        record += part
        if kind in (_WHOLE, _LAST):
            yield record
            record = b""


def _parts(path: Path, content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the kind and content of each part of a record, up to where a killed run stopped writing.

    The format is LevelDB's log: blocks of 32 KiB, in which no part crosses the end of a block.
    """
    place = 7
    while place + _HEADER.size <= len(content):
        left = _BLOCK - place % _BLOCK
        if left < _HEADER.size:
            place += left
            continue
        checksum, length, kind = _HEADER.unpack_from(content, place)
        if not any(content[place : place + left]):  # allocated, but the run was killed before it wrote here
            return
        if length > left - _HEADER.size or kind not in (_WHOLE, _FIRST, _MIDDLE, _LAST):
            raise damaged(str(path), f"no record begins at byte {place}")
        place += _HEADER.size
        part, place = content[place : place + length], place + length
        if zlib.crc32(part, zlib.crc32(bytes([kind]))) == checksum:
            yield kind, part
        elif place < len(content):
            raise damaged(str(path), f"the record before byte {place} was changed")
        else:
            return  # the run was killed while writing this part
