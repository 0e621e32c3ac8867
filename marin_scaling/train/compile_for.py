"""Compile a ladder's programs for a TPU slice that this machine does not have: what fits, FLOPs and least time of a step."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marin_scaling.accelerators import Accelerator, accelerator
from marin_scaling.canonical_json import digest_of
from marin_scaling.errors import Finding, TrainingFailed, UsageError, error, missing_extra
from marin_scaling.files import read_own_bytes
from marin_scaling.ladder.config import ONE_AXIS, Mesh
from marin_scaling.ladder.fit_check import changed_settings, mesh_product, milder, training_memory_bytes, uneven_sizes
from marin_scaling.ladder.plan import TARGET, expected_target
from marin_scaling.printable import wrapped
from marin_scaling.run.plan import LoadedLadder, as_list, spec_on_data
from marin_scaling.run.spec import DataSpec, RunSpec
from marin_scaling.run.store import Workplace
from marin_scaling.train.environment import package_versions
from marin_scaling.units import counted, format_bytes, format_duration, format_flops
from marin_scaling.untrusted_files import child_environment, python_module

if TYPE_CHECKING:
    import pandas as pd

    from marin_scaling.ladder.config import Compute
    from marin_scaling.recipe.base import RungPlan

_DIRECTIONS = {"v4": 3, "v5p": 3, "tpu7x": 3, "v5e": 2, "v6e": 2}
"""Directions in which the chips of a slice are connected."""
_TOPOLOGY = re.compile(r"[1-9]\d{0,2}(x[1-9]\d{0,2}){1,2}")
_QUOTED_LINES = 8  # of the log of a failed compilation
_LONG_STEP = 10.0


@dataclass(frozen=True, kw_only=True)
class DescribedSlice:
    """A TPU slice: kind and number of its chips, and the mesh of a run on it."""

    name: str
    """Kind and topology, such as v5p:2x2x4."""
    chip: Accelerator
    chips: int
    mesh: Mesh = ONE_AXIS

    @property
    def devices(self) -> int:
        """Number of devices, over which the batch is spread."""
        return self.chips * self.chip.devices_per_chip

    @property
    def memory_bytes(self) -> float:
        """Memory of one device."""
        return self.chip.device.memory_bytes

    def least_seconds(self, *, flops: float, moved_bytes: float) -> float:
        """Return the time in which one device can compute these FLOPs, and move these bytes to and from its memory."""
        device = self.chip.device
        return max(flops / device.peak_flops_per_second, moved_bytes / device.memory_bytes_per_second)


def described_slice(name: str, *, mesh: Mesh = ONE_AXIS) -> DescribedSlice:
    """Return the slice of a name such as v5p:2x2x4; `UsageError` for another form.

    >>> found = described_slice("v5p:2x2x4")
    >>> found.chip.kind, found.devices
    ('v5p', 16)
    """
    kind, _, topology = name.strip().lower().partition(":")
    chip = accelerator(kind) if kind else None
    sides = [int(side) for side in topology.split("x")] if _TOPOLOGY.fullmatch(topology) else []
    if chip is None or len(sides) != _DIRECTIONS.get(chip.kind) or not _is_of_whole_hosts(sides):
        smallest = ", ".join(f"{each}:{'2x2x1'[: 2 * count - 1]}" for each, count in _DIRECTIONS.items())
        raise UsageError(
            f"{name!r} is not a TPU slice that can be described.",
            why="A slice is named by chips in each direction, not by cores (v5p-8). It is one chip, or its first two numbers "
            "are even, because a host has 2x2 chips.",
            fix=f"Name the kind of chip and the chips in each direction, such as v5p:2x2x4. Kinds, with one host: {smallest}.",
        )
    return DescribedSlice(name=f"{chip.kind}:{topology}", chip=chip, chips=math.prod(sides), mesh=mesh)


def _is_of_whole_hosts(sides: Sequence[int]) -> bool:
    return math.prod(sides) == 1 or all(side % 2 == 0 for side in sides[:2])


@dataclass(frozen=True, kw_only=True)
class CompiledShape:
    """Runs of one shape, and the numbers of their compiled programs on each device."""

    runs: tuple[str, ...]
    """BUDGET/WIDTH of each run, and `target`."""
    batch_size: int
    needed_bytes: float
    """Bytes of the training step, or of the evaluation with the training state, whichever is more: arguments, outputs that do
    not reuse their memory, and temporaries. If XLA refused the program, the bytes that XLA counted."""
    available_bytes: float
    """Memory of a device, or XLA's limit if XLA refused the program."""
    estimated_bytes: float
    """Estimate of `ladder --dry-run`."""
    counted_flops: float
    """FLOPs of a step on each device, as the plan counts them."""
    xla_flops: float | None
    """FLOPs of a step as XLA counts them: without Pallas kernels, and with one pass of each loop. None if XLA gives none."""
    step_seconds_at_least: float | None
    """Least time of a step: counted FLOPs at the peak, or XLA's bytes of memory traffic at the bandwidth. None if refused."""
    compile_seconds: float
    remedy: str
    """Settings with which the shape fits by estimate; empty if it fits."""

    @property
    def fits(self) -> bool:
        """Return True if the programs fit into the memory of a device."""
        return self.needed_bytes <= self.available_bytes

    @property
    def name(self) -> str:
        """First run of this shape, and the number of others; the target is always named."""
        first, *others = sorted(self.runs, key=lambda run: run != TARGET)
        return f"{first} +{len(others)}" if others else first


