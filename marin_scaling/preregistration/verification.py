"""Verify one preregistration, or a whole registry, also against its base branch."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from marin_scaling.errors import VerificationError
from marin_scaling.preregistration.layout import require_known_names
from marin_scaling.preregistration.log import Log, Receipts, read_log, receipts_with_history, received_step
from marin_scaling.preregistration.outcome import VerifiedStep
from marin_scaling.preregistration.register import Registration
from marin_scaling.preregistration.registry import REGISTRY, find_folders, one_folder, require_readable_signers, signers_path
from marin_scaling.preregistration.verify.authenticity import Verified, VerifiedSeal, verify_folder
from marin_scaling.preregistration.verify.refit import verify_and_fit
from marin_scaling.preregistration.verify.rules import log_step, policy_steps, require_whole
from marin_scaling.untrusted_files import require_regular_tree


def verify(
    registration: Path | str | Registration,
    *,
    registry: Path | str = REGISTRY,
    runs: Path | str = "runs",
    refit: bool = True,
) -> Verified | VerifiedSeal:
    """Verify one preregistration by name, path or object: signatures, files, runs, policy, log, and with `refit` its forecast.

    `VerificationError` names the first thing that does not hold; `UsageError` if there is no such preregistration.
    """
    name = str(getattr(registration, "folder", registration))
    folder, runs_dir = one_folder(name, registry=Path(registry), sealed=True), Path(runs)
    require_regular_tree([folder, runs_dir])
    receipts = receipts_with_history([folder], runs_dir=runs_dir)[folder.parent]
    log = read_log(folder.parent)
    return _verified(folder, allowed_signers=signers_path(folder), runs_dir=runs_dir, receipts=receipts, log=log, refit=refit)


def _verified(
    folder: Path, *, allowed_signers: Path, runs_dir: Path, receipts: Receipts, log: Log, refit: bool
) -> Verified | VerifiedSeal:
    """Verify a folder and what its registry adds: its policy, its log, and when it received the forecast."""
    check = verify_and_fit if refit else verify_folder
    found = check(folder, allowed_signers=allowed_signers, runs_dir=runs_dir, receipts=receipts)
    received = received_step(folder, receipts=receipts)
    return replace(found, steps=(*found.steps, *policy_steps(found), log_step(folder, log=log), *received))


@dataclass(frozen=True, kw_only=True)
class Result:
    """Verified steps of a preregistration (or of the registry against its base), or the refusal."""

    folder: Path
    steps: tuple[VerifiedStep, ...] = ()
    refusal: str | None = None


def verify_registry(
    which: str = "all", *, registry: Path = REGISTRY, runs_dir: Path, refit: bool = True, base: str | None = None
) -> Iterator[Result]:
    """Verify one preregistration, or all, and yield a result for each; with `base`, first one for the branch.

    With `base`, a branch or commit, its registry must be unchanged, and its signers count. A refused preregistration does
    not end the iteration. `VerificationError` for faults of the whole registry, `UsageError` for unknown names.
    """
    require_regular_tree([registry, runs_dir])
    folders = find_folders(which, registry_dir=registry)
    require_regular_tree(folder for folder in folders if folder.parent != registry)
    logs = {parent: read_log(parent) for parent in {folder.parent for folder in folders}}
    with _against(base, folders, registry=registry, runs_dir=runs_dir) as against:
        if base is not None:
            yield Result(folder=registry, steps=against.steps)
        task = partial(_result, receipts=against.receipts, logs=logs, runs_dir=runs_dir, refit=refit)
        items = [(folder, against.signers(folder)) for folder in folders]
        for found in _shared(task, items, few=_FEW if refit else _MANY):
            yield against.called_result(found)
    if which == "all":
        require_whole_registry(registry)
    if not folders:
        require_readable_signers(registry)


def require_whole_registry(registry: Path) -> None:
    """Refuse names that a registry does not have, removed entries, and two forecasts of one run: `VerificationError`."""
    require_known_names(registry)
    require_whole(registry, log=read_log(registry))


@dataclass(frozen=True, kw_only=True)
class _Against:
    """Signers, receipts and base checks that preregistrations are verified against."""

    receipts: Mapping[Path, Receipts]
    signers: Callable[[Path], Path] = signers_path
    steps: tuple[VerifiedStep, ...] = ()
    called: Callable[[str], str] = str
    """Function that replaces temporary file names in messages by their names in the base."""
    require_first: Callable[[Path], None] = lambda _: None
    """Function that refuses a forecast received after the record of its run."""

    def called_result(self, found: Result) -> Result:
        """Return a result with the names of the base, refused if the forecast was received after its run."""
        try:
            self.require_first(found.folder)
        except VerificationError as error:
            found = found if found.refusal is not None else Result(folder=found.folder, refusal=str(error))
        if found.refusal is not None:
            return replace(found, refusal=self.called(found.refusal))
        return replace(found, steps=tuple(replace(step, evidence=self.called(step.evidence)) for step in found.steps))


_FEW = 16
"""Preregistrations that one process fits again; more are shared among the cores. A process takes seconds to start."""
_MANY = 400
"""Preregistrations that one process verifies without fitting them again."""


def _shared(task: Callable[[tuple[Path, Path]], Result], items: Sequence[tuple[Path, Path]], *, few: int) -> Iterator[Result]:
    """Yield the results of many items in their order, from one process per core."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if len(items) <= few or cores == 1:
        yield from map(task, items)
        return
    with ProcessPoolExecutor(cores, mp_context=get_context("spawn")) as pool:
        yield from pool.map(task, items, chunksize=_FEW // 2)


def _result(
    item: tuple[Path, Path], *, receipts: Mapping[Path, Receipts], logs: Mapping[Path, Log], runs_dir: Path, refit: bool
) -> Result:
    """Verify one preregistration (folder, allowed signers); a refusal is part of the result."""
    (folder, signers), known = item, item[0].parent
    try:
        found = _verified(
            folder, allowed_signers=signers, runs_dir=runs_dir, receipts=receipts[known], log=logs[known], refit=refit
        )
    except VerificationError as error:
        return Result(folder=folder, refusal=str(error))
    return Result(folder=folder, steps=found.steps)


@contextlib.contextmanager
def _against(base: str | None, folders: Sequence[Path], *, registry: Path, runs_dir: Path) -> Iterator[_Against]:
    if base is None:
        yield _Against(receipts=receipts_with_history(folders, runs_dir=runs_dir))
        return
    from marin_scaling.preregistration.review import pull_request as branch

    steps = (
        branch.base_step(base, registry_dir=registry),
        *branch.trust_steps(base, registry_dir=registry),
        *branch.runs_steps(base, registry_dir=registry, runs_dir=runs_dir),
    )
    receipts = branch.base_receipts(base, registry_dir=registry)
    with branch.signers_at(base, registry_dir=registry) as path:
        yield _Against(
            receipts=dict.fromkeys({folder.parent for folder in folders}, receipts),
            signers=lambda _: path,
            steps=steps,
            called=partial(branch.as_called_there, signers=path, base=base, registry_dir=registry),
            require_first=lambda folder: branch.require_forecast_first(base, folder, runs_dir=runs_dir),
        )
