"""Read runs from what trackers wrote: W&B, Levanter's logs and JSON files, text logs, histories and tables of results."""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NoReturn

from marin_scaling.errors import RunTableError, UsageError, first_line
from marin_scaling.files import read_bytes
from marin_scaling.run.columns import COLUMNS, LOSS_KEYS, aliases_of, candidates, spelled, step_column
from marin_scaling.run.curves import step_or_loss_column
from marin_scaling.run.import_runs import START_KEYS, Keep, TrackedRun, is_nan, kept_values, moment_in
from marin_scaling.run.logs import offline_runs, online_runs, read_text_log
from marin_scaling.run.table_io import (
    RawTable,
    damaged,
    flat,
    is_empty,
    is_table_file,
    number_in,
    read_table_file,
    table_ending,
)
from marin_scaling.untrusted_files import MOST_TABLE_BYTES, is_present

ONLINE = "wandb:"
REPLICA_NAME = "tracker_metrics.jsonl"
_RESULT_NAMES = ("eval_results.json", "eval_metrics.jsonl", "speedrun_results.json")
_STEP_FILE = re.compile(r"step[-_]?(\d+)\.json")
_NAMES = ("trainer/id", "trainer/tracker/name", "run_id", "run", "name")


def read_tracked_runs(*places: str, curves: Collection[str] = (), run_column: str = "") -> list[TrackedRun]:
    """Return the runs at some places: `wandb:ENTITY/PROJECT`, files, or folders with trackers' files anywhere in them.

    `curves` are keys whose `history` is read, too; `run_column` names the runs of tables. `RunTableError` for a file that
    neither a tracker nor a table tool wrote; `UsageError` where there is nothing.
    """
    keep, linked = frozenset(map(spelled, curves)), links_among(places)
    found, files = list[TrackedRun](), list[Path]()
    for place in places:
        if place in linked:
            continue
        if place.startswith(ONLINE):
            found += online_runs(place.removeprefix(ONLINE), keep)
        else:
            files += files_at(Path(place))
    steps = defaultdict[Path, list[Path]](list)
    for path in dict.fromkeys(files):
        if _STEP_FILE.fullmatch(path.name):
            steps[path.parent].append(path)
        else:
            found += _read(path, keep, run_column)
    return found + [_of_step_files(folder, paths, keep) for folder, paths in steps.items()]


def links_among(places: Sequence[str]) -> list[str]:
    """Return the places that are links into others, as W&B's `latest-run` next to its runs; they are not read."""
    real = [Path(os.path.realpath(place)) for place in places if not os.path.islink(place)]
    links = [place for place in places if os.path.islink(place)]
    return [place for place in links if any(Path(os.path.realpath(place)).is_relative_to(each) for each in real)]


def files_at(path: Path) -> list[Path]:
    """Return a file, or those of a folder that are read: trackers' own, or its tables (histories, one a run) without these."""
    if not path.is_dir():
        return [path] if is_present(path) else _nothing_at(path)
    folders = defaultdict[Path, list[Path]](list)
    for each in sorted(path.rglob("*")):
        folders[each.parent].append(each)
    found = [each for files in folders.values() for each in _best_kind(files)]
    return found or [each for each in sorted(path.rglob("*")) if table_ending(each) in (".csv", ".tsv")] or _nothing_at(path)


def _best_kind(files: Sequence[Path]) -> list[Path]:
    """Return the files of one folder that say the most about its runs."""
    kinds = (
        [each for each in files if each.suffix == ".wandb" or each.name == REPLICA_NAME],
        [each for each in files if _STEP_FILE.fullmatch(each.name)],
        [each for each in files if each.name in _RESULT_NAMES],
    )
    return next((kind for kind in kinds if kind), [])


def _nothing_at(path: Path) -> NoReturn:
    if not path.exists():
        raise UsageError(f"{path} does not exist.", fix="Name a file or a folder, or wandb:ENTITY/PROJECT.")
    raise UsageError(
        f"{path}: no files of a tracker.",
        why=f"Folders are searched for .wandb, {REPLICA_NAME}, step-*.json, {', '.join(_RESULT_NAMES)} and .csv.",
        fix="Name a file or a folder, or wandb:ENTITY/PROJECT.",
    )


def _read(path: Path, keep: Keep, run_column: str = "") -> list[TrackedRun]:
    if path.suffix == ".wandb":
        return offline_runs(path, keep)
    if log := read_text_log(path, keep):
        return [TrackedRun(source=str(path), **vars(log))]
    if is_table_file(path) and table_ending(path) not in (".jsonl", ".ndjson"):
        return _of_table(read_table_file(path), path, keep, run_column)
    return _json_lines(path, keep, run_column)