@dataclass(frozen=True, kw_only=True, repr=False)
class CompiledLadder:
    """The shapes of a ladder, compiled for a slice; printing one shows the table of `marin-scale ladder --compile-for`."""

    slice: DescribedSlice
    shapes: tuple[CompiledShape, ...]

    @property
    def frame(self) -> pd.DataFrame:
        """One row per shape: runs, batch, bytes needed, available and estimated, fits, FLOPs, least time, compile time."""
        import pandas as pd

        return pd.DataFrame(self._rows())

    @property
    def document(self) -> dict[str, Any]:
        """JSON document of slice, shapes and findings."""
        about = {"slice": self.slice.name, "devices": self.slice.devices, "memory_bytes": self.slice.memory_bytes}
        about |= {} if self.slice.mesh == ONE_AXIS else {"mesh": self.slice.mesh.over(self.slice.devices).model_dump()}
        return {**about, "shapes": self._rows(), "findings": [vars(finding) for finding in self.findings]}

    def _rows(self) -> list[dict[str, Any]]:
        return [{**vars(shape), "runs": list(shape.runs), "fits": shape.fits} for shape in self.shapes]

    @property
    def fits(self) -> bool:
        """Return True if all shapes fit into the memory of a device."""
        return all(shape.fits for shape in self.shapes)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """One error for each shape that does not fit, with both numbers and a remedy."""
        return tuple(
            error(
                "memory",
                shape.name,
                f"{_bytes(shape.needed_bytes)} needed on each device of {self.slice.name}, which has "
                f"{_bytes(shape.available_bytes)}; {shape.remedy}",
            )
            for shape in self.shapes
            if not shape.fits
        )

    def __repr__(self) -> str:
        rows = [_cells(shape) for shape in self.shapes]
        columns = {name: max(len(name), *(len(row[name]) for row in rows)) for name in rows[0]}
        heads = {name: name for name in columns}
        lines = ["  ".join(_aligned(name, row[name], width) for name, width in columns.items()) for row in (heads, *rows)]
        return "\n".join([*lines, "", *map(wrapped, self._notes()), *(wrapped(each.line) for each in self.findings)])

    def _notes(self) -> Iterator[str]:
        place = self.slice
        mesh = "" if place.mesh == ONE_AXIS else f" ({place.mesh.over(place.devices)})"
        yield (
            f"{place.name}: {counted(place.devices, 'device')}{mesh}, {format_bytes(place.memory_bytes)} of memory on each. "
            "All numbers are per device; the estimate is that of --dry-run."
        )
        yield "XLA's FLOPs leave out Pallas kernels, and count one pass of each loop (parts of a batch, scanned layers)."


def _cells(shape: CompiledShape) -> dict[str, str]:
    return {
        "runs": shape.name,
        "batch": str(shape.batch_size),
        "memory": format_bytes(shape.needed_bytes),
        "estimate": format_bytes(shape.estimated_bytes),
        "fits": "yes" if shape.fits else "no",
        "FLOPs": format_flops(shape.counted_flops),
        "by XLA": "" if shape.xla_flops is None else format_flops(shape.xla_flops),
        "step >=": "" if shape.step_seconds_at_least is None else _short_time(shape.step_seconds_at_least),
        "compiled": format_duration(shape.compile_seconds),
    }


def _short_time(seconds: float) -> str:
    """Format the time of a step.

    >>> _short_time(0.012345), _short_time(9.9), _short_time(210.0)
    ('12.3 ms', '9.9 s', '3 min 30 s')
    """
    if seconds > _LONG_STEP:
        return format_duration(seconds)
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def _aligned(column: str, cell: str, width: int) -> str:
    return cell.ljust(width) if column == "runs" else cell.rjust(width)


