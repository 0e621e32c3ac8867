"""Checks of submissions: figures recomputed, procedure, and the record of the same run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

from marin_scaling.accelerators import ACCELERATORS, accelerator, machine, variants
from marin_scaling.errors import Finding, MarinScalingError, Severity, error, note, warning
from marin_scaling.printable import quoted
from marin_scaling.recipe.model_shape import OWN_COUNT, XLA_COUNT
from marin_scaling.run.store import StoredRecord, read_run
from marin_scaling.speedrun.from_runs import differing_keys, submission_from_runs
from marin_scaling.speedrun.submission import EXACT, LEVANTER_FLOPS, ConfirmationFile, SeedResult, Submission, compared_flops
from marin_scaling.speedrun.track import Track, track_findings
from marin_scaling.units import format_flops

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
    counted = training.windows * training.seq_len
    if counted != tokens:
        batches = "scheduled" if training.batch_schedule else training.batch_size
        product = f"{batches} sequences x {training.seq_len} tokens x {training.steps} steps"
        yield error("tokens", "data.trained_tokens", f"{tokens} tokens are stated, but {product} = {counted}")


def _parameters(submission: Submission) -> Iterator[Finding]:
    model = submission.model
    for name in ("params_active", "params_non_embedding"):
        part = getattr(model, name)
        if part is not None and part > model.params_total:
            yield error("parameters", f"model.{name}", f"{part} parameters exceed params_total, {model.params_total}")


def _model_flops(submission: Submission) -> Iterator[Finding]:
    """Compare the stated FLOPs with the common formula; another formula or an unknown shape is a warning."""
    counted, compute, key = submission.counted_flops, submission.compute, "compute.model_flops"
    if counted is None:
        missing = "model.shape" if submission.model.shape is None else "data.trained_tokens"
        said = f"unchecked: {format_flops(compute.model_flops)} model FLOPs cannot be recomputed without {missing}"
        yield warning("unchecked", key, said)
        return
    formula = LEVANTER_FLOPS
    if submission.model.shape is None:
        own = (submission.model.flops_per_token or 0.0) * (submission.data.trained_tokens or 0)
        yield from count_findings(own=own, xla=compute.xla_gradient_flops or 0.0, has_code=submission.has_code)
        formula = OWN_COUNT if counted == own else XLA_COUNT
        if compute.xla_gradient_flops is None:
            said = "unchecked: without compute.xla_gradient_flops the count of the model's class is compared with nothing"
            yield warning("unchecked", "compute.xla_gradient_flops", said)
    if math.isclose(compute.model_flops, counted, rel_tol=EXACT) and compute.model_flops_formula == formula:
        return
    stated, common = figures_apart(compute.model_flops, counted)
    stated_and = f"{stated} model FLOPs are stated, {compute.model_flops / counted - 1:+.1%} from {common} by"
    if compute.model_flops_formula != formula:
        named = "the common formula" if formula == LEVANTER_FLOPS else formula
        said = f"{stated_and} {named}; the stated formula is {compute.model_flops_formula}"
        yield warning("formula", key, f"{said}; the board compares {named}")
    elif _is_rounded(compute.model_flops, counted):
        yield note("rounded", key, f"{stated_and} the common formula: equal to the stated digits")
    else:
        yield error("model-flops", key, f"{stated_and} {formula} from sizes and tokens")


def count_findings(*, own: float, xla: float, has_code: bool) -> Iterator[Finding]:
    """Yield a warning if XLA counts clearly more FLOPs in the gradients than the model's class does."""
    if compared_flops(own, xla, has_code=has_code) > own:
        said = (
            f"the model's class counts {format_flops(own)} FLOPs, XLA counts {format_flops(xla)}, {xla / own:.3g} times as many"
        )
        yield warning("own-count", "compute.model_flops", f"{said}; the board compares the larger number")


def figures_apart(one: float, other: float) -> tuple[str, str]:
    """Return two FLOP counts with enough digits to differ.

    >>> figures_apart(3.99995e11, 3.99885e11), figures_apart(1e18, 2e18)
    (('4.000e11', '3.999e11'), ('1e18', '2e18'))
    """
    short = format_flops(one), format_flops(other)
    if short[0] != short[1]:
        return short
    written = ((f"{one:.{digits}e}", f"{other:.{digits}e}") for digits in range(3, 16))
    first, second = next((pair for pair in written if pair[0] != pair[1]), (repr(one), repr(other)))
    return first.replace("e+", "e"), second.replace("e+", "e")


_MOST_ROUNDING = 0.005