_CONFIG_NAMES = ("config.json", "hparams.json", "run.json", "summary.json")
_OUTER_NAMES = ("metrics", "summary", "config", "hparams", "results")
_PLAIN_FOLDERS = frozenset(
    {"metrics", "eval", "evals", "eval_metrics", "eval_results", "checkpoints", "results", "steps", "durable"}
)
_PLAIN_FILES = frozenset({"eval_results", "eval_metrics", "results", "metrics", "summary", "speedrun_results"})


def _of_step_files(folder: Path, paths: Sequence[Path], keep: Keep) -> TrackedRun:
    """Return the run whose metrics lie in a JSON file for each step, with the last value of each metric."""
    metrics, config, last, first = dict[str, Any](), dict[str, Any](), dict[str, float](), dict[str, Any]()
    history = list[tuple[float, Mapping[str, Any]]]()
    steps = sorted((int(re.sub(r"\D", "", path.stem)), path) for path in paths)
    for step, path in steps:
        for row in _rows(read_table_file(path)):
            metrics |= row
            first = row | first
            last |= dict.fromkeys(row, float(step))
            history += [(float(step), kept)] if (kept := kept_values(row, keep)) else []
    for path in (place / name for place in (folder.parent, folder) for name in _CONFIG_NAMES):
        if is_present(path):
            config |= _rows(read_table_file(path))[0]
    named = _config_name({**config, **metrics})
    return TrackedRun(
        name=named or _folder_name(folder),
        source=str(folder),
        config=config,
        metrics=metrics,
        last_steps=last,
        kind="json",
        is_named=bool(named),
        steps=[float(step) for step, _ in steps],
        first=first,
        history=history,
    )


def _rows(raw: RawTable) -> list[dict[str, Any]]:
    """Return the filled cells of each row, without the outer name under which JSON files keep all metrics.

    A NaN is kept where a file distinguishes it from an empty cell, which Parquet does not.
    """
    names = [_unwrapped(name) for name in raw.column_names()]
    tells_nan = table_ending(Path(raw.name)) != ".parquet"
    return [
        {
            name: value
            for name, value in zip(names, cells, strict=True)
            if not is_empty(value) or (tells_nan and value is not None and is_nan(value))
        }
        for cells in raw.cells.itertuples(index=False, name=None)
    ]


def _unwrapped(name: str) -> str:
    outer, slash, inner = name.partition("/")
    return inner if slash and outer in _OUTER_NAMES else name


def _folder_name(folder: Path) -> str:
    """Return the name of a run's folder: of the innermost one whose name does not merely say what it holds."""
    while folder.name.lower() in _PLAIN_FOLDERS and folder.parent.name:
        folder = folder.parent
    return folder.name


def _of_table(raw: RawTable, path: Path, keep: Keep = (), run_column: str = "") -> list[TrackedRun]:
    """Return the runs of a table: one a row or, where rows are steps, one for each run's name or for the file."""
    rows = _rows(raw)
    run, status = (next(iter(candidates(COLUMNS[name], raw)), "") for name in ("run", "status"))
    run = run_column or run
    names = [str(row.get(_unwrapped(run), "")) for row in rows]
    grouped = defaultdict[str, list[dict[str, Any]]](list)
    for name, row in zip(names, rows, strict=True):
        grouped[name].append(row)
    stem = path.name.removesuffix(".gz").rpartition(".")[0]
    own = _folder_name(path.parent) if stem in _PLAIN_FILES else stem
    if (step := _step_of(raw, is_named=bool(run))) and any(
        _are_steps(group, step, raw, is_named=bool(name)) for name, group in grouped.items()
    ):
        return [_last_of(name or own, group, step, path, keep, is_named=bool(name)) for name, group in grouped.items()]
    places = [own] if len(rows) == 1 else [f"{own}, {place}" for place in raw.places]
    return [
        TrackedRun(
            name=name or place,
            source=f"{raw.name}, {where}",
            config={},
            metrics=row,
            state=str(row.get(status, "")),
            project=str(row.get("project", "")),
            kind=_kind_of(path),
            is_named=bool(name),
        )
        for name, place, where, row in zip(names, places, raw.places, rows, strict=True)
    ]


