"""Accelerators and named machines: peak speed, memory and its bandwidth, for hardware FLOPs, MFU and what fits.

Peaks are dense bfloat16 per chip, from the vendor's data sheet, as are memory and bandwidth. Where a chip is sold with several
memories, the table has the largest common one (A100 80 GB, V100 32 GB), or that of the server board (B200, B300). The number in
a TPU slice's name counts cores in early generations, chips in later ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

_TERA, _GIGA = 1e12, 1e9


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """Kind of chip: dense peak FLOP/s, memory and its bandwidth of one chip, cores per chip in slice names, and the source."""

    kind: str
    peak_flops_per_second: float
    memory_bytes: float
    memory_bytes_per_second: float
    cores_per_chip: int = 1
    """Count per chip in the name of a slice: 2 if the name counts cores."""
    devices_per_chip: int = 1
    """Devices as which a chip is used: 2 for two dies with a memory of their own."""
    dtype: str = "bfloat16"
    source: str

    @property
    def is_tpu(self) -> bool:
        """Return True for a TPU, which a run has as a slice."""
        return self.source.startswith("Google")

    @property
    def device(self) -> Accelerator:
        """The share of one device in a chip: of its speed, memory and bandwidth.

        >>> ACCELERATORS["tpu7x"].device.memory_bytes / 1e9
        96.0
        """
        parts = self.devices_per_chip
        return replace(
            self,
            peak_flops_per_second=self.peak_flops_per_second / parts,
            memory_bytes=self.memory_bytes / parts,
            memory_bytes_per_second=self.memory_bytes_per_second / parts,
            devices_per_chip=1,
        )


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Chips of one kind."""

    accelerator: Accelerator
    chips: int
    named_count: int
    """Number in the name, which counts cores for early TPU slices."""
    is_slice: bool = False
    """True if the name contains the number of chips, like v5p-32 and unlike h100."""

    @property
    def peak_flops_per_second(self) -> float:
        """Peak of all chips together."""
        return self.chips * self.accelerator.peak_flops_per_second


def _chip(kind: str, tera: float, giga: float, tera_bytes: float, **more: Any) -> Accelerator:
    return Accelerator(
        kind=kind,
        peak_flops_per_second=tera * _TERA,
        memory_bytes=giga * _GIGA,
        memory_bytes_per_second=tera_bytes * _TERA,
        **more,
    )


def _nvidia(kind: str, *numbers: float, sheet: str, dtype: str = "bfloat16", form: str = "data sheet") -> Accelerator:
    return _chip(kind, *numbers, dtype=dtype, source=f"NVIDIA {sheet} {form}")


def _geforce(kind: str, *numbers: float, sheet: str) -> Accelerator:
    return _nvidia(kind, *numbers, sheet=sheet, form="architecture white paper")


def _amd(kind: str, *numbers: float, **more: Any) -> Accelerator:
    return _chip(kind, *numbers, source=f"AMD Instinct {kind.upper()} data sheet", **more)


def _tpu(kind: str, *numbers: float, **more: Any) -> Accelerator:
    return _chip(kind, *numbers, source=f"Google Cloud documentation, TPU {kind}", **more)


