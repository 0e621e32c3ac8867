"""Plan, bind and train a ladder or a target in this repository."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from marin_scaling.errors import ClusterError, DataError, RecipeError, UsageError, missing_extra
from marin_scaling.printable import terminal_below
from marin_scaling.run.paths import RUNS_DIR, WORK_ROOT
from marin_scaling.run.plan import PlannedLadder
from marin_scaling.units import parse_duration

if TYPE_CHECKING:
    from marin_scaling.data.corpus import TokenCorpus
    from marin_scaling.ladder.config import Hardware, LadderFile
    from marin_scaling.ladder.plan import Ladder
    from marin_scaling.run.paths import Workplace
    from marin_scaling.run.spec import RunSpec
    from marin_scaling.train.launcher import Pool, TrainingTime

logging.getLogger("gcsfs").setLevel(logging.CRITICAL)  # it writes the traceback of what it raises, and that is told


class NotTokenized(DataError):
    """The text of a ladder was not read yet."""


def expand(ladder_path: Path) -> Ladder:
    """Read a ladder file and expand it with its recipe."""
    from marin_scaling.ladder.config import read_ladder_file
    from marin_scaling.ladder.plan import plan_ladder

    file = read_ladder_file(ladder_path)
    with _naming(ladder_path):
        return plan_ladder(file)


def plan(ladder_path: Path) -> PlannedLadder:
    """Read a ladder file, expand it with its recipe, and read its data."""
    return bind(expand(ladder_path), ladder_path)


def bind(ladder: Ladder, ladder_path: Path) -> PlannedLadder:
    """Read a ladder's data; `DataError` where it cannot be trained on them."""
    from marin_scaling.data.prepare import prepare
    from marin_scaling.data.tokenizer import load_tokenizer
    from marin_scaling.run.plan import require_vocabulary

    data = ladder.file.data
    with _naming(ladder_path):
        tokenizer = load_tokenizer(data.tokenizer)
        for rung in ladder.rungs:  # before hours of reading
            require_vocabulary(rung.plan.recipe, rung.plan.shape.vocab_size, tokenizer.identity)
        return _bound(ladder, prepare(data, work_root=own_work_root(), tokenizer=tokenizer, on_row=_say_row))


def bind_prepared(ladder: Ladder, ladder_path: Path) -> PlannedLadder:
    """The same where the data are tokenized already; `DataError` where they are not: for commands that only look."""
    from marin_scaling.data.prepare import prepared

    with _naming(ladder_path):
        corpus = prepared(ladder.file.data, work_root=own_work_root())
        if corpus is None:
            raise NotTokenized(
                f"the text of {ladder.file.data.source} is not tokenized yet.",
                why="How much there is, and which runs it makes, is known once it is.",
                fix=f"Begin to train: marin-scale ladder {ladder_path}",
            )
        return _bound(ladder, corpus)


def _bound(ladder: Ladder, corpus: TokenCorpus) -> PlannedLadder:
    from marin_scaling.run.plan import rung_specs

    return PlannedLadder(ladder=ladder, corpus=corpus, specs=rung_specs(ladder, corpus=corpus))


def _say_row(name: str) -> None:
    print(f"reading and tokenizing {name} (once) ...", file=sys.stderr)


@contextlib.contextmanager
def _naming(ladder_path: Path) -> Iterator[None]:
    """Name the ladder file in what is wrong with its rungs: the stages below do not know where a ladder was read."""
    try:
        yield
    except (RecipeError, DataError) as error:
        raise error.at(str(ladder_path)) from error


def workplace(*, storage: str | None = None) -> Workplace:
    """Where runs are recorded, and where the work on them lies; `storage` as in the ladder's file."""
    from marin_scaling.run.paths import Workplace

    return Workplace(runs_dir=RUNS_DIR.absolute(), work_root=own_work_root().absolute(), storage=storage)


