"""Checks of experiments against the repository's runs and forecasts."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal
from urllib.parse import urlsplit

from marin_scaling.canonical_json import leaves, sha256_hex
from marin_scaling.errors import Finding, MarinScalingError, error, warning
from marin_scaling.experiment.experiment import Experiment, Outcome, Step
from marin_scaling.files import read_bytes
from marin_scaling.preregistration.layout import OUTCOME_NAME, STATEMENT_NAME
from marin_scaling.preregistration.registry import read_registration, registration_folders, require_unchanged
from marin_scaling.preregistration.statement import Statement, parse_moment
from marin_scaling.printable import joined, quoted
from marin_scaling.run.store import StoredRun, read_runs
from marin_scaling.units import counted, format_count, format_flops
from marin_scaling.untrusted_files import is_present

MOVED = {
    "crfm.stanford.edu": "Marin's pages moved; the data browser no longer exists",
    "img.shields.io": "the badge is loaded from another host for every reader",
}
"""Hosts that Marin's links left, with the reason for the warning."""

_MOVED_OWNERS = {"stanford-crfm": "marin-community"}


@dataclass(frozen=True, kw_only=True)
class Known:
    """Names in a repository that an experiment can refer to."""

    preregistrations: Collection[str]
    ladders: Collection[str]


def known_in(root: Path) -> Known:
    """Return the folders of the registry and of the run store below `root`, and its ladder files."""
    runs = root / "runs"
    ladders = {path.name for path in runs.iterdir() if path.is_dir()} if runs.is_dir() else set()
    ladders |= {path.stem for path in (root / "ladders").glob("*.yaml")}
    registered = {each.name for each in registration_folders(root / "preregistrations")}
    return Known(preregistrations=registered, ladders=ladders)


def audit(experiments: Sequence[Experiment], *, known: Known, today: date | None = None) -> dict[str, list[Finding]]:
    """Return the findings of each experiment, by name; an empty list if there are none."""
    names = {each.name for each in experiments}
    issues, ring, latest = _by_issue(experiments), _in_a_ring(experiments), (today or date.today()) + timedelta(days=1)
    return {
        each.name: [
            *_named(each, names, known),
            *_links(each),
            *_alike(each, issues),
            *_said(each),
            *_in_order(each, ring, latest),
        ]
        for each in experiments
    }


def contradictions(each: Experiment, recorded: Mapping[str, Any], *, varying: Collection[str] = ()) -> Iterator[Finding]:
    """Yield settings that differ from the records: `recorded` are those that all runs share, by dotted key."""
    for key, value in leaves(each.configuration) if each.configuration else ():
        found = [other for other in {*recorded, *varying} if f"{other}.".startswith(f"{key}.") or key.startswith(f"{other}.")]
        if found and not (key in recorded and recorded[key] == value):
            known = quoted(repr(recorded[key])) if key in recorded else f"more than one value of {quoted(min(found))}"
            said = f"{quoted(repr(value))} is stated, but the records have {known}; remove this setting"
            yield error("contradicted", f"configuration.{key}", said)


def _named(each: Experiment, names: Collection[str], known: Known) -> Iterator[Finding]:
    """Yield references to things that do not exist."""
    if each.preregistration is not None and each.preregistration not in known.preregistrations:
        meant = each.preregistration.removeprefix("preregistrations/")
        said = f"; write {meant}" if meant in known.preregistrations else ""
        yield error("not-there", "preregistration", f"{each.preregistration} is not a folder of preregistrations/{said}")
    for ladder in each.ladders:
        if ladder not in known.ladders:
            meant = ladder.removeprefix("runs/")
            said = f"; write {meant}" if meant in known.ladders else ""
            yield error("not-there", "ladders", f"{ladder} is neither a folder of runs/ nor a file of ladders/{said}")
    if each.baseline is not None and (each.baseline not in names or each.baseline == each.name):
        yield error("not-there", "baseline", f"{each.baseline} is not another experiment here")
    for name in each.supersedes:
        if name not in names or name == each.name:
            yield error("not-there", "supersedes", f"{name} is not another experiment here")


