"""Whether the figures of a submission agree with each other: tokens, FLOPs, chips, peak, time, bits.

Each is counted again from what it follows from. Where a wrong figure is off by a factor that has a name (cores for chips,
seconds for minutes, a peak with sparsity), that is said, because it was so before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from marin_scaling.recipe.flop_counting import WITH_LM_HEAD, training_flops
from marin_scaling.speedrun.finding import Finding, doubt, refused
from marin_scaling.speedrun.hardware import ACCELERATORS, Machine, accelerator, machine
from marin_scaling.speedrun.submission import LEVANTER_FLOPS, SeedResult, Submission
from marin_scaling.units import format_flops

_EXACT = 1e-6
_HIGHEST_MFU, _HIGH_MFU, _LOW_MFU = 1.0, 0.6, 0.03
_SPARSE = 2.0


def accounting_findings(submission: Submission) -> Iterator[Finding]:
    """All that does not add up, in the order of the keys."""
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
        said = f"{tokens} tokens are stated, and {training.batch_size} sequences of {training.seq_len} tokens in "
        yield refused("tokens", "data.trained_tokens", f"{said}{training.steps} steps are {counted}")


def _parameters(submission: Submission) -> Iterator[Finding]:
    model = submission.model
    for name in ("params_active", "params_non_embedding"):
        part = getattr(model, name)
        if part is not None and part > model.params_total:
            yield refused("parameters", f"model.{name}", f"{part} of {model.params_total} parameters are more than all")


def _model_flops(submission: Submission) -> Iterator[Finding]:
    """The common formula is counted again; another one is told, with what the common one gives."""
    shape, tokens, compute = submission.model.shape, submission.data.trained_tokens, submission.compute
    if shape is None or tokens is None:
        return
    counted = training_flops(shape, tokens=tokens, convention=WITH_LM_HEAD)
    stated, key = compute.model_flops, "compute.model_flops"
    beside = (
        f"{format_flops(stated)} model FLOPs are stated, {stated / counted - 1:+.1%} beside the {format_flops(counted)} that"
    )
    if compute.model_flops_formula != LEVANTER_FLOPS:
        yield doubt("formula", key, f"{beside} the common formula gives; counted by {compute.model_flops_formula}")
    elif not math.isclose(stated, counted, rel_tol=_EXACT):
        yield refused("model-flops", key, f"{beside} its sizes and tokens give by {LEVANTER_FLOPS}")


def _machine(submission: Submission) -> Iterator[Finding]:
    hardware = submission.compute.hardware
    if hardware is None:
        return
    known, named = accelerator(hardware.kind), machine(hardware.name) if hardware.name else None
    if known is None and hardware.peak_flops_per_second is not None:
        listed = ", ".join(ACCELERATORS)
        said = f"{hardware.kind!r} is not in the hardware table ({listed}), so its peak is its author's word"
        yield doubt("hardware", "compute.hardware.kind", said)
    if (
        known
        and hardware.peak_flops_per_second
        and not math.isclose(hardware.peak_flops_per_second, known.peak_flops_per_second, rel_tol=_EXACT)
    ):
        yield refused("peak", "compute.hardware.peak_flops_per_second", _peak_said(hardware.peak_flops_per_second, known.kind))
    if named is not None and _is_slice(named, name=hardware.name or "") and hardware.chips != named.chips:
        cores = "; that is the number of its cores" if hardware.chips == named.named_count else ""
        said = f"{hardware.chips} chips are stated, and a {hardware.name} has {named.chips}{cores}"
        yield refused("chips", "compute.hardware.chips", said)


def _is_slice(named: Machine, *, name: str) -> bool:
    """Whether the name itself says how many chips; of a GPU it does not."""
    return name.lower() != named.accelerator.kind and name.endswith(f"-{named.named_count}")


def _peak_said(stated: float, kind: str) -> str:
    known = ACCELERATORS[kind]
    ratio = stated / known.peak_flops_per_second
    sparse = "; that is its peak with sparsity" if math.isclose(ratio, _SPARSE, rel_tol=0.01) else ""
    table = f"{format_flops(known.peak_flops_per_second)} dense {known.dtype} FLOP/s ({known.source})"
    return f"a {kind} is stated with {format_flops(stated)} FLOP/s, and has {table}{sparse}"


def _hardware_flops(submission: Submission, seed: SeedResult) -> Iterator[Finding]:
    hardware = submission.compute.hardware
    if hardware is None or hardware.peak_flops_per_second is None or None in (seed.training_seconds, seed.hardware_flops):
        return
    seconds, stated = float(seed.training_seconds or 0), float(seed.hardware_flops or 0)
    counted = seconds * hardware.chips * hardware.peak_flops_per_second
    if math.isclose(stated, counted, rel_tol=_EXACT):
        return
    said = f"{format_flops(stated)} are stated, and {seconds:.6g} s on {hardware.chips} chips are {format_flops(counted)}"
    yield refused("hardware-flops", "seeds.hardware_flops", said + _factor_said(stated / counted, submission))


def _factor_said(ratio: float, submission: Submission) -> str:
    """The name of a factor that was seen before."""
    hardware = submission.compute.hardware
    named = machine(hardware.name) if hardware and hardware.name else None
    if named and hardware and math.isclose(ratio, named.named_count / hardware.chips, rel_tol=_EXACT) and ratio > 1:
        return f"; as if a {hardware.name} had {named.named_count} chips, which is the number of its cores"
    if math.isclose(ratio, 1 / 60, rel_tol=_EXACT):
        return "; it agrees where the time that is called minutes is read as seconds"
    return f", {ratio:.4g} times less" if ratio < 1 else f"; {ratio:.4g} times as much is stated"


def _nats(submission: Submission, seed: SeedResult) -> Iterator[Finding]:
    size = submission.evaluation.bytes
    if seed.nats is None or size is None:
        return
    counted = seed.nats / (size * math.log(2))
    if not math.isclose(counted, seed.bits_per_byte, rel_tol=_EXACT):
        said = (
            f"{seed.bits_per_byte:.6g} bits per byte are stated, and {seed.nats:.8g} nats over {size} bytes are {counted:.6g}"
        )
        yield refused("bits-per-byte", "seeds.bits_per_byte", said)


def _mfu(submission: Submission) -> Iterator[Finding]:
    mfu, key = submission.mfu, "seeds.training_seconds"
    if mfu is None:
        return
    said = f"model FLOPs are {mfu:.3g} of what the machine could do in that time"
    if mfu > _HIGHEST_MFU:
        yield refused("mfu", key, f"{said}: more than all; part of the time is missing, or of the chips")
    elif mfu > _HIGH_MFU:
        yield doubt("mfu", key, f"{said}: more than anyone has shown on such models")
    elif mfu < _LOW_MFU:
        yield doubt("mfu", key, f"{said}: the machine waited, or much was computed that model FLOPs do not count")