def own_work_root() -> Path:
    """Return the folder for the work; an error where a repository brings files of it, or where the run store is a link."""
    from marin_scaling.git import GitError, find_repository
    from marin_scaling.run.paths import require_untracked_work_root
    from marin_scaling.untrusted_files import require_no_link

    tracked: list[Path] = []
    with contextlib.suppress(GitError):  # a repository of another user, which git does not read
        if repository := find_repository():
            tracked = repository.tracked(WORK_ROOT)
    require_untracked_work_root(WORK_ROOT, tracked)
    require_no_link(RUNS_DIR)
    return WORK_ROOT


def hardware_of(ladder: str) -> Hardware:
    """What the file of a ladder says of what trains; the defaults where there is no such file."""
    from marin_scaling.ladder.config import Hardware

    file = file_of(ladder)
    return file.hardware if file is not None else Hardware()


def file_of(ladder: str) -> LadderFile | None:
    """The file of the ladder of this name; None where it is not here."""
    from marin_scaling.ladder.config import read_ladder_file

    path = Path("ladders") / f"{ladder}.yaml"
    return read_ladder_file(path) if path.exists() else None


def use_tracker(file: LadderFile | None) -> None:
    """Let the training processes mirror their curves where a ladder's file says, unless the environment says otherwise."""
    if file is None or (tracker := file.tracker) is None:
        return
    os.environ.setdefault("WANDB_PROJECT", tracker.project)
    os.environ.setdefault("WANDB_MODE", tracker.mode)
    if tracker.entity is not None:
        os.environ.setdefault("WANDB_ENTITY", tracker.entity)


def looked_at(specs: Sequence[RunSpec], *, storage: str | None) -> Workplace:
    """Where these runs lie, once it has been brought what other machines did of them."""
    place = workplace(storage=storage)
    if storage is not None:
        from marin_scaling.train.shared_storage import Exchange

        Exchange(place).bring_progress(specs)
    return place


def pool_of(where: str, hardware: Hardware, *, runs: int, max_parallel: int | None = None) -> Pool:
    """What `--on` says: `local`, `ray` for a cluster started here, `ray:ADDRESS` or Ray's own `ray://ADDRESS`.

    `UsageError` for anything else.

    `runs` counts those of the whole ladder, so that one that is left alone trains on as many cores as it would have had.
    """
    place, _, address = ("ray", "", where) if where.startswith("ray://") else where.partition(":")
    if place == "local" and not address:
        return _local_pool(hardware, runs=runs, max_parallel=max_parallel)
    if place != "ray":
        raise UsageError(
            f"--on {where}: runs are trained on this machine or on a Ray cluster.",
            why="No other launcher is known.",
            fix="Use --on local, --on ray (a cluster started here), or --on ray:ADDRESS.",
        )
    if importlib.util.find_spec("ray") is None:
        raise missing_extra("ray", needed_for="training on a Ray cluster")
    from marin_scaling.train.ray_pool import ray_pool

    return ray_pool(address or None, per_run=hardware.per_run, max_parallel=max_parallel)


def target_pool(where: str, *, ladder: str) -> Pool:
    """`--on` for the one run of a target: here with all GPUs of the machine, on a cluster with what its ladder's file gives."""
    from marin_scaling.train.launcher import local_pool, visible_gpus

    if where == "local":
        gpus = visible_gpus()
        return local_pool(1, gpus=gpus, gpus_per_run=len(gpus))
    return pool_of(where, hardware_of(ladder), runs=1)


def _local_pool(hardware: Hardware, *, runs: int, max_parallel: int | None) -> Pool:
    from marin_scaling.train.launcher import local_pool, runs_that_fit, visible_gpus

    if hardware.per_run.is_group:
        raise UsageError(
            "hardware.per_run: here, one process trains a run, with all devices that it is given.",
            why="Several that train it together, or a slice of a TPU, are started by Ray.",
            fix="Train on a cluster (--on ray:ADDRESS; --on ray starts one here), or leave processes and tpu_slice out.",
        )
    each, gpus = hardware.per_run.gpus, visible_gpus()
    most = runs_that_fit(each, len(gpus)) if each else len(os.sched_getaffinity(0))
    if not most:
        raise ClusterError(
            f"hardware.per_run.gpus: a run wants {each:g}, and this machine has {len(gpus)}.",
            why="A run is trained on what the ladder file gives it.",
            fix="Lower it, train on another machine, or on a cluster: --on ray:ADDRESS.",
        )
    if gpus and not each:
        print(f"note: this machine has {len(gpus)} GPUs; runs are given none (hardware.per_run.gpus) and train on its cores.")
    at_a_time = most if hardware.runs_at_a_time == "cores" else hardware.runs_at_a_time
    if each:
        at_a_time = min(at_a_time, most)
    return local_pool(min(at_a_time, runs, max_parallel or at_a_time), gpus=gpus, gpus_per_run=each)


