"""What a machine's name means: cores or chips, and the dense peak of one chip."""

import pytest

from marin_scaling.speedrun.hardware import ACCELERATORS, accelerator, machine


@pytest.mark.parametrize(
    ("name", "count", "chips", "tera"),
    [
        ("v5p-32", 1, 16, 459),  # Google Cloud: v5p names TensorCores, two a chip
        ("v4-128", 1, 64, 275),
        ("v5litepod-64", 1, 64, 197),  # v5e names chips
        ("v6e-8", 1, 8, 918),
        ("v5p-8", 2, 8, 459),
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


def test_every_kind_says_who_says_so() -> None:
    """And is found by its own name, in any case."""
    for kind, each in ACCELERATORS.items():
        assert accelerator(kind.upper()) is each
        assert each.source
