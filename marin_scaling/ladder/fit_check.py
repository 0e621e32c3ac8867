"""Memory, time and cost of planned runs: what fits on an accelerator, and speeds from recorded runs if there are any."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median
from typing import Any, Literal, NamedTuple

import numpy as np

from marin_scaling.accelerators import Accelerator, accelerator
from marin_scaling.errors import Finding, Severity
from marin_scaling.ladder.config import ONE_AXIS, Compute, Hardware, LadderFile, Mesh, PerRun
from marin_scaling.printable import joined
from marin_scaling.recipe.base import RungKey, RungPlan
from marin_scaling.recipe.model_shape import ModelShape
from marin_scaling.units import counted, format_bytes, format_duration

ESTIMATE_EXCEEDS = 3.0
"""Factor by which the estimate may exceed what a program needs. Of programs compiled for TPUs 1.7 was the most (lab book,
2026-11-28)."""
USABLE_MEMORY = 0.9
"""Share of a chip's memory for a training step; the rest is for program, runtime and fragmentation."""
BYTES_PER_PARAM = 28
"""Float32 bytes per parameter: the parameter and Adam's two moments before and after a step (4 x 3 x 2), and the gradient."""
STATE_BYTES_PER_PARAM = 12
"""Float32 bytes per parameter of the training state: the parameter and Adam's two moments."""
_FLOAT, _HALF = 4, 2
_PER_HIDDEN, _PER_INTERMEDIATE, _PER_HEAD_AND_POSITION, _PER_VOCABULARY = 17, 6, 2, 2
_VOCABULARY_BLOCK = 8192
"""Words of the vocabulary for which Levanter's loss holds logits at once; its kernel for a TPU holds next to none."""
_FLASH_BLOCK = 1024  # positions; shorter sequences use plain attention in Levanter's JAX version


