"""Checks of submissions: FLOPs, procedure, duplicates."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType

from marin_scaling.findings import Finding, Severity, error, note, warning
from marin_scaling.recipe.flops import WITH_LM_HEAD, training_flops
from marin_scaling.speedrun.hardware import ACCELERATORS, Machine, accelerator, machine
from marin_scaling.speedrun.submission import LEVANTER_FLOPS, SeedResult, Submission
from marin_scaling.speedrun.track import Track, track_findings
from marin_scaling.units import format_flops

_EXACT = 1e-6
_HIGHEST_MFU, _HIGH_MFU, _LOW_MFU = 1.0, 0.6, 0.03
_SPARSE = 2.0


def accounting_findings(submission: Submission) -> Iterator[Finding]:
    """Yield figures that contradict each other, in the order of the keys."""
    yield from _tokens(submission)
    yield from _parameters(submission)
    yield from _model_flops(submission)
    yield from _machine(submission)
    for seed in submission.seeds:
        yield from _hardware_flops(submission, seed)
        yield from _nats(submission, seed)
    yield from _mfu(submission)


def _tokens(submission: Submission) -> Iterator[Finding]:
    training, tokens = submission.training, submission.data.trained_tokens
    if training is None or tokens is None:
        return
    counted = training.batch_size * training.seq_len * training.steps
    if counted != tokens:
        product = f"{training.batch_size} sequences x {training.seq_len} tokens x {training.steps} steps"
        yield error("tokens", "data.trained_tokens", f"{tokens} tokens are stated, but {product} = {counted}")


def _parameters(submission: Submission) -> Iterator[Finding]:
    model = submission.model
    for name in ("params_active", "params_non_embedding"):
        part = getattr(model, name)
        if part is not None and part > model.params_total:
            yield error("parameters", f"model.{name}", f"{part} parameters exceed params_total, {model.params_total}")


def _model_flops(submission: Submission) -> Iterator[Finding]:
    """Recompute the common formula; warn of another formula, with the difference."""
    shape, tokens, compute = submission.model.shape, submission.data.trained_tokens, submission.compute
    if shape is None or tokens is None:
        return
    counted = training_flops(shape, tokens=tokens, convention=WITH_LM_HEAD)
    stated, key = compute.model_flops, "compute.model_flops"
    stated_and = f"{format_flops(stated)} model FLOPs are stated, {stated / counted - 1:+.1%} from {format_flops(counted)} by"
    if compute.model_flops_formula != LEVANTER_FLOPS:
        yield warning("formula", key, f"{stated_and} the common formula; the stated formula is {compute.model_flops_formula}")
    elif not math.isclose(stated, counted, rel_tol=_EXACT):
        yield error("model-flops", key, f"{stated_and} {LEVANTER_FLOPS} from sizes and tokens")


def _machine(submission: Submission) -> Iterator[Finding]:
    hardware = submission.compute.hardware
    if hardware is None:
        return
    known, named = accelerator(hardware.kind), machine(hardware.name) if hardware.name else None
    if known is None and hardware.peak_flops_per_second is not None:
        listed = ", ".join(ACCELERATORS)
        said = f"{hardware.kind!r} is not in the hardware table ({listed}), so its peak is not checked"
        yield warning("hardware", "compute.hardware.kind", said)
    if (
        known
        and hardware.peak_flops_per_second
        and not math.isclose(hardware.peak_flops_per_second, known.peak_flops_per_second, rel_tol=_EXACT)
    ):
        yield error("peak", "compute.hardware.peak_flops_per_second", _peak_said(hardware.peak_flops_per_second, known.kind))
    if named is not None and _is_slice(named, name=hardware.name or "") and hardware.chips != named.chips:
        cores = ", and as many cores" if hardware.chips == named.named_count else ""
        said = f"{hardware.chips} chips are stated, but a {hardware.name} has {named.chips} chips{cores}"
        yield error("chips", "compute.hardware.chips", said)


def _is_slice(named: Machine, *, name: str) -> bool:
    """Return True if the name itself contains the number of chips; GPU names do not."""
    return name.lower() != named.accelerator.kind and name.endswith(f"-{named.named_count}")


def _peak_said(stated: float, kind: str) -> str:
    known = ACCELERATORS[kind]
    ratio = stated / known.peak_flops_per_second
    sparse = "; the stated value is the peak with sparsity" if math.isclose(ratio, _SPARSE, rel_tol=0.01) else ""
    table = f"{format_flops(known.peak_flops_per_second)} dense {known.dtype} FLOP/s ({known.source})"
    return f"{format_flops(stated)} FLOP/s are stated for a {kind}, but its peak is {table}{sparse}"


def _hardware_flops(submission: Submission, seed: SeedResult) -> Iterator[Finding]:
    hardware = submission.compute.hardware
    if hardware is None or hardware.peak_flops_per_second is None or None in (seed.training_seconds, seed.hardware_flops):
        return
    seconds, stated = float(seed.training_seconds or 0), float(seed.hardware_flops or 0)
    counted = seconds * hardware.chips * hardware.peak_flops_per_second
    if math.isclose(stated, counted, rel_tol=_EXACT):
        return
    said = f"{format_flops(stated)} are stated, but {seconds:.6g} s on {hardware.chips} chips give {format_flops(counted)}"
    yield error("hardware-flops", "seeds.hardware_flops", said + _factor_said(stated / counted, submission))


def _factor_said(ratio: float, submission: Submission) -> str:
    """Return the likely cause of a known wrong factor."""
    hardware = submission.compute.hardware
    named = machine(hardware.name) if hardware and hardware.name else None
    if named and hardware and math.isclose(ratio, named.named_count / hardware.chips, rel_tol=_EXACT) and ratio > 1:
        return f"; the number counts the {named.named_count} cores of a {hardware.name} as chips"
    if math.isclose(ratio, 1 / 60, rel_tol=_EXACT):
        return "; the two agree if the time in minutes is read as seconds"
    return f"; the ratio is {ratio:.4g}"


def _nats(submission: Submission, seed: SeedResult) -> Iterator[Finding]:
    size = submission.evaluation.bytes
    if seed.nats is None or size is None:
        return
    counted = seed.nats / (size * math.log(2))
    if not math.isclose(counted, seed.bits_per_byte, rel_tol=_EXACT):
        said = (
            f"{seed.bits_per_byte:.6g} bits per byte are stated, but {seed.nats:.8g} nats over {size} bytes give {counted:.6g}"
        )
        yield error("bits-per-byte", "seeds.bits_per_byte", said)


def _mfu(submission: Submission) -> Iterator[Finding]:
    mfu, key = submission.mfu, "seeds.training_seconds"
    if mfu is None:
        return
    said = f"MFU is {mfu:.3g}"
    if mfu > _HIGHEST_MFU:
        yield error("mfu", key, f"{said}, above {_HIGHEST_MFU:g}: part of the time or of the chips is missing")
    elif mfu > _HIGH_MFU:
        yield warning("mfu", key, f"{said}, above {_HIGH_MFU:g}, the highest published for such models")
    elif mfu < _LOW_MFU:
        yield warning("mfu", key, f"{said}, below {_LOW_MFU:g}: the machine waited, or did work that model FLOPs do not count")


_CLOCKS_DIFFER = timedelta(days=1)


def conduct_findings(submission: Submission, *, at: datetime) -> Iterator[Finding]:
    """Yield findings about how the submission was made; `at` is now (UTC)."""
    yield from _epochs(submission)
    yield from _seeds(submission)
    yield from _times(submission, at=at)
    yield from _tuning(submission)
    yield from _lineage(submission)


def _epochs(submission: Submission) -> Iterator[Finding]:
    epochs = submission.epochs
    if epochs is not None and epochs > 1:
        said = f"{submission.data.trained_tokens} trained tokens over {submission.data.unique_tokens} unique ones"
        yield note("epochs", "data.trained_tokens", f"{said}: {epochs:.2f} epochs")


def _seeds(submission: Submission) -> Iterator[Finding]:
    named = [each.seed for each in submission.seeds if each.seed is not None]
    if twice := [seed for seed, times in Counter(named).items() if times > 1]:
        yield error("seeds", "seeds.seed", f"duplicate seed: {twice[0]} occurs {Counter(named)[twice[0]]} times")
    if len(named) < len(submission.seeds):
        yield note("seeds", "seeds.seed", f"a seed is not recorded: {_reason(submission, 'seeds.seed')}")
    if len(submission.seeds) == 1:
        yield note("one-seed", "seeds", "one seed: the seed-to-seed noise is unknown")


def _reason(submission: Submission, key: str) -> str:
    return next(
        (why for name, why in submission.absent.items() if key == name or key.startswith(f"{name}.")), "no reason given"
    )


def _times(submission: Submission, *, at: datetime) -> Iterator[Finding]:
    for seed in submission.seeds:
        started, finished = seed.started_at, seed.finished_at
        naive = [each for each in (started, finished) if each is not None and each.tzinfo is None]
        if naive:
            yield error("times", "seeds.finished_at", f"{naive[0].isoformat()} has no time zone; write UTC, with Z")
            continue
        if finished is not None and finished > at + _CLOCKS_DIFFER:
            yield error("times", "seeds.finished_at", f"the end, {finished.isoformat()}, is in the future")
        if started is None or finished is None:
            continue
        elapsed = (finished - started).total_seconds()
        if elapsed < 0:
            yield error(
                "times", "seeds.finished_at", f"the end, {finished.isoformat()}, precedes the start, {started.isoformat()}"
            )
        elif seed.training_seconds is not None and seed.training_seconds > elapsed:
            said = f"{seed.training_seconds:.6g} s of steps are stated, but start and end are {elapsed:.6g} s apart"
            yield error("times", "seeds.training_seconds", said)


def _tuning(submission: Submission) -> Iterator[Finding]:
    tuning = submission.tuning
    if tuning is None:
        yield note("tuning", "tuning", f"the number of tried settings is unknown: {_reason(submission, 'tuning')}")
        return
    for setting, value in sorted(tuning.chosen.items()):
        tried = sorted(tuning.grid.get(setting, ()))
        if tried and value not in tried:
            yield error(
                "tuning",
                f"tuning.chosen.{setting}",
                f"the chosen {value:g} is not among the tried values {', '.join(f'{x:g}' for x in tried)}",
            )
        elif len(tried) > 1 and value in (tried[0], tried[-1]):
            which = "largest" if value == tried[-1] else "smallest"
            said = f"{value:g} is the {which} of the tried values; a better one may lie beyond"
            yield warning("boundary", f"tuning.chosen.{setting}", said)


def _lineage(submission: Submission) -> Iterator[Finding]:
    if submission.lineage is not None and submission.lineage.parent == submission.name:
        yield error("lineage", "lineage.parent", "the submission names itself as its parent")


_Marks = Callable[[Submission], Iterable[Hashable]]


def findings_across(submissions: Sequence[Submission]) -> list[list[Finding]]:
    """Return the findings of each submission in order. The first of several duplicates is accepted, the others are refused."""
    found: list[list[Finding]] = [[] for _ in submissions]
    for rule, key, marks_of, said in _RULES:
        for position, other in _repeated(submissions, marks_of):
            if not any(finding.code in _ONE_IS_ENOUGH for finding in found[position]):
                found[position].append(error(rule, key, said.format(submissions[other].name)))
    names = {each.name for each in submissions}
    for position, each in enumerate(submissions):
        if each.lineage is not None and each.lineage.parent not in names:
            said = f"the parent {each.lineage.parent} does not exist here"
            found[position].append(warning("lineage", "lineage.parent", said))
    return found


def _repeated(submissions: Sequence[Submission], marks_of: _Marks) -> Iterable[tuple[int, int]]:
    """Yield the positions of a submission and of an earlier one that shares a mark with it."""
    first: dict[Hashable, int] = {}
    for position, each in enumerate(submissions):
        earlier = sorted(first[mark] for mark in marks_of(each) if mark in first)
        if earlier:
            yield position, earlier[0]
        for mark in marks_of(each):
            first.setdefault(mark, position)


def _names(submission: Submission) -> Iterable[Hashable]:
    return [submission.name]


def _logs(submission: Submission) -> Iterable[Hashable]:
    return {each.log for each in submission.seeds if each.log is not None}


def _digests(submission: Submission) -> Iterable[Hashable]:
    return {each.log_sha256 for each in submission.seeds if each.log_sha256 is not None}


def _figures(submission: Submission) -> Iterable[Hashable]:
    return {(each.bits_per_byte, each.finished_at) for each in submission.seeds if each.finished_at is not None}


_ONE_IS_ENOUGH = ("name", "duplicate")
_RULES: tuple[tuple[str, str, _Marks, str], ...] = (
    ("name", "name", _names, "duplicate name: another submission is called {}"),
    ("duplicate", "seeds.log", _logs, "duplicate run: the log is that of {}"),
    ("duplicate", "seeds.log_sha256", _digests, "duplicate run: the digest of the log is that of {}"),
    ("copied", "seeds.bits_per_byte", _figures, "copied: result and end time are exactly those of {}"),
)


_ORDER = tuple(Severity)


@dataclass(frozen=True, kw_only=True)
class Validated:
    """Submission with its findings, the most severe first."""

    submission: Submission
    findings: tuple[Finding, ...]

    @property
    def severity(self) -> Severity | None:
        """Severity of the worst finding; None without findings."""
        return self.findings[0].severity if self.findings else None

    @property
    def accepted(self) -> bool:
        """True if the submission is shown on the board."""
        return self.severity is not Severity.ERROR


def validate(
    submissions: Sequence[Submission], *, at: datetime, tracks: Mapping[str, Track] = MappingProxyType({})
) -> list[Validated]:
    """Return each submission with its findings, in the given order; `at` is now (UTC). Track rules apply only with `tracks`."""
    beside = zip(submissions, findings_across(submissions), strict=True)
    return [_validated(each, [*track_findings(each, tracks), *across], at=at) for each, across in beside]


def _validated(submission: Submission, further: Sequence[Finding], *, at: datetime) -> Validated:
    findings = [*accounting_findings(submission), *conduct_findings(submission, at=at), *further]
    return Validated(submission=submission, findings=tuple(sorted(findings, key=lambda each: _ORDER.index(each.severity))))
