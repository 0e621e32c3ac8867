"""Peak speeds of accelerators and chips of named machines, for hardware FLOPs and MFU.

Peaks are dense bfloat16 per chip, from the vendor's data sheet. The number in a TPU slice's name counts cores in early
generations, chips in later ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_TERA = 1e12


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """Kind of chip: dense peak FLOP/s of one chip, cores per chip in slice names, and the source."""

    kind: str
    peak_flops_per_second: float
    cores_per_chip: int = 1
    """Count per chip in the name of a slice: 2 if the name counts cores."""
    dtype: str = "bfloat16"
    source: str


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Chips of one kind."""

    accelerator: Accelerator
    chips: int
    named_count: int
    """Number in the name, which counts cores for early TPU slices."""

    @property
    def peak_flops_per_second(self) -> float:
        """Peak of all chips together."""
        return self.chips * self.accelerator.peak_flops_per_second


def _nvidia(kind: str, tera: float, sheet: str, *, dtype: str = "bfloat16") -> Accelerator:
    return Accelerator(kind=kind, peak_flops_per_second=tera * _TERA, dtype=dtype, source=f"NVIDIA {sheet} data sheet")


def _tpu(kind: str, tera: float, *, cores_per_chip: int = 1) -> Accelerator:
    source = f"Google Cloud documentation, TPU {kind}"
    return Accelerator(kind=kind, peak_flops_per_second=tera * _TERA, cores_per_chip=cores_per_chip, source=source)


ACCELERATORS: Mapping[str, Accelerator] = {
    each.kind: each
    for each in (
        _tpu("v3", 123, cores_per_chip=2),
        _tpu("v4", 275, cores_per_chip=2),
        _tpu("v5e", 197),
        _tpu("v5p", 459, cores_per_chip=2),
        _tpu("v6e", 918),
        _nvidia("h200", 989.5, "H200"),
        _nvidia("h100", 989.5, "H100 SXM"),
        _nvidia("h100-pcie", 756.5, "H100 PCIe"),
        _nvidia("a100", 312, "A100"),
        _nvidia("a40", 149.7, "A40"),
        _nvidia("a10", 125, "A10"),
        _nvidia("a6000", 154.85, "RTX A6000"),
        _nvidia("l40s", 362, "L40S"),
        _nvidia("l4", 121, "L4"),
        _nvidia("v100", 125, "V100", dtype="float16"),
        _nvidia("t4", 65, "T4", dtype="float16"),
    )
}
_OTHER_NAMES = {"v5litepod": "v5e", "v5lite": "v5e", "a10g": "a10", "v6": "v6e"}
_SLICE = re.compile(r"(v[3-6][a-z]*)-(\d+)")


def accelerator(name: str) -> Accelerator | None:
    """Return the kind of chip of that name, in any case; None if it is not listed.

    >>> accelerator("H100").peak_flops_per_second
    989500000000000.0
    """
    plain = name.strip().lower()
    return ACCELERATORS.get(_OTHER_NAMES.get(plain, plain))


def machine(name: str, *, count: int = 1) -> Machine | None:
    """Return the machine of a name: `count` slices like "v5p-32" (16 chips), or `count` chips; None if it is not listed.

    >>> machine("v5p-32").chips, machine("v5litepod-64").chips, machine("H200", count=8).chips
    (16, 64, 8)
    """
    match = _SLICE.fullmatch(name.strip().lower())
    found = accelerator(match[1] if match else name)
    if found is None:
        return None
    named = int(match[2]) * count if match else count
    chips = named // found.cores_per_chip if match else count
    return Machine(accelerator=found, chips=max(chips, 1), named_count=named)