class TimeIsUp(BaseException):
    """The time of `--stop-after` is over; what was begun is in checkpoints. No `except Exception` on the way may keep it."""


@contextlib.contextmanager
def _interrupted_after(seconds: float) -> Iterator[None]:
    def interrupt(_signal: int, _frame: object) -> None:
        raise TimeIsUp

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def at_most(duration: str) -> contextlib.AbstractContextManager[None]:
    """A block that `TimeIsUp` ends after `duration` ("30m"); one without an end where that is empty."""
    return _interrupted_after(parse_duration(duration)) if duration else contextlib.nullcontext()


def chosen(specs: Sequence[RunSpec], only: Sequence[str]) -> list[RunSpec]:
    """The runs of the budgets that `--only` names, BUDGET or BUDGET/WIDTH; all where it names none.

    `UsageError` where one names no run of the ladder.
    """
    from marin_scaling.units import format_flops, parse_flops

    wanted = []
    for text in only:
        budget, _, width = text.partition("/")
        flops = parse_flops(budget)
        of_it = [spec for spec in specs if spec.budget_flops == flops and (not width or str(spec.model.hidden_dim) == width)]
        if not of_it:
            there = sorted({spec.budget_flops for spec in specs})
            raise UsageError(
                f"--only {text}: the ladder has no such run.",
                why="A run that is asked for and not trained should not go unnoticed.",
                fix=f"Name a budget of it, or BUDGET/WIDTH: {', '.join(map(format_flops, there))}.",
            )
        wanted += of_it
    return [spec for spec in specs if spec in wanted] if only else list(specs)


def train_with_progress(
    specs: Sequence[RunSpec],
    *,
    corpus: TokenCorpus,
    label: str,
    pool: Pool,
    storage: str | None = None,
    keep_weights: bool = False,
    at: Workplace | None = None,
) -> TrainingTime:
    """Train what the store does not hold yet, nor other machines that share runs at `storage`, showing how it goes.

    `at` is another workplace than this repository's: for runs that are trained again.
    """
    from marin_scaling.run.store import is_finished
    from marin_scaling.train.launcher import train_runs
    from marin_scaling.train.progress import RunProgress
    from marin_scaling.untrusted_files import require_no_link

    if importlib.util.find_spec("levanter") is None:
        raise missing_extra("train", needed_for="training")
    _require_same_data(specs, corpus)
    place = at or replace(looked_at(specs, storage=storage), keep_weights=keep_weights)
    for ladder in {spec.ladder for spec in specs}:
        require_no_link(place.runs_dir / ladder)
    pending = [spec for spec in specs if not is_finished(place.runs_dir, spec)]
    if len(pending) < len(specs):
        print(f"{len(specs) - len(pending)} of {len(specs)} runs are finished already and are not trained again.")
        if keep_weights:
            print(f"note: of these only such weights are kept as lie in {WORK_ROOT / 'weights'} already.")
    with RunProgress(pending, label=label, console=Console(file=terminal_below(sys.stdout))) as progress:
        return train_runs(
            pending,
            corpus=corpus,
            workplace=place,
            pool=pool,
            on_event=progress.see,
        )


def _require_same_data(specs: Sequence[RunSpec], corpus: TokenCorpus) -> None:
    for spec in specs:
        if spec.data.digest != corpus.digest:
            raise DataError(
                f"{spec.directory_name} was planned on {spec.data.source} {spec.data.digest[:12]}; "
                f"here it is {corpus.digest[:12]}.",
                why="Another Python version has other sources, and a run on other text is another run.",
                fix="Use the Python with which it was planned, or plan and register anew here.",
            )
