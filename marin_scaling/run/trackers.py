"""Import runs from W&B, Levanter and JSON logs into a run table."""

from __future__ import annotations

import importlib.util
import json
import math
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from marin_scaling.errors import RunTableError, UsageError, first_line, missing_extra
from marin_scaling.files import read_bytes
from marin_scaling.run.spec import RunSpec
from marin_scaling.units import metric_of_column
from marin_scaling.untrusted_files import MOST_TABLE_BYTES, is_present

ONLINE = "wandb:"
REPLICA_NAME = "tracker_metrics.jsonl"
_NAMES = ("trainer/id", "trainer/tracker/name", "run_id", "name")
_BLOCK, _HEADER = 32_768, struct.Struct("<IHB")  # LevelDB's log format: checksum, length, kind of part
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """A run as logged: flat names ("throughput/total_tokens") to last values; `source` is its address or file."""

    name: str
    source: str
    config: Mapping[str, Any]
    metrics: Mapping[str, Any]
    state: str = ""


def read_tracked_runs(place: str) -> list[TrackedRun]:
    """Read the runs of `wandb:ENTITY/PROJECT`, of a file (.wandb, .jsonl, .log), or of all such files in a folder.

    `RunTableError` for a file of another kind; `UsageError` if there are no runs.
    """
    if place.startswith(ONLINE):
        return _online(place.removeprefix(ONLINE))
    path = Path(place)
    files = sorted(each for each in path.rglob("*") if _is_log(each)) if path.is_dir() else [path] if is_present(path) else []
    if not files:
        raise UsageError(
            f"{place}: no tracker has left anything there.",
            why=f"W&B's offline files end in .wandb, Marin's replica is {REPLICA_NAME}; of logs the file itself is named.",
            fix="Name a file or a folder, or wandb:ENTITY/PROJECT.",
        )
    return [run for each in files for run in (_offline(each) if each.suffix == ".wandb" else _json_lines(each))]


def _is_log(path: Path) -> bool:
    return path.suffix == ".wandb" or path.name == REPLICA_NAME


def _json_lines(path: Path) -> list[TrackedRun]:
    """Read Marin's replica (a run per line, with `config` and `summary`) or Levanter's JSON log (an event per line)."""
    found, logs = list[TrackedRun](), list[_JsonLog]()
    for number, raw in enumerate(read_bytes(path, most_bytes=MOST_TABLE_BYTES).splitlines(), start=1):
        row = _object(raw, path, number)
        if row is None:
            continue
        if "summary" in row and "config" in row:
            config, metrics = (_told(row, key, path, number) for key in ("config", "summary"))
            found.append(TrackedRun(name=_name(config, path), source=str(path), config=config, metrics=metrics))
        elif row.get("tracker") == "json_logger":
            told = {key: _told(row, key, path, number) for key in ("hparams", "metrics", "summary")}
            if not logs or logs[-1].is_over(told["hparams"]):
                logs.append(_JsonLog(path))
            logs[-1].take(str(row.get("event", "")), told)
    found += [log.run() for log in logs]
    if not found:
        raise RunTableError(
            f"{path}: it holds neither a replica of W&B (config and summary) nor events of Levanter's json_logger.",
            why="Runs are taken from trackers' own files.",
            fix="Name another file; a table of runs goes to marin-scale fit as it is.",
        )
    return found


@dataclass
class _JsonLog:
    """Events of one run; the last value of each metric counts."""

    path: Path
    config: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    finished: bool = False

    def is_over(self, hparams: Mapping[str, Any]) -> bool:
        """Return True if the next event is of another run: of another name, or after the end of this one."""
        names = [(self.config[key], hparams[key]) for key in _NAMES if key in hparams and key in self.config]
        return any(own != told for own, told in names) or (self.finished and not names)

    def take(self, event: str, told: Mapping[str, Mapping[str, Any]]) -> None:
        """Add one event."""
        self.config.update(told["hparams"])
        self.metrics.update(told["metrics"])
        self.finished = event == "finish"
        if self.finished:
            self.metrics.update(told["summary"])

    def run(self) -> TrackedRun:
        """Return the run with its last values."""
        state = "finished" if self.finished else "running"
        return TrackedRun(
            name=_name(self.config, self.path), source=str(self.path), config=self.config, metrics=self.metrics, state=state
        )


def _object(raw: bytes, path: Path, number: int) -> dict[str, Any] | None:
    """Return the JSON object in a line of a log, after the logger's prefix; None if the line has none."""
    start = raw.find(b"{")
    if start < 0:
        return None
    try:
        row = json.loads(raw[start:])
    except (ValueError, RecursionError) as error:
        if b'"json_logger"' not in raw and path.name != REPLICA_NAME:
            return None  # another line of the log, with a brace in it
        raise RunTableError(
            f"{path}, line {number}: it is not JSON: {first_line(error)}.",
            why="A line that was cut off may hold the last loss.",
            fix="Remove the line if the run's last metrics stand elsewhere in the file.",
        ) from error
    return row if isinstance(row, dict) else None


