"""Read what trainers and trackers write: the text of Megatron-LM and MaxText, and runs of W&B, offline and online."""

from __future__ import annotations

import heapq
import importlib.util
import json
import re
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

from marin_scaling.errors import RunTableError, UsageError, first_line, missing_extra
from marin_scaling.files import read_bytes
from marin_scaling.printable import printable
from marin_scaling.run.columns import spelled
from marin_scaling.run.import_runs import Keep, TrackedRun, kept_values, moment_in
from marin_scaling.run.stability import GRADIENT_NORM_KEYS
from marin_scaling.run.table_io import damaged, flat, plain_number
from marin_scaling.untrusted_files import MOST_TABLE_BYTES

_MOST_LINE_BYTES = 20_000
_SETTINGS_BYTES = 200_000
_MOST_FAULTS, _MOST_FAULT_CHARACTERS = 8, 300
_MOST_TRIED = 100
"""Limits: of a line of metrics, of the settings around a start, of the faults in an error, of tries."""
_WESTMOST = timedelta(hours=12)
"""Largest difference by which a local time can be before UTC."""

_COLORS = re.compile(rb"\x1b\[[0-9;]*m")
_NOISY = re.compile(r"time|second|throughput|flop|tokens/s|memory|power|energy", re.IGNORECASE)
_TIME = re.compile(rb"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")


@dataclass(frozen=True, kw_only=True)
class TextLog:
    """Run of a text log: the settings that it prints, and the last value and step of each key.

    `kind` is megatron or maxtext. `started_at` is the latest moment that the first time of the log can be, as it has no zone.
    `state` is finished, or names the last and the planned step; it is empty if the log does not give the planned one.
    """

    kind: str
    name: str
    is_named: bool
    project: str
    config: Mapping[str, Any]
    metrics: Mapping[str, Any]
    last_steps: Mapping[str, float]
    state: str
    started_at: datetime | None
    planned_steps: int | None
    steps: Sequence[float]
    first: Mapping[str, Any]
    history: Sequence[tuple[float, Mapping[str, Any]]]


@dataclass(frozen=True, kw_only=True)
class _Format:
    """Patterns of a trainer's lines: training steps (groups `step`, maybe `planned`), evaluations (`step`), settings.

    `begins` finds the lines that are printed when a run starts or resumes; the settings are around them. `separator` and
    `equals` separate fields, names and values. `key` names a field of an evaluation. `run`, `project` and `planned` are
    settings. Every pattern begins with fixed text, so that a large log is searched fast.
    """

    kind: str
    step: re.Pattern[bytes]
    evaluation: tuple[re.Pattern[bytes], ...]
    begins: tuple[re.Pattern[bytes], ...]
    setting: re.Pattern[bytes]
    separator: str
    equals: re.Pattern[str]
    key: Callable[[re.Match[bytes], str], str]
    run: str
    project: str
    planned: str


def _megatron_key(found: re.Match[bytes], name: str) -> str:
    number, held_out = ((found[group] or b"").decode() for group in ("set", "on"))
    return f"validation{number} {name.removesuffix(' value')}{held_out}"


_MEGATRON = _Format(
    kind="megatron",
    step=re.compile(rb"iteration +(?P<step>\d{1,15})/ *(?P<planned>\d{1,15}) +\|"),
    evaluation=(
        re.compile(rb"validation(?P<set>-\d+)? loss at iteration (?P<step>\d{1,15})(?P<on> on (?:validation|test) set)? +\|"),
    ),
    begins=(
        re.compile(rb"end of arguments -"),
        re.compile(rb"loaded checkpoint "),
        re.compile(rb"start of training step"),
    ),
    setting=re.compile(rb"(?P<name>seq_length|train_iters|wandb_exp_name|wandb_project) \.{3,} ?(?P<value>[^\r\n]{0,200})"),
    separator="|",
    equals=re.compile(":"),
    key=_megatron_key,
    run="wandb_exp_name",
    project="wandb_project",
    planned="train_iters",
)
"""NVIDIA/Megatron-LM, megatron/training/: `training_log`, `evaluate_and_print_results`, `_print_args`; also Megatron-Bridge."""