def training_memory_bytes(
    plan: RungPlan, compute: Compute | None = None, *, devices: int = 1, mesh: Mesh = ONE_AXIS, overwrites: bool = False
) -> float:
    """Estimate the memory of a training step on each device, without the program; default `compute`: `Compute()`.

    `overwrites`: as on accelerators, the state after a step takes the memory of that before it, and the loss holds no logits.

    Several devices share the batch, parameters and optimizer state as `mesh` says. On accelerators each then also holds whole
    weights of embedding, head and one layer, with their float32 gradients if a batch is processed in parts. For twelve steps
    that were compiled for TPUs it is 8 % too low to 13 % too high (`benchmarks/results/compiled_shapes.md`); GPUs were not
    compared.

    Numbers stored for the backward pass, per token: in each layer 17 per hidden_dim, 6 per active MLP width and, with plain
    attention, 2 per head and position; and 2 per word of a block of the vocabulary. With recomputation it is hidden_dim per
    layer, and all of one layer. Tests compare the estimate with XLA's reservation on a CPU. Dense models in float32 reserve up
    to a quarter less; with other choices, from a third less to a twentieth more. XLA undoes recomputation on a CPU, so tests
    measure what JAX stores. For mixtures the estimate holds for a ragged product. XLA on a CPU reserves 1.5 to 2.5 times as
    much there, because of the fallback for overflowing buffers. Bfloat16 is computed, since a CPU's XLA stores much of it in
    float32.

    >>> from marin_scaling.recipe.quickstart import QuickstartRecipe
    >>> plan = QuickstartRecipe().plan(budget_flops=2.5e12, hidden_dim=64)
    >>> [round(training_memory_bytes(plan, Compute(recompute=again)) / 1e6) for again in (False, True)]
    [60, 38]
    """
    compute = compute or Compute()
    parts = mesh.over(devices)
    part = -(-plan.batch_size // parts.batch_parts)
    at_once = min(part, compute.sequences_at_a_time or part)
    kept = _bytes_per_token(plan.shape, compute, model=parts.model) + (0 if overwrites else _bytes_of_loss(plan.shape))
    per_param = _bytes_per_param(compute, in_parts=at_once < part) - (STATE_BYTES_PER_PARAM if overwrites else 0)
    whole = _whole_weights(plan.shape, compute, in_parts=at_once < part) / parts.model if overwrites and devices > 1 else 0.0
    return float(per_param * _params_on_each(plan.shape, parts) + whole + at_once * plan.shape.seq_len * kept)


def _whole_weights(shape: ModelShape, compute: Compute, *, in_parts: bool) -> float:
    """Return the bytes of embedding, head and a layer gathered from all devices, and of their gradients in parts of a batch."""
    params = shape.params_total - (shape.num_layers - 1) * shape.params_per_layer
    return params * ((_FLOAT if compute.precision == "float32" else _HALF) + (_FLOAT if in_parts else 0))


def _params_on_each(shape: ModelShape, parts: Mesh) -> float:
    """Return parameters per device: all are spread over all axes, but layers without their experts not over `expert`."""
    experts = shape.router_outputs * 3 * shape.hidden_dim * shape.intermediate_dim
    layers = shape.num_layers * (shape.params_per_layer - experts)
    return (shape.params_total + (parts.expert - 1) * layers) / parts.devices


def _bytes_per_token(shape: ModelShape, compute: Compute, *, model: int) -> float:
    """Return the bytes stored per token for the backward pass of layers, with `model` parts of heads and MLPs."""
    number = _FLOAT if compute.precision == "float32" else _HALF
    return number * _kept_of_layers(shape, compute, model=model)


def _bytes_of_loss(shape: ModelShape) -> int:
    """Return the bytes of logits per token."""
    return _FLOAT * _PER_VOCABULARY * min(shape.vocab_size, _VOCABULARY_BLOCK)  # float32 at any precision


def _kept_of_layers(shape: ModelShape, compute: Compute, *, model: int) -> float:
    """Return the numbers stored per token."""
    is_plain = compute.attention == "plain" or shape.seq_len < _FLASH_BLOCK
    square = shape.num_heads * (shape.seq_len if is_plain else _FLASH_BLOCK) / model  # attention matrix, or a block of it
    layer = _PER_HIDDEN * shape.hidden_dim + _PER_INTERMEDIATE * shape.mlp_dim_per_token / model
    layer += _PER_HEAD_AND_POSITION * square if is_plain else 0
    if compute.recompute:
        return shape.num_layers * shape.hidden_dim + layer + square
    return shape.num_layers * layer + (0 if is_plain else square)


def _bytes_per_param(compute: Compute, *, in_parts: bool) -> int:
    """Return bytes per parameter, with a copy in half precision and the accumulated gradient where these exist."""
    copy = _HALF if compute.precision == "bfloat16" else 0
    return BYTES_PER_PARAM + copy + (_FLOAT if in_parts else 0)


def mesh_product(mesh: Mesh, *, devices: int) -> str:
    """Return what is wrong with the product of a mesh's axes, with both numbers; empty if it is the number of devices."""
    if mesh.over(devices).devices == devices:
        return ""
    wrong = ", and a run has" if mesh.data else " does not divide"
    return f"{mesh} = {mesh.devices}{wrong} {counted(devices, 'device')}"


class Uneven(NamedTuple):
    """Kind of size that the axes of a mesh cannot share evenly: code of the finding, words with a place for sizes, parts."""

    code: str
    words: str
    parts: str

    def sentence(self, sizes: Iterable[int]) -> str:
        """Return both numbers."""
        return f"{self.words.format(joined(map(str, sizes), most=3))} cannot be spread evenly over {self.parts}"


def uneven_sizes(plan: RungPlan, mesh: Mesh, *, devices: int) -> Iterator[tuple[Uneven, int]]:
    """Yield the sizes of a run that the axes of a mesh cannot share evenly."""
    shape, parts = plan.shape, mesh.over(devices)
    data = parts.data or 1
    sizes = [
        ("batch", "a batch of {}", plan.batch_size, parts.batch_parts, "data x expert"),
        ("mesh", "a width of {}", shape.hidden_dim, data, "data"),
        ("mesh", "{} heads", shape.num_heads, parts.model, "model"),
        ("mesh", "{} key-value heads", shape.num_kv_heads, parts.model, "model"),
        *(("mesh", "an MLP width of {}", width, parts.model, "model") for width in shape.mlp_widths),
        ("mesh", "{} experts", shape.router_outputs, parts.expert if shape.router_outputs else 1, "expert"),
        ("mesh", "a vocabulary of {}", shape.vocab_size, parts.model * parts.expert, "model x expert"),
    ]
    for code, words, size, count, axes in sizes:
        if size % count:
            yield Uneven(code, words, f"{count} devices" if mesh == ONE_AXIS else f"{count} parts ({axes})"), size
    if parts.expert > 1 and not shape.router_outputs:
        yield Uneven("mesh", "a dense model, with {} experts,", f"{parts.expert} parts (expert)"), 0


def uneven_findings(plans: Sequence[RungPlan], per_run: PerRun) -> Iterator[Finding]:
    """Yield a mesh that does not match the devices, and sizes of runs that its axes cannot share, one finding for each kind."""
    if wrong := mesh_product(per_run.mesh, devices=per_run.devices):
        yield Finding(severity=Severity.ERROR, code="mesh", where="hardware.per_run.mesh", message=wrong)
    found: dict[Uneven, list[tuple[int, str]]] = {}
    for plan in plans:
        for kind, size in uneven_sizes(plan, per_run.mesh, devices=per_run.devices):
            found.setdefault(kind, []).append((size, plan.rung_name))
    for kind, runs in found.items():
        message, places = kind.sentence(sorted({size for size, _ in runs})), dict.fromkeys(run for _, run in runs)
        yield Finding(severity=Severity.ERROR, code=kind.code, where=joined(places, most=3), message=message)


@dataclass(frozen=True, kw_only=True)
class FitCheck:
    """Memory of the steps of some runs against that of their accelerator."""

    accelerator: Accelerator
    devices: int
    needed_bytes: float
    """Bytes on each device of the largest step."""
    usable_bytes: float
    too_large: tuple[RungPlan, ...]
    """Runs whose step does not fit."""
    remedy: str
    """Settings with which all would fit; empty if all fit, or if nothing helps."""

    @property
    def fits(self) -> bool:
        """Return True if all steps fit as they are set."""
        return not self.too_large

    @property
    def is_certain(self) -> bool:
        """Return True if the largest step cannot fit, however much the estimate exceeds what XLA needs."""
        return self.needed_bytes > ESTIMATE_EXCEEDS * self.usable_bytes

    @property
    def sentence(self) -> str:
        """Both numbers, and the settings with which all steps fit."""
        chip, several = self.accelerator, len(self.too_large) > 1
        where = f"each of {self.devices} {chip.kind}" if self.devices > 1 else f"one {chip.kind}"
        most = f"up to {format_bytes(self.needed_bytes)}" if several else format_bytes(self.needed_bytes)
        usable = f"{format_bytes(self.usable_bytes)} usable of {format_bytes(chip.memory_bytes)}"
        said = f"{most} on {where}, which has {usable}"
        return said if self.fits else f"{said}; {self.remedy or 'fits with no setting'}"


def devices_words(per_run: PerRun) -> str:
    """Return the devices of a run in words."""
    return "one device" if per_run.devices == 1 else f"each of {per_run.devices} devices"


def described(compute: Compute) -> str:
    """Return precision, recomputation and attention of a step in words."""
    parts = [f"in {compute.precision}", "layers recomputed" if compute.recompute else "nothing recomputed"]
    if compute.attention == "flash":
        parts.append("flash attention")
    if compute.sequences_at_a_time:
        parts.append(f"at most {compute.sequences_at_a_time} sequences at a time")
    return ", ".join(parts)


def check_fit(plans: Sequence[RungPlan], compute: Compute, hardware: Hardware) -> FitCheck:
    """Compare the memory of the runs' steps with that of the accelerator, which `hardware` names."""
    chip, devices, mesh = hardware.chip, hardware.per_run.devices, hardware.per_run.mesh
    assert chip is not None
    share = min(1.0, hardware.per_run.gpus or 1.0)
    usable = USABLE_MEMORY * chip.memory_bytes * share
    needed = [training_memory_bytes(plan, compute, devices=devices, mesh=mesh, overwrites=True) for plan in plans]
    too_large = tuple(plan for plan, size in zip(plans, needed, strict=True) if size > usable)
    most = math.gcd(*(plan.batch_size for plan in plans))
    place = _Place(devices=devices, mesh=mesh, most=most, usable=usable)
    remedy = _remedy(too_large, compute, place) if too_large else ""
    if too_large and share < 1 and not remedy.startswith("fits with"):
        whole = _remedy(too_large, compute, replace(place, usable=usable / share))
        remedy = f"on a whole {chip.kind} it {whole}" if whole else ""
    if too_large and not remedy:
        remedy = _without_the_largest(too_large, compute, place)
    return FitCheck(
        accelerator=chip,
        devices=devices,
        needed_bytes=max(needed),
        usable_bytes=usable,
        too_large=too_large,
        remedy=remedy,
    )


@dataclass(frozen=True, kw_only=True)
class _Place:
    """Devices of a run, their mesh and usable bytes, and the most parts into which batches can be spread."""

    devices: int
    mesh: Mesh
    most: int
    usable: float

    def larger(self) -> Iterator[tuple[int, Mesh]]:
        """Yield these devices, then twice as many each time while batches can be spread over them, with their meshes."""
        count, mesh = self.devices, self.mesh
        while count == self.devices or self.most % mesh.over(count).batch_parts == 0:
            yield count, mesh
            count, mesh = 2 * count, self.mesh.model_copy(update={"data": None})


def _without_the_largest(plans: Sequence[RungPlan], compute: Compute, place: _Place) -> str:
    """Return the runs that fit with no setting, the number of devices that batches allow, and what helps the others."""
    apart = [(plan, _remedy([plan], compute, place)) for plan in plans]
    hopeless, others = [plan for plan, helps in apart if not helps], [plan for plan, helps in apart if helps]
    if not hopeless:
        return "each run fits with other settings, and no setting suits all"
    names = joined((plan.rung_name for plan in hopeless), most=4)
    most = place.most * place.mesh.model
    batch = "" if most <= place.devices else f" on up to {most} devices, over which batches can be spread"
    rest = _remedy(others, compute, place) if others else ""
    return f"no setting makes {names} fit{batch}" + (f"; the rest of the ladder {rest}" if rest else "")


def _remedy(plans: Sequence[RungPlan], compute: Compute, place: _Place) -> str:
    """Return the mildest settings with which all steps fit, on as few devices as possible; empty if none do."""
    for count, mesh in place.larger():
        for settings in (compute, *milder(plans, compute, batch_parts=mesh.over(count).batch_parts)):
            needed = (training_memory_bytes(plan, settings, devices=count, mesh=mesh, overwrites=True) for plan in plans)
            if max(needed) <= place.usable:
                changed = changed_settings(compute, settings)
                where = f"on {count} devices (hardware.per_run) " * (count > place.devices)
                return f"fits {where}{f'with {changed}' * bool(changed)}".strip()
    return ""


def milder(plans: Sequence[RungPlan], compute: Compute, *, batch_parts: int) -> Iterator[Compute]:
    """Yield settings that store less and less: flash attention, recomputation, fewer sequences at once."""
    settings = compute
    for change in ({"attention": "flash"}, {"recompute": True}):
        settings = settings.model_copy(update=change)
        yield settings
    most = max(-(-plan.batch_size // batch_parts) for plan in plans)
    at_once = min(most, compute.sequences_at_a_time or most)
    while at_once > 1:
        at_once = -(-at_once // 2)
        yield settings.model_copy(update={"sequences_at_a_time": at_once})


def changed_settings(before: Compute, after: Compute) -> str:
    """Return the keys of a ladder file that differ, with their new values."""
    values = [(name, getattr(after, name)) for name in Compute.model_fields if getattr(before, name) != getattr(after, name)]
    return ", ".join(f"compute.{name}: {str(value).lower()}" for name, value in values)


@dataclass(frozen=True, kw_only=True)
class Roofline:
    """Bounds of a run on its accelerators: seconds at least, and MFU at most."""

    seconds: float
    mfu: float


_WITH_FORWARD_AGAIN = 4 / 3
"""Passes of a step that computes each layer again in the backward pass, over those of one that does not."""
_PASSES = 3
"""Reads of the weights in a step: forward, and twice backward; of activations one write and two reads."""


def roofline(plan: RungPlan, compute: Compute, hardware: Hardware) -> Roofline | None:
    """Return the bounds of a run from peak speed and memory bandwidth (Williams et al. 2009); None without an accelerator.

    A step takes at least its FLOPs (as the plan counts them, with a forward pass more if layers are recomputed) at the bfloat16
    peak on the device with the most sequences, and at least the time in which its parameters, optimizer state and stored
    numbers pass the memory. Communication, evaluation and compilation come on top.
    """
    chip, devices, mesh = hardware.chip, hardware.per_run.devices, hardware.per_run.mesh
    if chip is None:
        return None
    parts = mesh.over(devices)
    part = -(-plan.batch_size // parts.batch_parts)
    pieces = -(-part // (compute.sequences_at_a_time or part))
    state = training_memory_bytes(plan, compute, devices=devices, mesh=mesh)
    weights = pieces * _PASSES * _FLOAT * _params_on_each(plan.shape, parts)
    kept = _bytes_per_token(plan.shape, compute, model=parts.model) + _bytes_of_loss(plan.shape)
    moved = state + weights + _PASSES * part * plan.shape.seq_len * kept
    counted_flops = plan.flops / plan.train_steps * part / plan.batch_size / parts.model
    computing = counted_flops / chip.peak_flops_per_second
    again = _WITH_FORWARD_AGAIN if compute.recompute else 1.0
    step = max(again * computing, moved / chip.memory_bytes_per_second)
    mfu = plan.flops / plan.train_steps / devices / chip.peak_flops_per_second / step
    return Roofline(seconds=plan.train_steps * step, mfu=mfu)


Basis = Literal["recorded", "file", "peak"]
"""Source of a time: recorded runs of the ladder, `sustained_flops_per_second`, or the accelerator's peak (a lower bound)."""
_HOUR = 3600
_OTHER_NAMES_IN_JAX = {"TPU v5": "v5p"}


@dataclass(frozen=True, kw_only=True)
class RecordedRun:
    """Speed of a recorded run: its size, the FLOPs of the steps that it trained itself, seconds and devices."""

    rung: RungKey
    """Key of the rung, as a plan has it."""
    active_params: int
    flops: float
    step_seconds: float
    wall_seconds: float
    ended: float
    """POSIX time of its end."""
    device_kind: str
    device_count: int
    is_timed: bool = True
    """False if several processes trained the run, since the record has the seconds of the last one."""

    @property
    def flops_per_second(self) -> float:
        """FLOP/s in steps, without compilation and evaluation."""
        return self.flops / self.step_seconds

    @property
    def overhead_seconds(self) -> float:
        """Seconds outside of steps: compilation, evaluation, checkpoints."""
        return max(self.wall_seconds - self.step_seconds, 0.0)


@dataclass(frozen=True, kw_only=True)
class RunTime:
    """Time of a run on all of the hardware, its MFU and its cost; from peak speed, time and cost at least and MFU at most."""

    seconds: float
    basis: Basis
    mfu: float | None
    cost: float | None

    def part(self, share: float) -> RunTime:
        """Return the time and cost of a share of the run's steps."""
        return replace(self, seconds=self.seconds * share, cost=None if self.cost is None else self.cost * share)

    @property
    def document(self) -> dict[str, Any]:
        """The numbers by name, as JSON has them; bounds are named as such."""
        at_least, at_most = ("_at_least", "_at_most") if self.basis == "peak" else ("", "")
        found = {f"seconds{at_least}": self.seconds, f"mfu{at_most}": self.mfu, f"cost{at_least}": self.cost}
        return {name: value for name, value in found.items() if value is not None} | {"time_from": self.basis}

    @property
    def cells(self) -> dict[str, str]:
        """The numbers as cells of a table, by heading."""
        least, most = ("min. ", "max. ") if self.basis == "peak" else ("", "")
        cells = {f"{least}time": format_duration(self.seconds)}
        if self.mfu is not None:
            cells[f"{most}MFU"] = f"{self.mfu:.0%}"
        if self.cost is not None:
            cells[f"{least}cost"] = f"{self.cost:,.2f}"
        return cells


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Speed of a ladder's hardware, as far as known."""

    file: LadderFile
    recorded: tuple[RecordedRun, ...] = ()
    """Recorded runs on the hardware of the file."""

    @cached_property
    def at_a_time(self) -> float:
        """Runs that train side by side: as many as the file says, else the mean of the recorded ones."""
        stated = self.file.hardware.runs_at_a_time
        spans = [(run.ended - run.wall_seconds, run.ended) for run in self.recorded]
        return overlap(spans) if stated == "cores" else float(stated)

    def time_of(self, plan: RungPlan) -> RunTime | None:
        """Return the time of a run that shares the hardware with others, `at_a_time`; None if no speed is known."""
        alone = self.time_alone(plan)
        return alone if alone is None or alone.basis == "file" else alone.part(1 / self.at_a_time)

    def time_alone(self, plan: RungPlan) -> RunTime | None:
        """Return the time of a run by itself; None if no speed is known.

        Recorded runs give FLOP/s by active parameters (interpolated between sizes, and constant beyond them) and the seconds
        outside of steps: the median for this size, or the most of any run for a size without a record, which compiles anew.
        """
        hardware = self.file.hardware
        if self.recorded:
            size = plan.shape.params_active
            rate = self.flops_per_second(size)
            same_size = [run.overhead_seconds for run in self.recorded if run.active_params == size]
            overhead = median(same_size) if same_size else max(run.overhead_seconds for run in self.recorded)
            return self.timed(plan.flops / rate + overhead, "recorded", mfu=self._mfu(rate))
        if hardware.sustained_flops_per_second is not None:
            return self.timed(plan.flops / hardware.sustained_flops_per_second, "file")
        least = roofline(plan, self.file.compute, hardware)
        return None if least is None else self.timed(least.seconds, "peak", mfu=least.mfu)

    def time_taken(self, run: RecordedRun) -> RunTime:
        """Return the time of a recorded run, as its share of the hardware."""
        return self.timed(run.wall_seconds / self.at_a_time, "recorded", mfu=self._mfu(run.flops_per_second))

    def recorded_range(self) -> tuple[float, float]:
        """Return the least and the largest FLOP/s of a recorded run."""
        rates = [run.flops_per_second for run in self.recorded]
        return min(rates), max(rates)

    def timed(self, seconds: float, basis: Basis, *, mfu: float | None = None) -> RunTime:
        """Return so many seconds of all the hardware, with their cost if the file has a price."""
        price = self.file.hardware.cost_per_hour
        return RunTime(seconds=seconds, basis=basis, mfu=mfu, cost=None if price is None else seconds / _HOUR * price)

    def flops_per_second(self, active_params: int) -> float:
        """Return the FLOP/s of a run of this size, from recorded runs."""
        by_size: dict[int, list[float]] = {}
        for run in self.recorded:
            by_size.setdefault(run.active_params, []).append(math.log(run.flops_per_second))
        sizes = sorted(by_size)
        means = [sum(by_size[size]) / len(by_size[size]) for size in sizes]
        return float(np.exp(np.interp(math.log(active_params), np.log(sizes), means)))

    def _mfu(self, rate: float) -> float | None:
        hardware = self.file.hardware
        return None if hardware.chip is None else rate / (hardware.per_run.devices * hardware.chip.peak_flops_per_second)


def speed_of(file: LadderFile, runs: Sequence[RecordedRun]) -> Speed:
    """Return the speed of a ladder, from those of its recorded runs that used the file's hardware.

    Without an accelerator in the file, these are the runs on the kind and number of devices of the newest one.
    """
    timed = [run for run in runs if run.is_timed and run.step_seconds > 0]
    if file.hardware.chip is not None:
        same = [run for run in timed if _is_on(run, file.hardware)]
    else:
        newest = max(timed, key=lambda run: run.ended, default=None)
        same = [run for run in timed if newest and _devices(run) == _devices(newest)]
    return Speed(file=file, recorded=tuple(same))


def overlap(spans: Sequence[tuple[float, float]]) -> float:
    """Return the mean number of spans (start, end) at a moment that any of them covers; 1 if none has a length.

    >>> overlap([(0, 10), (0, 10), (10, 20)])
    1.5
    """
    covered, until = 0.0, -math.inf
    for start, end in sorted(spans):
        covered += max(end - max(start, until), 0.0)
        until = max(until, end)
    return sum(end - start for start, end in spans) / covered if covered else 1.0


def _is_on(run: RecordedRun, hardware: Hardware) -> bool:
    kind, chip = accelerator(_OTHER_NAMES_IN_JAX.get(run.device_kind, run.device_kind)), hardware.chip
    return kind is not None and chip is not None and kind.kind == chip.kind and run.device_count == hardware.per_run.devices


def _devices(run: RecordedRun) -> tuple[str, int]:
    return run.device_kind, run.device_count