def _told(row: Mapping[str, Any], key: str, path: Path, number: int) -> dict[str, Any]:
    """Return the value of a key with flat names; empty if the key is missing."""
    values = row.get(key) or {}
    if not isinstance(values, Mapping):
        raise _damaged(f"{path}, line {number}", f"{key} holds no names with values")
    return flat(values)


def _damaged(where: str, what: str) -> RunTableError:
    return RunTableError(
        f"{where}: {what}.",
        why="A number that was changed on its way would go into a fit as it is.",
        fix="Take the file from where it was written, or leave it out.",
    )


def _name(config: Mapping[str, Any], path: Path) -> str:
    """Return the run's name from its configuration, else that of its folder."""
    for key in _NAMES:
        value = config.get(key)
        if isinstance(value, str) and value:
            return value
    return path.parent.name if path.name == REPLICA_NAME else path.stem


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Join nested names by slashes.

    >>> flat({"eval": {"loss": 2.5}, "step": 3})
    {'eval/loss': 2.5, 'step': 3}
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        inner = isinstance(value, Mapping) and value
        found.update(flat(value, f"{prefix}{name}/") if inner else {f"{prefix}{name}": value})
    return found


def _offline(path: Path) -> list[TrackedRun]:
    """Read the run in a .wandb file: protocol buffers in LevelDB's log format, up to where the file was cut off."""
    if importlib.util.find_spec("wandb") is None:
        raise missing_extra("wandb", needed_for=f"reading {path}")
    from google.protobuf.message import DecodeError
    from wandb.proto import wandb_internal_pb2

    config, metrics, name, state = dict[str, Any](), dict[str, Any](), path.stem, "running"
    for raw in _records(path):
        record = wandb_internal_pb2.Record()
        try:
            record.ParseFromString(raw)
        except DecodeError as error:
            raise _damaged(str(path), "a record in it cannot be read") from error
        kind = record.WhichOneof("record_type")
        if kind == "run":
            name = record.run.display_name or record.run.run_id or name
            config.update(_items(record.run.config.update))
        elif kind == "config":
            config.update(_items(record.config.update))
        elif kind == "history":
            metrics.update(_items(record.history.item))
        elif kind == "summary":
            metrics.update(_items(record.summary.update))
        elif kind == "exit":
            state = "finished" if record.exit.exit_code == 0 else "failed"
    return [TrackedRun(name=name, source=str(path), config=config, metrics=metrics, state=state)]