def _bytes(count: float) -> str:
    return f"{count / 1e9:.4g} GB"


def compile_for(
    ladder: LoadedLadder, name: str, *, only: Sequence[str], place: Workplace, on_message: Callable[[str], object]
) -> CompiledLadder:
    """Compile each distinct shape of a ladder for a slice, several at a time; compiled shapes are cached under `place`.

    `UsageError` for an unknown slice or a batch that its devices cannot share; `MissingExtra` without the extra `tpu`.
    """
    wanted = described_slice(name, mesh=ladder.ladder.file.hardware.per_run.mesh)
    shapes = _shapes(ladder, as_list(only))
    _require_even(shapes, wanted)
    reports = _reports([spec for spec, _, _ in shapes], wanted, place=place, on_message=on_message)
    found = [_compiled_shape(*shape, wanted, report) for shape, report in zip(shapes, reports, strict=True)]
    return CompiledLadder(slice=wanted, shapes=tuple(found))


_ANY_TEXT = DataSpec(source="any", digest="0" * 64, train_bytes=1, validation_bytes=1)
"""Text on which programs do not depend, so that it need not be here."""
_Shape = tuple[RunSpec, "RungPlan", list[str]]


def _shapes(ladder: LoadedLadder, only: Sequence[str]) -> list[_Shape]:
    """Return a spec, its plan and the names of its runs for each program, in the ladder's order and with the target last."""
    rungs = [each for each in only if each != TARGET]
    plans = [(rung.plan, "") for rung in ladder.plan(rungs).rungs] if rungs or not only else []
    if TARGET in only or not only:
        plans.append((expected_target(ladder.ladder), TARGET))
    file, found = ladder.ladder.file, dict[str, _Shape]()
    for plan, name in plans:
        spec = spec_on_data(file, plan, ladder=file.name, role="rung", seed=file.seeds[0], data=_ANY_TEXT)
        runs = found.setdefault(spec.program_digest, (spec, plan, []))[2]
        runs += {name or spec.rung_name} - set(runs)
    return list(found.values())


def _require_even(shapes: Sequence[_Shape], wanted: DescribedSlice) -> None:
    """Raise `UsageError` for a mesh of other devices, with a run of each size that its axes cannot share."""
    wrong = mesh_product(wanted.mesh, devices=wanted.devices)
    uneven = {f"hardware.per_run.mesh: {wrong}": ""} if wrong else {}
    for _, plan, (run, *_) in shapes:
        for kind, size in uneven_sizes(plan, wanted.mesh, devices=wanted.devices):
            uneven.setdefault(kind.sentence([size]), f"{run}: ")
    if uneven:
        raise UsageError(
            tuple(f"{run}{what} of {wanted.name}." for what, run in uneven.items()),
            why="A batch is spread by sequences, and parameters by the width of the model.",
            fix=f"Choose another slice or mesh, or compile only other runs: --only BUDGET, --only {TARGET}.",
        )