def _is_rounded(stated: float, counted: float) -> bool:
    """Return True if two figures are equal in the stated digits, three or more."""
    last_digit = Decimal(repr(stated)).normalize().as_tuple().exponent
    half_a_unit = 0.5 * 10.0 ** int(last_digit)
    return abs(stated - counted) <= min(half_a_unit * (1 + EXACT), _MOST_ROUNDING * counted)


def _machine(submission: Submission) -> Iterator[Finding]:
    hardware = submission.compute.hardware
    if hardware is None:
        return
    known, peak = accelerator(hardware.kind), hardware.peak_flops_per_second
    if known is None and peak is not None:
        said = f"{hardware.kind!r} is not in the hardware table ({', '.join(ACCELERATORS)}), so its peak is not checked"
        yield warning("hardware", "compute.hardware.kind", said)
    if known and peak and not math.isclose(peak, known.peak_flops_per_second, rel_tol=EXACT):
        yield _other_peak(submission, peak=peak, kind=known.kind)
    named = machine(hardware.name) if hardware.name else None
    if named is None or not named.is_slice or hardware.chips == named.chips:
        return
    slices, rest = divmod(hardware.chips, named.chips)
    said = f"{hardware.chips} chips are stated, but a {hardware.name} has {named.chips} chips"
    if hardware.chips == named.named_count:
        cores = f'it has {hardware.chips} cores (name two slices "2 x {hardware.name}")'
        yield error("chips", "compute.hardware.chips", f"{said}; {cores}")
    elif rest:
        yield error("chips", "compute.hardware.chips", said)
    else:
        yield warning("chips", "compute.hardware.chips", f"{said}: counted as {slices} slices")


def _other_peak(submission: Submission, *, peak: float, kind: str) -> Finding:
    """Return the finding for a stated peak that differs from the listed one: a warning for variants and imported files."""
    known, key = ACCELERATORS[kind], "compute.hardware.peak_flops_per_second"
    table = f"{format_flops(known.peak_flops_per_second)} dense {known.dtype} FLOP/s ({known.source})"
    said = f"{format_flops(peak)} FLOP/s are stated for a {kind}, but its peak is {table}"
    variant = next((each for each in variants(kind) if math.isclose(peak, each.peak_flops_per_second, rel_tol=_NEAR)), None)
    if variant:
        return warning("peak", key, f"{said}; the stated value is the peak of a {variant.kind} ({variant.source})")
    ratio = peak / known.peak_flops_per_second
    if math.isclose(ratio, 1, rel_tol=_NEAR):
        return note("rounded", key, said)
    sparse = "; the stated value is the peak with sparsity" if math.isclose(ratio, _SPARSE, rel_tol=_NEAR) else ""
    return (warning if submission.imported_from else error)("peak", key, said + sparse)


_NEAR = 0.01


def _hardware_flops(submission: Submission, seed: SeedResult) -> Iterator[Finding]:
    hardware, stated, seconds = submission.compute.hardware, seed.hardware_flops, seed.training_seconds
    key = "seeds.hardware_flops"
    if stated is None:
        return
    if hardware is None or hardware.peak_flops_per_second is None or seconds is None:
        reason = _unknown(submission, seed)
        said = f"unchecked: {format_flops(stated)} hardware FLOPs cannot be recomputed: {reason}"
        yield warning("unchecked", key, said)
        return
    counted = seconds * hardware.chips * hardware.peak_flops_per_second
    if math.isclose(stated, counted, rel_tol=EXACT):
        return
    figure, other = figures_apart(stated, counted)
    machine_said = f"{hardware.chips} chips ({hardware.kind}, {hardware.peak_flops_per_second / 1e12:g} TFLOP/s)"
    said = f"{figure} are stated, but {seconds:.6g} s on {machine_said} give {other}"
    factor = _known_factor(stated / counted, submission)
    if not factor and (_is_rounded(stated, counted) or _is_rounded(seconds, stated / (counted / seconds))):
        yield note("rounded", key, f"{said}: equal in the stated digits")
    elif not factor and submission.imported_from:
        yield warning("hardware-flops", key, said + _ratio_said(stated / counted))
    else:
        yield error("hardware-flops", key, said + (factor or _ratio_said(stated / counted)))


def _unknown(submission: Submission, seed: SeedResult) -> str:
    hardware = submission.compute.hardware
    if hardware is None:
        return "the hardware is not stated"
    if hardware.peak_flops_per_second is None:
        return f"{hardware.kind!r} is not in the hardware table, so its peak is unknown"
    return f"the time of seed {seed.seed} is not stated"


def _known_factor(ratio: float, submission: Submission) -> str:
    """Return the likely cause of a known wrong factor; empty for others."""
    hardware = submission.compute.hardware
    named = machine(hardware.name) if hardware and hardware.name else None
    if named and hardware and math.isclose(ratio, named.named_count / hardware.chips, rel_tol=EXACT) and ratio > 1:
        return f"; the number counts the {named.named_count} cores of a {hardware.name} as chips"
    if math.isclose(ratio, 1 / 60, rel_tol=EXACT):
        return "; the two agree if the time in minutes is read as seconds"
    return ""