def _items(items: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for item in items:
        value = json.loads(item.value_json)
        name = item.key or "/".join(item.nested_key)
        found.update(flat(value, f"{name}/") if isinstance(value, dict) and value else {name: value})
    return found


def _records(path: Path) -> Iterator[bytes]:
    content = read_bytes(path, most_bytes=MOST_TABLE_BYTES)
    if content and content[:4] != b":W&B":  # a run killed at once leaves an empty file
        raise RunTableError(f"{path}: it is no file of W&B's.", why="It does not begin as they do.", fix="Name another file.")
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
            raise _damaged(str(path), f"no record begins at byte {place}")
        place += _HEADER.size
        part, place = content[place : place + length], place + length
        if zlib.crc32(part, zlib.crc32(bytes([kind]))) == checksum:
            yield kind, part
        elif place < len(content):
            raise _damaged(str(path), f"what stands before byte {place} is not what was written")
        else:
            return  # the run was killed while writing this part


def _online(project: str) -> list[TrackedRun]:
    """Read the runs of a project with W&B's client and the account it is logged in with."""
    if importlib.util.find_spec("wandb") is None:
        raise missing_extra("wandb", needed_for=f"reading the project {project}")
    import wandb

    try:
        runs = list(wandb.Api().runs(project))
    except Exception as error:  # whatever the client raises: no key, no network, no such project
        raise UsageError(
            f"The W&B project {project} cannot be read: {first_line(error)}.",
            why="Its runs are read through W&B's own client.",
            fix="Log in (wandb login), check ENTITY/PROJECT and the network, or name offline files.",
        ) from error
    return [_of_client(run) for run in runs]


def _of_client(run: Any) -> TrackedRun:
    config, metrics = flat(dict(run.config)), flat(dict(run.summary))
    return TrackedRun(name=run.name, source=run.url, config=config, metrics=metrics, state=run.state)


KEYS = {
    "flops": ("throughput/total_gflops",),
    "params": ("parameter_count", "num_parameters"),
    "tokens": ("throughput/total_tokens",),
    "seed": ("trainer/seed", "seed"),
}
"""Usual keys of each column in metrics or configuration; `total_gflops` is in units of 1e9."""
LOSSES = ("eval/paloma/macro_loss", "eval/macro_bpb", "eval/bpb", "eval/macro_loss", "eval/loss", "bits_per_byte")
"""Keys of the loss: the first one that every run has is used by default."""


@dataclass(frozen=True, kw_only=True)
class ImportedRuns:
    """Rows of `run`, `flops`, `params`, `tokens`, `loss`, `metric`, `seed`, `status`, `source`; skipped runs with reasons."""

    rows: tuple[dict[str, Any], ...]
    left_out: tuple[tuple[str, str], ...]
    loss_key: str


def import_runs(runs: Sequence[TrackedRun], *, keys: Mapping[str, str] | None = None) -> ImportedRuns:
    """Build a table of `runs`; `keys` names those of `loss`, `flops`, `params` or `tokens` where they are unusual.

    `RunTableError` if no run has a loss of a known name, or no run has all numbers.
    """
    chosen = dict(keys or {})
    if unknown := chosen.keys() - {"loss", "flops", "params", "tokens"}:
        raise UsageError(
            f"--column {min(unknown)}: loss, flops, params and tokens can be chosen.",
            why="The other columns are taken as they are.",
            fix="Leave it out.",
        )
    loss_key = chosen.pop("loss", "") or _loss_key(runs)
    rows, left_out = list[dict[str, Any]](), list[tuple[str, str]]()
    for run in runs:
        row = _row(run, loss_key, chosen)
        missing = [name for name, value in row.items() if value is None and name != "seed"]
        if missing:
            left_out.append((run.name, f"{run.source}: it has no {', '.join(missing)}"))
        else:
            rows.append(row)
    if not rows:
        raise RunTableError(
            f"None of {len(runs)} runs has all that a table needs. {left_out[0][1]}." if left_out else "There are no runs.",
            why="A fit needs FLOPs, parameters, tokens and loss of each run.",
            fix="Say where they stand: --column flops=KEY, --column loss=KEY, and so on.",
        )
    return ImportedRuns(rows=tuple(rows), left_out=tuple(left_out), loss_key=loss_key)


def _loss_key(runs: Sequence[TrackedRun]) -> str:
    for key in LOSSES:
        if runs and all(_number(run.metrics.get(key)) is not None for run in runs):
            return key
    for key in LOSSES:
        if any(_number(run.metrics.get(key)) is not None for run in runs):
            return key
    names = sorted({name for run in runs for name in run.metrics if "loss" in name or "bpb" in name})
    if known := [key for key in LOSSES if key in names]:
        raise RunTableError(
            f"{known[0]} is no number in any run: {runs[0].name} has {runs[0].metrics.get(known[0])}.",
            why="A run without a loss is no row of a fit.",
            fix="Name another metric, if one of them is the loss: --column loss=KEY.",
        )
    raise RunTableError(
        f"No run has a loss of a known name ({', '.join(LOSSES)}).",
        why="Which metric is the loss decides what is forecast.",
        fix=f"Name it: --column loss=KEY. There are: {', '.join(names[:12]) or 'none that is named for a loss'}.",
    )


def _row(run: TrackedRun, loss_key: str, chosen: Mapping[str, str]) -> dict[str, Any]:
    numbers = {name: _value(run, (chosen[name],) if name in chosen else keys) for name, keys in KEYS.items()}
    if "flops" not in chosen and numbers["flops"] is not None:
        numbers["flops"] *= 1e9
    spec = _our_spec(run)
    ours = {} if spec is None else _from_spec(spec)
    return {
        "run": run.name,
        **numbers,
        **{name: value for name, value in ours.items() if name not in chosen},
        "loss": _number(run.metrics.get(loss_key)),
        "metric": metric_of_column(loss_key) or loss_key,
        "status": run.state or "finished",
        "source": run.source,
    }


def _our_spec(run: TrackedRun) -> RunSpec | None:
    """Return the spec of a run that this tool mirrored to a tracker; None for other runs."""
    if "recipe" not in run.config or "budget_flops" not in run.config:
        return None
    try:
        return RunSpec.model_validate(_nested(run.config))
    except ValidationError:
        return None


def _from_spec(spec: RunSpec) -> dict[str, Any]:
    shape = spec.model.shape()
    is_sparse = shape.params_active != shape.params_total
    return {
        "flops": spec.flops,
        "params": shape.params_total,
        **({"active_params": shape.params_active} if is_sparse else {}),
        "tokens": spec.trained_tokens,
        "seed": spec.seed,
        "flops_convention": spec.flops_convention,
        "budget_flops": spec.budget_flops,
        "evaluation": spec.measured_on,
    }


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        if name.startswith("_wandb"):
            continue
        *parts, last = name.split("/")
        place = found
        for part in parts:
            place = place.setdefault(part, {})
        place[last] = value
    return found


def _value(run: TrackedRun, keys: Sequence[str]) -> float | None:
    places = [place.get(key) for key in keys for place in (run.metrics, run.config)]
    return next((number for value in places if (number := _number(value)) is not None), None)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value