ACCELERATORS: Mapping[str, Accelerator] = {
    each.kind: each
    for each in (
        _tpu("v3", 123, 32, 0.9, cores_per_chip=2, devices_per_chip=2),
        _tpu("v4", 275, 32, 1.2, cores_per_chip=2),
        _tpu("v5e", 197, 16, 0.8),
        _tpu("v5p", 459, 95, 2.765, cores_per_chip=2),
        _tpu("v6e", 918, 32, 1.6),
        _tpu("tpu7x", 2307, 192, 7.38, devices_per_chip=2),
        _nvidia("gb300", 2500, 279, 8, sheet="GB300 NVL72"),
        _nvidia("gb200", 2500, 186, 8, sheet="GB200 NVL72"),
        _nvidia("b300", 2250, 270, 7.7, sheet="HGX B300"),
        _nvidia("b200", 2250, 180, 7.7, sheet="HGX B200"),
        _nvidia("b100", 1750, 180, 8, sheet="HGX B100"),
        _nvidia("gh200", 989.5, 96, 4, sheet="GH200"),
        _nvidia("h200", 989.5, 141, 4.8, sheet="H200"),
        _nvidia("h100", 989.5, 80, 3.35, sheet="H100 SXM"),
        _nvidia("h100-nvl", 835.5, 94, 3.9, sheet="H100 NVL"),
        _nvidia("h100-pcie", 756.5, 80, 2, sheet="H100 PCIe"),
        _nvidia("h20", 148, 96, 4, sheet="H20"),
        _nvidia("a100", 312, 80, 2.039, sheet="A100"),
        _nvidia("a40", 149.7, 48, 0.696, sheet="A40"),
        _nvidia("a30", 165, 24, 0.933, sheet="A30"),
        _nvidia("a10", 125, 24, 0.6, sheet="A10"),
        _nvidia("a10g", 70, 24, 0.6, sheet="A10G"),
        _nvidia("a6000", 154.85, 48, 0.768, sheet="RTX A6000"),
        _nvidia("rtx6000ada", 364.25, 48, 0.96, sheet="RTX 6000 Ada"),
        _nvidia("rtxpro6000", 503.8, 96, 1.792, sheet="RTX PRO 6000 Blackwell"),
        _nvidia("l40s", 362, 48, 0.864, sheet="L40S"),
        _nvidia("l40", 181, 48, 0.864, sheet="L40"),
        _nvidia("l4", 121, 24, 0.3, sheet="L4"),
        _nvidia("v100", 125, 32, 0.9, sheet="V100", dtype="float16"),
        _nvidia("t4", 65, 16, 0.32, sheet="T4", dtype="float16"),
        _geforce("rtx5090", 209.5, 32, 1.792, sheet="RTX Blackwell"),
        _geforce("rtx5080", 112.6, 16, 0.96, sheet="RTX Blackwell"),
        _geforce("rtx4090", 165.2, 24, 1.008, sheet="Ada"),
        _geforce("rtx4080", 97.5, 16, 0.717, sheet="Ada"),
        _geforce("rtx3090ti", 80, 24, 1.008, sheet="Ada"),
        _geforce("rtx3090", 71, 24, 0.936, sheet="Ampere GA102"),
        _geforce("rtx3080", 59.5, 10, 0.76, sheet="Ampere GA102"),
        _amd("mi325x", 1307.4, 256, 6),
        _amd("mi300x", 1307.4, 192, 5.3),
        _amd("mi250x", 383, 128, 3.277, devices_per_chip=2),
    )
}
_OTHER_NAMES = {
    "v5litepod": "v5e",
    "v5lite": "v5e",
    "v6": "v6e",
    "v6lite": "v6e",
    "7x": "tpu7x",
    "v7x": "tpu7x",
    "ironwood": "tpu7x",
    "a100pcie": "a100",
    "rtxa6000": "a6000",
    "rtxpro6000blackwell": "rtxpro6000",
    "v100pcie": "v100",
}
_MEMORY = re.compile(r"\b\d+\s*gi?b?\b")
_IN_A_NAME = re.compile(
    r"nvidia|geforce|tesla|quadro|amd|instinct|google|cloud|tpu|gpu|generation|workstation|server|edition|sxm\d?|hbm\d?e?"
)
_SLICE = re.compile(r"(?:(\d+)\s*[x*]\s*)?(?:tpu[\s_-]*)?(v[3-6][a-z]*)-(\d+)")


def accelerator(name: str) -> Accelerator | None:
    """Return the kind of chip of that name, in any case; None if it is not listed.

    >>> [accelerator(name).kind for name in ("NVIDIA A100-SXM4-80GB", "NVIDIA H100 PCIe", "RTX 3090", "TPU v5 lite")]
    ['a100', 'h100-pcie', 'rtx3090', 'v5e']
    """
    words = re.findall(r"[a-z0-9]+", _MEMORY.sub(" ", name.lower().replace("_", " ")))
    plain = "".join(word for word in words if not _IN_A_NAME.fullmatch(word))
    for spelling in (plain, f"rtx{plain}"):
        found = _BY_PLAIN_NAME.get(_OTHER_NAMES.get(spelling, spelling))
        if found is not None:
            return found
    return None


_BY_PLAIN_NAME = {kind.replace("-", ""): each for kind, each in ACCELERATORS.items()}


def variants(kind: str) -> list[Accelerator]:
    """Return the other GPUs of the same model, with another socket or from another cloud.

    >>> [each.kind for each in variants("h100")], [each.kind for each in variants("a10g")]
    (['h100-nvl', 'h100-pcie'], ['a10'])
    """
    model = _gpu_model(kind)
    return [each for name, each in ACCELERATORS.items() if model and name != kind and _gpu_model(name) == model]


def _gpu_model(kind: str) -> str | None:
    found = re.match(r"[a-uw-z]+\d+(?=-|g?$)", kind)
    return found[0] if found else None


def machine(name: str, *, count: int = 1, peak_flops_per_second: float | None = None) -> Machine | None:
    """Return the machine of a name: `count` slices like "v5p-32" (16 chips), or `count` chips; None for an unlisted one.

    >>> machine("v5p-32").chips, machine("2 x v5p-32").chips, machine("v5litepod-64").chips, machine("H200", count=8).chips
    (16, 32, 64, 8)
    """
    match = _SLICE.fullmatch(name.strip().lower())
    found = accelerator(match[2] if match else name)
    if peak_flops_per_second:
        found = replace(
            found or _chip(name.strip().lower(), 0.0, 0.0, 0.0, source=""),
            peak_flops_per_second=peak_flops_per_second,
            source="stated by the user",
        )
    if found is None:
        return None
    named = int(match[3]) * int(match[1] or 1) * count if match else count
    chips = named // found.cores_per_chip if match else count
    return Machine(accelerator=found, chips=max(chips, 1), named_count=named, is_slice=match is not None)