def _ratio_said(ratio: float) -> str:
    return f"; the ratio is {ratio:.4g}"


def _nats(submission: Submission, seed: SeedResult) -> Iterator[Finding]:
    size = submission.evaluation.bytes
    if seed.nats is None or size is None:
        return
    counted = seed.nats / (size * math.log(2))
    if not math.isclose(counted, seed.bits_per_byte, rel_tol=EXACT):
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


CLOCKS_DIFFER = timedelta(days=1)
_WHOLE_SECONDS = 1.0
"""Largest difference of two times that are stated in whole seconds from their true difference."""


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
    losses = [each.bits_per_byte for each in submission.seeds]
    if alike := [loss for loss, times in Counter(losses).items() if times > 1]:
        said = f"{Counter(losses)[alike[0]]} seeds have the same loss to the last digit, {alike[0]!r}: did every seed train"
        yield warning("identical-losses", "seeds.bits_per_byte", f"{said} the same run, or was one result copied?")
    digests = Counter(each.log_sha256 for each in submission.seeds if each.log_sha256 is not None)
    if same := [digest for digest, times in digests.items() if times > 1]:
        yield error("seeds", "seeds.log_sha256", f"duplicate log: {digests[same[0]]} seeds have the log {same[0][:16]}")


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
        if finished is not None and finished > at + CLOCKS_DIFFER:
            yield error("times", "seeds.finished_at", f"the end, {finished.isoformat()}, is in the future")
        if started is None or finished is None:
            continue
        elapsed = (finished - started).total_seconds()
        if elapsed < 0:
            yield error(
                "times", "seeds.finished_at", f"the end, {finished.isoformat()}, precedes the start, {started.isoformat()}"
            )
        elif seed.training_seconds is not None and seed.training_seconds > elapsed + _WHOLE_SECONDS:
            said = f"{seed.training_seconds:.6g} s of steps are stated, but start and end are {elapsed:.6g} s apart"
            yield error("times", "seeds.training_seconds", said)


def _tuning(submission: Submission) -> Iterator[Finding]:
    tuning = submission.tuning
    if tuning is None:
        yield note("tuning", "tuning", f"the number of tried settings is unknown: {_reason(submission, 'tuning')}")
        return
    yield from trial_findings(tuning.trials, runs=len(submission.seeds))
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


def trial_findings(trials: int, *, runs: int) -> list[Finding]:
    """Return a warning if fewer trials are stated than runs, which are trials too.

    >>> [each.where for each in trial_findings(1, runs=3)], trial_findings(3, runs=3)
    (['trials'], [])
    """
    return [warning("tuning", "trials", f"{trials} stated, but the {runs} runs count too")] if trials < runs else []


def _lineage(submission: Submission) -> Iterator[Finding]:
    if submission.lineage is not None and submission.lineage.parent == submission.name:
        yield error("lineage", "lineage.parent", "the submission names itself as its parent")


_Marks = Callable[[Submission], Iterable[Hashable]]
Rank = tuple[int, ...]
"""Age of a submission: of two duplicates the one with the lower rank is the original."""


def findings_across(submissions: Sequence[Submission], *, ranks: Sequence[Rank] | None = None) -> list[list[Finding]]:
    """Return the findings of each submission in order. The first of several duplicates is accepted, the others are refused.

    If both have the same rank of `ranks`, the message says that the original is unknown.
    """
    found: list[list[Finding]] = [[] for _ in submissions]
    for rule, key, marks_of, said in _RULES:
        for position, other in _repeated(submissions, marks_of):
            if not any(finding.code in _ONE_IS_ENOUGH for finding in found[position]):
                doubt = "; which of the two came first is unknown" if ranks and ranks[position] == ranks[other] else ""
                found[position].append(error(rule, key, said.format(submissions[other].name) + doubt))
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
    ("name", "name", _names, "duplicate name: another submission is called {}; remove its folder to replace it"),
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
    confirmation: ConfirmationFile | None = None
    """Stored retraining without a fault."""

    @property
    def severity(self) -> Severity | None:
        """Severity of the worst finding; None without findings."""
        return self.findings[0].severity if self.findings else None

    @property
    def accepted(self) -> bool:
        """True if the submission is shown on the board."""
        return self.severity is not Severity.ERROR

    @property
    def recorded(self) -> bool:
        """False if the repository was found to have no record of one of the runs."""
        return all(each.code != NO_RECORD for each in self.findings)

    @property
    def verification(self) -> str:
        """Name and day of the stored retraining; else the author's level, and whether the repository lacks a record."""
        if self.confirmation:
            return f"reproduced by {self.confirmation.by}, {self.confirmation.at:%Y-%m-%d}"
        level = self.submission.verification.level
        return level if self.recorded else f"{level}, no record here"