_MAXTEXT = _Format(
    kind="maxtext",
    step=re.compile(rb"completed (?:profiler activation/deactivation )?step: (?P<step>\d{1,15}),"),
    evaluation=(
        re.compile(rb"eval metrics after step: (?P<step>\d{1,15}),"),
        re.compile(rb"Completed eval after train step (?P<step>\d{1,15}),"),
        re.compile(rb"verage loss after step=(?P<step>\d{1,15})[,:]"),
    ),
    begins=(re.compile(rb"Config param run_name:"), re.compile(rb"restoring from "), re.compile(rb"existing checkpoint")),
    setting=re.compile(
        rb"Config param (?P<name>run_name|steps|max_target_length|global_batch_size_to_train_on): ?(?P<value>[^\r\n]{0,200})"
    ),
    separator=",",
    equals=re.compile("[:=]"),
    key=lambda _, name: f"eval_{name.removeprefix('eval_')}",
    run="run_name",
    project="",
    planned="steps",
)
"""AI-Hypercomputer/maxtext: `MetricLogger` (src/maxtext/common/metric_logger.py), older versions' train.py, pyconfig.py."""

TEXT_KINDS = (_MEGATRON.kind, _MAXTEXT.kind)


def read_text_log(path: Path, keep: Keep = ()) -> TextLog | None:
    """Return the run of a text log, or None for a file without training lines of Megatron-LM or MaxText.

    `keep` are the keys whose history is read. `RunTableError` names every contradiction with its line: two values at one step,
    steps that go back although the run was not resumed, another number of planned steps, hidden characters.
    """
    content = read_bytes(path, most_bytes=MOST_TABLE_BYTES)
    form = next((each for each in (_MEGATRON, _MAXTEXT) if _is_written_in(each, content)), None)
    if form is None:
        return None
    reading = _Reading(content, form, keep)
    for found in _events(form, content):
        reading.take(found)
        if len(reading.faults) >= _MOST_FAULTS:
            break
    return reading.log(path)


def _is_written_in(form: _Format, content: bytes) -> bool:
    """Return True if a training line is in the content, and not inside a JSON object or a quoted cell."""
    found = islice(form.step.finditer(content), _MOST_TRIED)
    before = (_prefix(content, each) for each in found)
    return any(b"{" not in each and b'"' not in each and not each.endswith(b", ") for each in before)


def _prefix(content: bytes, found: re.Match[bytes]) -> bytes:
    """Return what is before a training line in its line, at most 1,000 bytes."""
    return content[max(0, found.start() - 1000) : found.start()].rpartition(b"\n")[2]


def _events(form: _Format, content: bytes) -> Iterator[re.Match[bytes]]:
    """Yield what the patterns find, in the order of the file."""
    patterns = (*form.begins, form.step, *form.evaluation)
    return heapq.merge(*(each.finditer(content) for each in patterns), key=re.Match.start)