def run_of_table(
    path: Path, *, columns: Mapping[str, str] | None, curves: Collection[str], steps: int | None = None
) -> TrackedRun:
    """Return the run whose steps are the rows of a table, or its first `steps`.

    `columns` may name the column of `step`; `curves` are as in `read_tracked_runs`.
    """
    raw = read_table_file(path)
    step = _unwrapped(step_or_loss_column(raw.column_names(), "step", columns or {}, path))
    rows = [row for row in _rows(raw) if steps is None or (number_in(row.get(step)) or 0.0) < steps]
    return _last_of(path.name, rows, step, path, frozenset(map(spelled, curves)), is_named=False)


TABLE_KINDS = ("json", "csv")


def _kind_of(path: Path) -> str:
    return "json" if table_ending(path) in (".json", ".jsonl", ".ndjson") else "csv"


def _step_of(raw: RawTable, *, is_named: bool) -> str:
    """Return the column by which rows may be steps of a run: of nameless rows without parameters, also that of tokens."""
    if step := step_column(raw.column_names()):
        return step
    tokens = candidates(COLUMNS["tokens"], raw)
    return tokens[0] if tokens and not is_named and not candidates(COLUMNS["params"], raw) else ""


def _are_steps(rows: Sequence[Mapping[str, Any]], step: str, raw: RawTable, *, is_named: bool) -> bool:
    """Return True if rows of one name are steps of one run, with one number of parameters.

    Steps of nameless rows go up; those of a named run go back where it was resumed.
    """
    steps = [number for row in rows if (number := number_in(row.get(step))) is not None]
    sizes = {row.get(name) for name in candidates(COLUMNS["params"], raw)[:1] for row in rows}
    return len(set(steps)) > 1 and (is_named or steps == sorted(steps)) and len(sizes) < 2


def _last_of(name: str, rows: Sequence[Mapping[str, Any]], step: str, path: Path, keep: Keep, *, is_named: bool) -> TrackedRun:
    """Return the run of a history, with the last value of each column in the order of steps."""
    last, last_steps, first = dict[str, Any](), dict[str, float](), dict[str, Any]()
    twice = dict[str, tuple[float, Any, Any]]()
    ordered = sorted(((number_in(row.get(step)) or 0.0, row) for row in rows), key=lambda pair: pair[0])
    for at, row in ordered:
        numbers = {key: value for key, value in row.items() if not is_nan(value)}
        again = {key: (at, last[key], value) for key, value in numbers.items() if last_steps.get(key) == at}
        twice |= {key: found for key, found in again.items() if number_in(found[1]) != number_in(found[2])}
        last |= {**{key: value for key, value in row.items() if key not in last}, **numbers}
        first = {**numbers, **first}
        last_steps |= dict.fromkeys(numbers, at)
    return TrackedRun(
        name=name,
        source=str(path),
        config={},
        metrics=last,
        state=next((str(last[key]) for key in ("status", "state", *aliases_of(COLUMNS["status"])) if key in last), ""),
        started_at=min(filter(None, (moment_in(row.get(key)) for row in rows for key in START_KEYS)), default=None),
        last_steps=last_steps,
        project=str(last.get("project", "")),
        stopped=_stopped([row for _, row in ordered], last),
        twice={key: found for key, found in twice.items() if found[0] == last_steps[key]},
        kind=_kind_of(path),
        is_named=is_named,
        history=[(number_in(row.get(step)) or 0.0, kept_values(row, keep)) for row in rows] if keep else (),
        steps=_in_order(at for at, _ in ordered),
        first=first,
    )


def _stopped(rows: Sequence[Mapping[str, Any]], names: Collection[str]) -> dict[str, int]:
    """Return for each name that stopped the number of rows after its last number.

    It stopped if these are as many as the rows from one number to the next, and one more if they are empty and not NaN.
    """
    found = {}
    for name in names:
        filled = [number for number, row in enumerate(rows) if name in row and not is_nan(row[name])]
        if not filled:
            continue
        after = rows[filled[-1] + 1 :]
        usual = median(later - earlier for earlier, later in pairwise(filled)) if len(filled) > 1 else len(rows)
        if after and len(after) >= usual + (not any(name in row for row in after)):
            found[name] = len(after)
    return found


def _in_order(steps: Iterable[float]) -> list[float]:
    return sorted({float(step) for step in steps})