def addresses(each: Experiment) -> Iterator[tuple[str, str]]:
    """Yield every web address in the links, with its key."""
    for key, value in each.links.model_dump(exclude_none=True).items():
        yield from ((f"links.{key}", address) for address in ([value] if isinstance(value, str) else value))


def _links(each: Experiment) -> Iterator[Finding]:
    of_code = [("code.repository", each.code.repository)] if each.code and each.code.repository else []
    for key, address in [*addresses(each), *of_code]:
        parts = urlsplit(address)
        owner = parts.path.split("/")[1] if parts.path.count("/") > 1 else ""
        if parts.hostname in MOVED:
            yield warning("moved", key, f"{parts.hostname}: {MOVED[parts.hostname]}")
        if parts.hostname == "github.com" and owner in _MOVED_OWNERS:
            yield warning("moved", key, f"github.com/{owner} moved to {_MOVED_OWNERS[owner]}")
        if parts.scheme == "http":
            yield warning("unencrypted", key, f"{address} is not encrypted")


def _in_order(each: Experiment, in_a_ring: Collection[str], latest: date) -> Iterator[Finding]:
    if each.name in in_a_ring:
        yield error("ring", "supersedes", f"cycle: an experiment that {each.name} supersedes also supersedes {each.name}")
    if each.date is not None and each.date > latest:
        yield warning("date", "date", f"{each.date} is in the future")


def _in_a_ring(experiments: Sequence[Experiment]) -> Collection[str]:
    """Return experiments that replace themselves through others; one cycle at a time."""
    try:
        TopologicalSorter({each.name: {*each.supersedes} - {each.name} for each in experiments}).prepare()
    except CycleError as error:
        return set(error.args[1])
    return ()


def _by_issue(experiments: Sequence[Experiment]) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for each in experiments:
        if each.links.issue:
            found[each.links.issue].append(each.name)
    return found


def _alike(each: Experiment, issues: Mapping[str, list[str]]) -> Iterator[Finding]:
    others = [name for name in issues.get(each.links.issue or "", ()) if name != each.name]
    if others:
        yield warning("same-issue", "links.issue", f"{joined(others)} has the same issue; possible duplicate")


def _said(each: Experiment) -> Iterator[Finding]:
    """Yield what a reader will miss in an own experiment."""
    if each.source is not None:
        return
    if not (each.hypothesis or "").strip() and each.preregistration is None:
        yield warning("no-hypothesis", "hypothesis", "no hypothesis is stated")
    if each.outcome not in (Outcome.IN_PROGRESS, Outcome.NOT_EVALUATED) and not (each.conclusion or "").strip():
        yield warning("no-conclusion", "conclusion", f"the outcome is {each.outcome}, but no conclusion is stated")
    if each.preregistration is None and not (each.ladders or each.metrics):
        yield warning("no-figures", "metrics", "no metric, ladder or preregistration is named")


_ABSENT = object()
_NOT_SETTINGS = frozenset({"seed", "data_order_seed", "statement_sha256", "ladder", "role", "format_version"})


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Runs that differ only in their seeds: their cost and mean loss."""

    ladder: str
    role: str
    budget_flops: float
    params: int
    trained_tokens: int
    metric: str
    seeds: int
    diverged: int
    """Number of runs without a loss."""
    mean_loss: float | None
    standard_error: float | None
    """Standard error of the mean; None with fewer than two losses."""


@dataclass(frozen=True, kw_only=True)
class OwnRecords:
    """Records of an experiment's own runs."""

    runs: Sequence[StoredRun] = ()
    steps: Sequence[Step] = ()
    shared: Mapping[str, Any] = field(default_factory=dict)
    """Settings that all runs share, by dotted key."""
    varying: Collection[str] = ()
    """Settings in which the runs differ."""
    fault: str = ""
    """Reason why the records cannot be read."""


def runs_of(experiment: Experiment, *, root: Path) -> list[StoredRun]:
    """Return all runs of the experiment's ladders, in order; a ladder that is only planned has none."""
    folders = [root / "runs" / ladder for ladder in experiment.ladders]
    return [run for folder in folders if is_present(folder) for run in read_runs(folder)]


