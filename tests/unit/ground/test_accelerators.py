"""What a machine's name means: cores or chips, and the dense peak of one chip."""

import pytest

from marin_scaling.accelerators import ACCELERATORS, accelerator, machine


@pytest.mark.parametrize(
    ("name", "count", "chips", "tera"),
    [
        ("v5p-32", 1, 16, 459),  # Google Cloud: v5p names TensorCores, two a chip
        ("v4-128", 1, 64, 275),
        ("v5litepod-64", 1, 64, 197),  # v5e names chips
        ("v6e-8", 1, 8, 918),
        ("v5p-8", 2, 8, 459),
        ("2 x v5p-32", 1, 32, 459),
        ("H200", 8, 8, 989.5),
        ("h100", 1, 1, 989.5),
        ("L4", 1, 1, 121),  # 242 with sparsity
    ],
)
def test_a_name_says_how_many_chips_and_how_fast(name: str, count: int, chips: int, tera: float) -> None:
    """Early TPU slices are named by cores, later ones by chips; a GPU's name says nothing of their number."""
    found = machine(name, count=count)
    assert found is not None
    assert (found.chips, found.accelerator.peak_flops_per_second) == (chips, tera * 1e12)
    assert found.peak_flops_per_second == chips * tera * 1e12


@pytest.mark.parametrize("name", ["", "v7-8", "abacus", "v5p", "cpu"])
def test_nothing_is_guessed_for_what_is_not_listed(name: str) -> None:
    """A generation without a number of chips is a kind, not a machine of many."""
    found = machine(name)
    assert found is None if name != "v5p" else found is not None and found.chips == 1


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("A100-80G", "a100"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA A100-PCIE-40GB", "a100"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("H200-141GB", "h200"),
        ("NVIDIA B200", "b200"),
        ("A10G", "a10g"),
        ("Tesla V100-SXM2-32GB", "v100"),
        ("NVIDIA RTX A6000", "a6000"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx6000ada"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtxpro6000"),
        ("NVIDIA GeForce RTX 3090", "rtx3090"),
        ("RTX3090Ti", "rtx3090ti"),
        ("4090", "rtx4090"),
        ("TPU v5 lite", "v5e"),
        ("TPU v6 lite", "v6e"),
        ("TPU v4", "v4"),
        ("TPU7x", "tpu7x"),
    ],
)
def test_a_chip_is_known_by_its_usual_spellings(name: str, kind: str) -> None:
    """As drivers, clouds and configurations give them."""
    found = accelerator(name)
    assert found is not None
    assert found.kind == kind


def test_a_stated_peak_makes_a_machine_of_any_chip() -> None:
    """And replaces that of a listed one."""
    for name in ("abacus", "h100"):
        found = machine(name, count=2, peak_flops_per_second=1e12)
        assert found is not None
        assert found.peak_flops_per_second == 2e12


def test_every_kind_says_who_says_so() -> None:
    """And is found by its own name, in any case."""
    for kind, each in ACCELERATORS.items():
        assert accelerator(kind.upper()) is each
        assert each.source