def _json_lines(path: Path, keep: Keep, run_column: str = "") -> list[TrackedRun]:
    """Return the runs of W&B's replica, of Levanter's JSON log (an event in each line, maybe prefixed), or of JSON rows."""
    found, events = list[TrackedRun](), list[_Event]()
    for number, raw in enumerate(read_bytes(path, most_bytes=MOST_TABLE_BYTES).splitlines(), start=1):
        prefix, row = _object(raw, path, number)
        if row is None:
            continue
        if "summary" in row and "config" in row:
            config, metrics = (_told(row, key, path, number) for key in ("config", "summary"))
            name, is_named = _log_name(config, path), bool(_config_name(config))
            found.append(TrackedRun(name=name, source=str(path), config=config, metrics=metrics, is_named=is_named))
        elif row.get("tracker") == "json_logger":
            told = {key: _told(row, key, path, number) for key in ("hparams", "metrics", "summary")}
            writer = " ".join(str(row[key]) for key in ("run_id", "process_index", "host") if key in row)
            events.append(_Event(number, f"{writer} {prefix}", str(row.get("event", "")), row.get("step"), told))
    found += _runs_of(events, path, keep)
    if found:
        return found
    if is_table_file(path) and path.name != REPLICA_NAME:
        return _of_table(read_table_file(path), path, keep, run_column)
    raise RunTableError(
        f"{path} holds no replica of W&B (config and summary), no events of Levanter's json_logger, and no training lines of "
        "Megatron-LM or MaxText.",
        fix="Name a tracker's own file, the output of a trainer, or a table.",
    )


@dataclass(frozen=True)
class _Event:
    """An event of a JSON log: the line, what stands before it, its kind and step, and its flat values by kind."""

    line: int
    prefix: str
    kind: str
    step: Any
    told: Mapping[str, Mapping[str, Any]]


def _runs_of(events: Sequence[_Event], path: Path, keep: Keep) -> list[TrackedRun]:
    """Return the runs of a log that one or more processes wrote; the hosts of a run are one run."""
    found: dict[str, TrackedRun] = {}
    for writer, own in _by_writer(events).items():
        logs = list[_JsonLog]()
        for event in own:
            if not logs or logs[-1].is_over(event):
                logs.append(_JsonLog(path, keep))
            logs[-1].take(event)
        for log in logs:
            _add(found, log.run(), "" if log.is_named else writer)
    return list(found.values())


def _add(found: dict[str, TrackedRun], run: TrackedRun, writer: str) -> None:
    """Add a run unless another host of it, or its later attempt, is there; of two unfinished attempts the later one counts."""
    twin = found.get(run.name)
    if twin is None or ((run.state == "finished" or twin.state != "finished") and (not writer or _is_twin(run, twin))):
        is_other = twin is not None and twin.state == run.state == "finished" and not _is_twin(run, twin)
        found[f"{run.name} {len(found)}" if is_other else run.name] = run
    elif writer and not _is_twin(run, twin):
        found[f"{run.name} {writer}"] = replace(run, name=f"{run.name} {writer}")


def _is_twin(run: TrackedRun, twin: TrackedRun) -> bool:
    return _known(run.metrics) == _known(twin.metrics)