def own_steps(experiment: Experiment, runs: Sequence[StoredRun], *, root: Path) -> list[Step]:
    """Return the steps with their inputs: text, rungs by budget, signed forecast, its run and its outcome."""
    texts = {step.name: step for run in runs for step in _text_steps(run)}
    by_budget = _by_budget([run for run in runs if run.spec.role == "rung"])
    rungs = [_budget_step(ladder, flops, each) for (ladder, flops), each in by_budget.items()]
    return [*texts.values(), *rungs, *_steps_after(experiment, runs, rungs=rungs, root=root)]


def _steps_after(experiment: Experiment, runs: Sequence[StoredRun], *, rungs: Sequence[Step], root: Path) -> list[Step]:
    """Return the steps after the rungs: forecast, run and outcome; without a registration, runs that are not rungs."""
    folder = root / "preregistrations" / (experiment.preregistration or "")
    if experiment.preregistration is None or not is_present(folder / STATEMENT_NAME):
        return [_target_step(run) for run in runs if run.spec.role != "rung"]
    require_unchanged(folder)
    statement = read_registration(folder)
    forecast = _forecast_step(statement, folder, after=[step.name for step in rungs])
    answers = [_target_step(run, forecast=folder.name) for run in runs if run.spec.statement_sha256 == statement.sha256]
    return [forecast, *answers, *_outcome_steps(folder, after=[step.name for step in answers])]


def own_records(experiment: Experiment, *, root: Path) -> OwnRecords:
    """Return the experiment's records in the repository at `root`; a missing ladder has no runs."""
    try:
        runs = runs_of(experiment, root=root)
        steps = own_steps(experiment, runs, root=root)
    except (MarinScalingError, LookupError, TypeError, ValueError) as error:  # malformed records and outcomes
        return OwnRecords(fault=str(error).replace(f"{root}/", ""))
    settings = _settings(runs)
    shared = {key: value for key, (value, is_shared) in settings.items() if is_shared}
    return OwnRecords(runs=runs, steps=steps, shared=shared, varying=settings.keys() - shared.keys())


def record_findings(experiment: Experiment, records: OwnRecords) -> list[Finding]:
    """Return contradictions with the records, or the reason why they cannot be read."""
    if records.fault:
        reason = records.fault.partition("\n")[0].rstrip(".")
        return [error("records", "ladders", f"its records in runs/ or preregistrations/ cannot be read: {reason}")]
    return list(contradictions(experiment, records.shared, varying=records.varying))


def all_findings(
    experiments: Sequence[Experiment], *, root: Path, beside: Sequence[Experiment] = ()
) -> dict[str, list[Finding]]:
    """Return the findings of each experiment, by name; experiments `beside` them are known but not checked."""
    found = audit([*experiments, *beside], known=known_in(root))
    return {each.name: [*found[each.name], *record_findings(each, own_records(each, root=root))] for each in experiments}


def _settings(runs: Sequence[StoredRun]) -> dict[str, tuple[Any, bool]]:
    """Return every setting by dotted key: a value, and whether all runs share it."""
    each = [dict(leaves({key: value for key, value in _spec(run).items() if key not in _NOT_SETTINGS})) for run in runs]
    keys = dict.fromkeys(key for settings in each for key in settings)
    values = {key: [settings.get(key, _ABSENT) for settings in each] for key in keys}
    return {key: (found[0], all(value == found[0] for value in found)) for key, found in values.items()}


def figures(runs: Sequence[StoredRun]) -> list[Figure]:
    """Return a figure for each configuration, by ladder, role, budget and size."""
    alike: dict[str, list[StoredRun]] = defaultdict(list)
    for run in runs:
        kept = {key: value for key, value in _spec(run).items() if key not in _NOT_SETTINGS - {"ladder", "role"}}
        alike[json.dumps(kept, sort_keys=True)].append(run)
    found = [_figure(each) for each in alike.values()]
    return sorted(found, key=lambda figure: (figure.ladder, figure.role != "rung", figure.budget_flops, figure.params))