def _reports(
    specs: Sequence[RunSpec], wanted: DescribedSlice, *, place: Workplace, on_message: Callable[[str], object]
) -> list[Mapping[str, Any]]:
    """Return XLA's report of each spec, from the cache or compiled in processes; half of the cores compile at a time."""
    library = _compiler()
    paths = [_report_path(spec, wanted, place) for spec in specs]
    missing = [(spec, path) for spec, path in zip(specs, paths, strict=True) if _report(path) is None]

    def compile_one(number: int) -> None:
        spec, path = missing[number]
        on_message(f"compiling {number + 1} of {len(missing)}: {spec.rung_name}, {spec.recipe_model.num_layers} layers")
        _compile(spec, wanted, path, library=library)

    at_a_time = max(1, len(os.sched_getaffinity(0)) // 2)
    with ThreadPoolExecutor(at_a_time) as threads:
        try:
            list(threads.map(compile_one, range(len(missing))))
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            raise
    return [_report(path) or {} for path in paths]


def _compiler() -> Path:
    """Return the path of the TPU compiler; `MissingExtra` without it."""
    if importlib.util.find_spec("levanter") is None:
        raise missing_extra("train", needed_for="compiling for a TPU")
    found = importlib.util.find_spec("libtpu")
    if found is None or found.origin is None:
        raise missing_extra("tpu", needed_for="compiling for a TPU")
    return Path(found.origin).parent / "libtpu.so"


def _report_path(spec: RunSpec, wanted: DescribedSlice, place: Workplace) -> Path:
    """Return the path of a cached report, named by program, slice and versions of packages."""
    versions = {**package_versions(), "libtpu": version("libtpu")}
    about = {"program": spec.program_digest, "slice": wanted.name, "versions": versions}
    key = digest_of(about | ({} if wanted.mesh == ONE_AXIS else {"mesh": wanted.mesh.model_dump()}))
    return place.work_root / "compiled-for" / f"{key[:32]}.json"


def _report(path: Path) -> Mapping[str, Any] | None:
    """Return a cached report; None if it is missing or damaged."""
    try:
        found: Mapping[str, Any] = json.loads(read_own_bytes(path)) if path.exists() else {}
        return found if found["step"] else None
    except (ValueError, KeyError, TypeError):
        return None


def _compile(spec: RunSpec, wanted: DescribedSlice, path: Path, *, library: Path) -> None:
    """Write the report of a spec, from a process that a failure of the compiler cannot take down with this one."""
    log = path.with_suffix(".log")
    log.parent.mkdir(parents=True, exist_ok=True)
    described = {
        "JAX_PLATFORMS": "cpu",
        "TPU_LIBRARY_PATH": str(library),
        "TPU_SKIP_MDS_QUERY": "1",  # no question to the cloud about this machine
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    }
    with open(log, "wb") as stream:
        done = subprocess.run(
            [*python_module("marin_scaling.train.described_slice"), wanted.name, wanted.mesh.model_dump_json(), str(path)],
            env=child_environment(os.environ | described),
            input=spec.to_bytes(),
            stdout=stream,
            stderr=stream,
            check=False,
        )
    if done.returncode == -signal.SIGKILL:
        raise TrainingFailed(
            f"{spec.rung_name}: compiling for {wanted.name} was killed.",
            why="The system does that if the compilation needs more memory than this machine has.",
            fix="Compile on a machine with more memory, or other runs: --only BUDGET.",
        )
    if done.returncode or _report(path) is None:
        output = log.read_text(errors="replace").splitlines()[-_QUOTED_LINES:]
        raise TrainingFailed(
            (f"{spec.rung_name}: compiling for {wanted.name} ended with status {done.returncode}. Its log:", *output),
            fix=f"Read {log}, then rerun the command; compiled shapes are kept.",
        )
    log.unlink()


def _compiled_shape(
    spec: RunSpec, plan: RungPlan, runs: Sequence[str], wanted: DescribedSlice, report: Mapping[str, Any]
) -> CompiledShape:
    step, flops = report["step"], plan.flops / plan.train_steps / wanted.devices
    needed, available = _memory(report, wanted)
    moved, is_compiled = step.get("moved_bytes", 0.0), "argument_bytes" in step
    return CompiledShape(
        runs=tuple(runs),
        batch_size=spec.batch_size,
        needed_bytes=needed,
        available_bytes=available,
        estimated_bytes=_estimate(plan, spec.compute, wanted),
        counted_flops=flops,
        xla_flops=step.get("flops"),
        step_seconds_at_least=wanted.least_seconds(flops=flops, moved_bytes=moved) if is_compiled else None,
        compile_seconds=round(sum(program["seconds"] for program in report.values()), 1),
        remedy=_remedy(plan, spec.compute, wanted, excess=needed / available),
    )


def _memory(report: Mapping[str, Any], wanted: DescribedSlice) -> tuple[float, float]:
    """Return the bytes that the programs need on a device, and those that there are; XLA's if it refused a program."""
    for program in report.values():
        if "used_bytes" in program:
            return program["used_bytes"], program["limit_bytes"]
    own = [program["output_bytes"] + program["temporary_bytes"] for program in report.values()]
    return report["step"]["argument_bytes"] + max(own), wanted.memory_bytes  # the training state stays during evaluation


def _remedy(plan: RungPlan, compute: Compute, wanted: DescribedSlice, *, excess: float) -> str:
    """Return the mildest settings whose estimate is lower by the factor `excess`; empty for no excess."""
    if excess <= 1:
        return ""
    before = _estimate(plan, compute, wanted)
    for settings in milder([plan], compute, batch_parts=wanted.mesh.over(wanted.devices).batch_parts):
        if _estimate(plan, settings, wanted) * excess <= before:
            return f"set {changed_settings(compute, settings)}"
    return "use a larger slice"


def _estimate(plan: RungPlan, compute: Compute, wanted: DescribedSlice) -> float:
    return training_memory_bytes(plan, compute, devices=wanted.devices, mesh=wanted.mesh, overwrites=True)