NO_RECORD = "no-record"
Records = Mapping[str, Sequence[StoredRecord]]
"""Records of the repository's own runs, by the digest of the log."""


def validate(
    submissions: Sequence[Submission],
    *,
    at: datetime,
    tracks: Mapping[str, Track] | None = None,
    records: Records | None = None,
    further: Sequence[Sequence[Finding]] = (),
    ranks: Sequence[Rank] | None = None,
) -> list[Validated]:
    """Return each submission with its findings, in the given order; `at` is now (UTC).

    Track rules apply only with `tracks`, comparison with run records only with `records`; `further` has more findings of each.
    Among duplicates, the one of the lowest rank is accepted, or the first.
    """
    found: list[list[Finding]] = [[] for _ in submissions]
    ordered = sorted(range(len(submissions)), key=lambda each: (ranks[each], each) if ranks else ((), each))
    across = findings_across(
        [submissions[each] for each in ordered], ranks=None if ranks is None else [ranks[each] for each in ordered]
    )
    for position, findings in zip(ordered, across, strict=True):
        found[position] = findings
    return [
        _validated(
            each,
            [
                *(() if records is None else record_findings(each, records)),
                *(() if tracks is None else track_findings(each, tracks)),
                *more,
                *others,
            ],
            at=at,
        )
        for each, more, others in zip(submissions, further or [()] * len(submissions), found, strict=True)
    ]


def record_findings(submission: Submission, records: Records) -> Iterator[Finding]:
    """Yield figures and settings that differ from the run of the same log in this repository; a warning without its record."""
    missing = sum((each.log_sha256 or "") not in records for each in submission.seeds)
    if missing:
        said = f"self-reported: {missing} of {len(submission.seeds)} runs have no record in runs/"
        yield warning(NO_RECORD, "seeds.log_sha256", said)
    for seed in submission.seeds:
        for stored in records.get(seed.log_sha256 or "", ()):
            record = stored.record
            measured = [*record.losses.values(), *([] if record.loss is None else [record.loss])]
            stated: dict[str, tuple[float | None, list[float]]] = {
                "seeds.bits_per_byte": (seed.bits_per_byte, measured),
                "seeds.seed": (seed.seed, [record.seed]),
                "seeds.training_seconds": (seed.training_seconds, [record.step_seconds]),
            }
            for key, (figure, recorded) in stated.items():
                if figure is None or any(math.isclose(figure, each, rel_tol=EXACT) for each in recorded):
                    continue
                told = " or ".join(f"{each:.9g}" for each in recorded) or "none: the run diverged"
                yield error("record", key, f"{figure:.9g} is stated, but the record {stored.folder} has {told}")
    folders = {stored.folder: None for seed in submission.seeds for stored in records.get(seed.log_sha256 or "", ())}
    yield from {each.where: each for folder in folders for each in _setting_findings(submission, folder)}.values()


_RECORDED = ("data", "model", "training", "compute.hardware", "code.tree_sha256")
_OF_THE_AUTHOR = ("compute.hardware.name", "compute.hardware.peak_flops_per_second")


def _setting_findings(submission: Submission, folder: Path) -> Iterator[Finding]:
    """Yield the stated settings that differ from those of a run; settings that only one of the two has are not compared."""
    try:
        run = read_run(folder)
        if run.record.loss is None:
            return
        made = submission_from_runs(
            [run], name=submission.name, track=submission.track, author=submission.authors[0], description="", trials=None
        )
    except MarinScalingError as fault:
        yield error("record", "seeds.log_sha256", f"the run {folder} cannot be read: {fault.lines[0]}")
        return
    for key, (stated, recorded) in differing_keys(submission, made, parts=_RECORDED).items():
        if None in (stated, recorded) or key in _OF_THE_AUTHOR or (key.endswith(".kind") and _one_kind(stated, recorded)):
            continue
        yield error("record", key, f"{quoted(stated)} is stated, but the run {folder} has {quoted(recorded)}")


def _one_kind(*kinds: str) -> bool:
    """Return True if two names of chips mean one chip of the hardware table."""
    return len({known.kind if (known := accelerator(kind)) else kind for kind in kinds}) == 1


def _validated(submission: Submission, further: Sequence[Finding], *, at: datetime) -> Validated:
    findings = [*accounting_findings(submission), *conduct_findings(submission, at=at), *further]
    return Validated(submission=submission, findings=tuple(sorted(findings, key=lambda each: _ORDER.index(each.severity))))