@dataclass
class _Reading:
    """Values of a log up to a place. A series is the training lines ("") or the evaluations of one set.

    Of the training lines only those that decide are parsed, unless a history is kept: the last one, and those that repeat a
    step.
    """

    content: bytes
    form: _Format
    keep: Keep = ()
    config: dict[str, str] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)
    series: dict[str, int] = field(default_factory=dict)
    history: list[tuple[float, Mapping[str, Any]]] = field(default_factory=list)
    trained: set[float] = field(default_factory=set)
    beginning: re.Match[bytes] | None = None
    ends: dict[tuple[str, int], str] = field(default_factory=dict)
    """values at the planned end, by key and step, where an earlier attempt reached it"""
    faults: list[str] = field(default_factory=list)
    first: re.Match[bytes] | None = None
    last: re.Match[bytes] | None = None
    """first training line of the attempt, and the last one"""
    began: bytes = b""
    searched: int = 0
    planned: int | None = None
    interval: int | None = None
    has_begun: bool = False
    """True if the run was started or resumed since the last training line"""

    def take(self, found: re.Match[bytes]) -> None:
        """Take what was found next."""
        if found.re is self.form.step:
            self._train(found)
        elif found.re in self.form.evaluation:
            named = {self.form.key(found, name): value for name, value in self._fields(found).items()}
            self._advance(self.form.key(found, ""), found, named)
        else:
            self.has_begun = True
            self._set(found.start())

    def _set(self, place: int) -> None:
        """Read the settings around the start of a run, each byte once."""
        start, self.searched = max(self.searched, place - _SETTINGS_BYTES), place + _SETTINGS_BYTES
        for found in self.form.setting.finditer(self.content, start, self.searched):
            value = _COLORS.sub(b"", found["value"]).decode("utf-8", errors="replace").strip()
            self.config[found["name"].decode()] = printable(value)
        if self.form is _MAXTEXT and (steps := plain_number(self.config.get(self.form.planned)) or 0) > 0:
            self.planned = int(steps) - 1  # the first step is 0

    def _train(self, found: re.Match[bytes]) -> None:
        if found.lastgroup == "planned":
            self._plan(found)
        step, before = int(found["step"]), self.series.get("")
        is_parsed = bool(self.keep) or step == before or (step, True) == (self.planned, bool(self.ends))
        if step == before and self.last is not None:
            self._keep(self.last)
        self._advance("", found, self._fields(found) if is_parsed else {})
        if self.has_begun or before is None:
            self.first, self.interval = found, None
            self.began = self.began or self._time(found)
        elif step > before and self.last is not self.first:
            self.interval = min(step - before, self.interval or step)
        self.last, self.has_begun = found, False
        self.beginning = self.beginning or found
        self.trained.add(float(step))

    def _plan(self, found: re.Match[bytes]) -> None:
        planned = int(found["planned"])
        if self.planned not in (None, planned) and not self.has_begun:
            self._fault(found, f"the run has {planned} iterations, and {self.planned} before")
        self.planned = planned

    def _advance(self, series: str, found: re.Match[bytes], values: Mapping[str, str]) -> None:
        """Go to a step with values of its line; a fault if they contradict those of the same step, or if steps go back."""
        step, before = int(found["step"]), self.series.get(series, -1)
        if step < before and not self.has_begun:
            self._fault(found, f"step {step} follows step {before}, and the run was not resumed between")
        elif step < before:
            self._go_back(step)
        if self.planned is not None and step > self.planned:
            self._fault(found, f"step {step} is after the last one, {self.planned}")
        for key, value in values.items():
            known = self.values[key] if self.steps.get(key) == step else self.ends.get((key, step), value)
            if known != value and not _NOISY.search(key):
                self._fault(found, f"{key} at step {step} is {value}, and {known} before")
        self.values.update(values)
        self.steps.update(dict.fromkeys(values, step))
        self.series[series] = step
        if kept := kept_values(values, self.keep):
            self.history.append((float(step), kept))

    def _go_back(self, step: int) -> None:
        """Forget what an earlier attempt logged at this step or later; keep its values at the planned end."""
        if self.last is not None and self.series.get("") == self.planned:
            self._keep(self.last)
        self.ends |= {(key, at): self.values[key] for key, at in self.steps.items() if at == self.planned}
        self.values = {key: value for key, value in self.values.items() if self.steps[key] < step}
        self.steps = {key: at for key, at in self.steps.items() if at < step}
        self.series = {name: at for name, at in self.series.items() if at < step}

    def _keep(self, found: re.Match[bytes]) -> None:
        """Store the values of a training line."""
        values = self._fields(found)
        self.values.update(values)
        self.steps.update(dict.fromkeys(values, int(found["step"])))

    def _fields(self, found: re.Match[bytes]) -> dict[str, str]:
        """Return the values behind the step by name; none, and a fault, for a line that can be misread."""
        rest = re.split(rb"[\r\n]", self.content[found.end() : found.end() + _MOST_LINE_BYTES], maxsplit=1)[0]
        text = _COLORS.sub(b"", rest).decode("utf-8", errors="replace").rstrip()
        if len(rest) == _MOST_LINE_BYTES:
            return self._fault(found, f"a line of metrics has {_MOST_LINE_BYTES:,} bytes or more")
        if not (text.isascii() and text.isprintable()):
            return self._fault(found, f"a line of metrics has hidden or other characters than ASCII: {printable(text[:200])}")
        values = dict[str, str]()
        for part in text.split(self.form.separator):
            name, value = (*(each.strip() for each in self.form.equals.split(part, maxsplit=1)), "")[:2]
            if name and value and values.setdefault(name, value) != value:
                return self._fault(found, f"{name} is {values[name]} and {value} in one line")
        return values

    def _time(self, found: re.Match[bytes]) -> bytes:
        times = _TIME.findall(_prefix(self.content, found))
        return times[-1] if times else b""

    def _fault(self, found: re.Match[bytes], what: str) -> dict[str, str]:
        if len(self.faults) < _MOST_FAULTS:
            number = self.content.count(b"\n", 0, found.start()) + 1
            self.faults.append(f"line {number}: {what[:_MOST_FAULT_CHARACTERS]}")
        return {}

    def log(self, path: Path) -> TextLog:
        """Return the run; `RunTableError` for the faults of the log."""
        self._end()
        if self.faults:
            raise RunTableError(
                tuple(f"{path}, {fault}." for fault in dict.fromkeys(self.faults)),
                why="The log was edited or filtered, or several runs or processes write to it, so its last value is uncertain.",
                fix="Name the unchanged output of one process of the run: --log PATH",
            )
        metrics = {key: _value(value) for key, value in self.values.items()}
        name = self.config.get(self.form.run, "")
        return TextLog(
            kind=self.form.kind,
            name=name or path.stem,
            is_named=bool(name),
            project=self.config.get(self.form.project, ""),
            config=self.config,
            metrics={**metrics, **self._tokens(metrics, step=self.series.get("", 0))},
            last_steps={key: float(step) for key, step in self.steps.items()},
            state=self._state(),
            started_at=_latest(self.began),
            planned_steps=None if self.planned is None else self.planned + (self.form is _MAXTEXT),
            steps=sorted(self.trained),
            first=self._first(),
            history=self.history,
        )

    def _first(self) -> dict[str, Any]:
        """Return the values of the first training line, with its tokens."""
        if self.beginning is None:
            return {}
        values = {key: _value(value) for key, value in self._fields(self.beginning).items()}
        return {**values, **self._tokens(values, step=int(self.beginning["step"]))}

    def _end(self) -> None:
        """Store the values of the last training line, and the last ones of keys that it lacks."""
        if self.first is not None and self.last is not None and "" in self.series:
            missing = self._fields(self.first).keys() - self._fields(self.last).keys()
            for key in sorted(missing)[:_MOST_TRIED]:
                self._keep_last_of(key, self.first, self.last)
            self._keep(self.last)
        stated = plain_number(self.config.get(self.form.planned))
        if self.form is _MEGATRON and stated and stated != self.planned:
            what = f"{self.form.planned} of the settings is {stated:g}, and the training lines have {self.planned} iterations"
            self.faults.append(f"settings: {what}")

    def _keep_last_of(self, key: str, first: re.Match[bytes], last: re.Match[bytes]) -> None:
        """Store the last value of a key that the last line lacks: Megatron-LM leaves out a loss that is not a number."""
        place = self.content.rfind(f"{self.form.separator} {key}:".encode(), first.start(), last.start())
        start = self.content.rfind(b"\n", 0, place) + 1
        found = self.form.step.search(self.content, start, place) or first
        self.values[key] = self._fields(found).get(key, "")
        self.steps[key] = int(found["step"])

    def _state(self) -> str:
        if self.planned is None:
            return ""
        step = self.series.get("", 0)
        return "finished" if step + (self.interval or 1) > self.planned else f"stopped at step {step} of {self.planned}"

    def _tokens(self, metrics: Mapping[str, Any], *, step: int) -> dict[str, float]:
        """Return the trained tokens at a step, if the log prints the sizes that give them."""
        samples, length = metrics.get("consumed samples"), plain_number(self.config.get("seq_length"))
        if self.form is _MAXTEXT and b"[Rampup" not in self.content:
            length = plain_number(self.config.get("max_target_length"))
            batch = plain_number(self.config.get("global_batch_size_to_train_on"))
            samples = batch and batch * (step + 1)
        return {"tokens": samples * length} if isinstance(samples, float) and length else {}


def _value(text: str) -> float | str:
    """Return a number, NaN and infinity included, or the text if it is none."""
    try:
        return float(text) if "_" not in text else text
    except ValueError:
        return text


def _latest(raw: bytes) -> datetime | None:
    try:
        return datetime.fromisoformat(raw.decode()).replace(tzinfo=UTC) + _WESTMOST if raw else None
    except (ValueError, OverflowError):
        return None


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