def _figure(runs: Sequence[StoredRun]) -> Figure:
    first, losses = runs[0], [run.record.loss for run in runs if run.record.loss is not None]
    return Figure(
        ladder=first.spec.ladder,
        role=first.spec.role,
        budget_flops=first.spec.budget_flops,
        params=first.record.params_total,
        trained_tokens=first.record.trained_tokens,
        metric=first.record.metric,
        seeds=len(runs),
        diverged=len(runs) - len(losses),
        mean_loss=fmean(losses) if losses else None,
        standard_error=stdev(losses) / math.sqrt(len(losses)) if len(losses) > 1 else None,
    )


def _spec(run: StoredRun) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(run.spec.to_bytes())
    return document


def _by_budget(runs: Sequence[StoredRun]) -> dict[tuple[str, float], list[StoredRun]]:
    found: dict[tuple[str, float], list[StoredRun]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: (run.spec.ladder, run.spec.budget_flops)):
        found[run.spec.ladder, run.spec.budget_flops].append(run)
    return found


def _text_steps(run: StoredRun) -> list[Step]:
    """Return the step of a run's text, after those of its parts."""
    data = run.spec.data
    parts = [
        Step(
            name=f"part-{part.digest[:12]}",
            what=f"{name} of {data.source}",
            status="succeeded",
            output_sha256=part.digest,
        )
        for name, part in data.parts.items()
    ]
    inputs = tuple(part.name for part in parts)
    whole = Step(
        name=f"text-{data.digest[:12]}", what=data.source, inputs=inputs, status="succeeded", output_sha256=data.digest
    )
    return [*parts, whole]


def _budget_step(ladder: str, budget_flops: float, runs: Sequence[StoredRun]) -> Step:
    sizes = ", ".join(format_count(size) for size in sorted({run.record.params_total for run in runs}))
    return Step(
        name=f"{ladder}/{budget_flops:g}",
        what=f"{counted(len(runs), 'run')} of {format_flops(budget_flops)} FLOPs: {sizes} parameters{_of_them_diverged(runs)}",
        inputs=tuple(dict.fromkeys(f"text-{run.spec.data.digest[:12]}" for run in runs)),
        status=_ended(runs),
        started_at=min(parse_moment(run.record.started_at) for run in runs),
        finished_at=max(parse_moment(run.record.finished_at) for run in runs),
        output=f"runs/{ladder}",
    )


def _ended(runs: Sequence[StoredRun]) -> Literal["succeeded", "failed"]:
    """Return "failed" if all runs diverged."""
    return "failed" if all(run.record.loss is None for run in runs) else "succeeded"


def _of_them_diverged(runs: Sequence[StoredRun]) -> str:
    diverged = sum(run.record.loss is None for run in runs)
    return f", {diverged} diverged" if diverged else ""


def _forecast_step(statement: Statement, folder: Path, *, after: Sequence[str]) -> Step:
    return Step(
        name=folder.name,
        what=f"fit and forecast, signed by {statement.predicate['registrant']}",
        inputs=tuple(after),
        status="succeeded",
        finished_at=statement.created_at,
        output=f"preregistrations/{folder.name}",
        output_sha256=statement.sha256,
    )


def _target_step(run: StoredRun, *, forecast: str | None = None) -> Step:
    return Step(
        name=f"target-{run.spec.digest[:12]}",
        what=f"{'forecast run' if forecast else run.spec.role}: {format_flops(run.record.flops)} FLOPs",
        inputs=(f"text-{run.spec.data.digest[:12]}", *filter(None, [forecast])),
        status=_ended([run]),
        started_at=parse_moment(run.record.started_at),
        finished_at=parse_moment(run.record.finished_at),
        output=f"runs/{run.spec.ladder}/{run.folder.name}",
        output_sha256=sha256_hex(read_bytes(run.folder / "record.json")),
    )


def _outcome_steps(folder: Path, *, after: Sequence[str]) -> list[Step]:
    path = folder / OUTCOME_NAME
    if not is_present(path):
        return []
    raw = read_bytes(path)
    said = json.loads(raw)
    return [
        Step(
            name="outcome",
            what=f"compared with the forecast: {said['verdict']}",
            inputs=(folder.name, *after),
            status="succeeded",
            finished_at=parse_moment(said["checked_at"]),
            output=f"preregistrations/{folder.name}/{OUTCOME_NAME}",
            output_sha256=sha256_hex(raw),
        )
    ]