_KNOWN = frozenset(
    spelled(key)
    for key in (*LOSS_KEYS, "train/loss", *(key for name in ("flops", "params", "tokens") for key in aliases_of(COLUMNS[name])))
)


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that hosts of one run log alike: losses, FLOPs, parameters and tokens."""
    return {key: value for key, value in values.items() if spelled(key) in _KNOWN}


_COLORS = re.compile(r"\x1b\[[0-9;]*m")
_NO_WRITER = re.compile(
    r"\d{4}-\d\d-\d\d|\d\d?:\d\d:\d\d([.,]\d+)?(Z|[-+]\d\d:?\d\d)?|\b(debug|info|warning|warn|error|critical)\b|[\w/.]+\.py:\d+",
    re.IGNORECASE,
)
_WRITER = re.compile(
    r"\b(pid|host|rank|process|worker|task|replica|node|slice)\W{0,3}[\w.-]*\d+|^\W*\d+\s*[:|\]]|-w-\d+", re.IGNORECASE
)


def _by_writer(events: Sequence[_Event]) -> dict[str, list[_Event]]:
    """Return the events of each process, told apart by what stands before the events, without times and levels.

    Where that would leave a process without its settings and its end, only numbers that name a process are taken.
    """
    whole = [" ".join(_NO_WRITER.sub(" ", event.prefix).split()) for event in events]
    named = [" ".join(match[0] for match in _WRITER.finditer(event.prefix)) for event in events]
    for writers in (whole, named, [""] * len(events)):
        grouped = defaultdict[str, list[_Event]](list)
        for writer, event in zip(writers, events, strict=True):
            grouped[writer].append(event)
        if all(any(event.kind in ("hparams", "finish") for event in own) for own in grouped.values()):
            break
    return grouped


@dataclass
class _JsonLog:
    """Events of one run; the last value of each metric counts."""

    path: Path
    keep: Keep
    config: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    finished: bool = False
    by_step: dict[Any, dict[str, Any]] = field(default_factory=dict)
    last_steps: dict[str, float] = field(default_factory=dict)
    history: list[tuple[float, Mapping[str, Any]]] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)
    first: dict[str, Any] = field(default_factory=dict)

    @property
    def is_named(self) -> bool:
        """Return True if the run's settings give its name."""
        return bool(_config_name(self.config))

    def is_over(self, event: _Event) -> bool:
        """Return True if an event begins another run: settings of another name, or any settings after the end."""
        hparams = event.told["hparams"]
        names = [(self.config[key], hparams[key]) for key in _NAMES if key in hparams and key in self.config]
        return any(own != told for own, told in names) or (self.finished and event.kind == "hparams" and not names)

    def take(self, event: _Event) -> None:
        """Add an event; `RunTableError` if its numbers show that another run writes to the log at the same time."""
        if event.kind == "hparams":
            self.by_step.clear()  # a resumed run repeats steps
        else:
            self._refuse_other_run(event)
        self.config.update(event.told["hparams"])
        self.metrics.update(event.told["metrics"])
        self.metrics.update(event.told["summary"])
        if isinstance(event.step, int | float):
            self.last_steps |= dict.fromkeys(event.told["metrics"], float(event.step))
            if kept := kept_values(event.told["metrics"], self.keep):
                self.history.append((float(event.step), kept))
            self.steps.append(float(event.step))
            self.first = dict(event.told["metrics"]) | self.first
        self.finished = event.kind == "finish" or (self.finished and event.kind != "hparams")

    def _refuse_other_run(self, event: _Event) -> None:
        at = event.kind if event.step is None else event.step
        known = _known({**event.told["metrics"], **event.told["summary"]})
        seen = self.by_step.setdefault(at, {})
        differ = next((key for key in known if key in seen and known[key] != seen[key]), "")
        steps = [step for step in self.by_step if isinstance(step, int | float)]
        if differ or (at in steps and not seen and known and at < max(steps)):
            what = (
                f"{differ} is {seen[differ]} and {known[differ]} at {at}" if differ else f"step {at} follows step {max(steps)}"
            )
            raise RunTableError(
                f"{self.path}, line {event.line}: two runs write to this log at once: {what}.",
                why="Without a process id or host before each line, their numbers cannot be distinguished.",
                fix="Log each run to a file of its own, or keep the prefix that names the process, and import again.",
            )
        seen.update(known)

    def run(self) -> TrackedRun:
        """Return the run with all that was logged."""
        state = "finished" if self.finished else "running"
        name = _log_name(self.config, self.path)
        return TrackedRun(
            name=name,
            source=str(self.path),
            config=self.config,
            metrics=self.metrics,
            state=state,
            last_steps=self.last_steps,
            is_named=self.is_named,
            history=self.history,
            steps=_in_order(self.steps),
            first=self.first,
        )


def _object(raw: bytes, path: Path, number: int) -> tuple[str, dict[str, Any] | None]:
    """Return what a logger puts before the JSON object in a line, and the object; None for a line that holds none."""
    text = _COLORS.sub("", raw.decode("utf-8", errors="replace"))
    prefix, brace, _ = text.partition("{")
    if not brace:
        return "", None
    try:
        row, _ = json.JSONDecoder().raw_decode(text, len(prefix))  # Ray adds words after a line that several workers print
    except (ValueError, RecursionError) as error:
        if '"json_logger"' not in text and path.name != REPLICA_NAME:
            return "", None  # another line of the log, with a brace in it
        raise RunTableError(
            f"{path}, line {number}: it is not JSON: {first_line(error)}.",
            why="A truncated line may hold the last loss.",
            fix="Remove the line if another line of the file has the run's last metrics.",
        ) from error
    return prefix, row if isinstance(row, dict) else None


def _told(row: Mapping[str, Any], key: str, path: Path, number: int) -> dict[str, Any]:
    """Return the value of a key with flat names; empty if the key is missing."""
    values = row.get(key) or {}
    if not isinstance(values, Mapping):
        raise damaged(f"{path}, line {number}", f"{key} is not an object")
    return flat(values)


def _config_name(config: Mapping[str, Any]) -> str:
    return next((value for key in _NAMES if isinstance(value := config.get(key), str) and value), "")


def _log_name(config: Mapping[str, Any], path: Path) -> str:
    """Return the run's name where its configuration has it; else that of its folder or file."""
    return _config_name(config) or (path.parent.name if path.name == REPLICA_NAME else path.stem)
