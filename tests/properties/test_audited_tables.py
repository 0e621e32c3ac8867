"""Audits of generated tables: a fast part of `benchmarks/audit_tables.py`."""

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import audit_tables as made

SEEDS = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize(
    "fault", [made.unit_of_a_column, made.units_of_rows, made.overflow, made.groups], ids=lambda f: f.__name__
)
@settings(max_examples=8, deadline=None)
@given(seed=SEEDS)
def test_a_fault_that_numbers_prove_is_refused_named_or_mended(fault, seed):
    """Units, overflow and kinds of runs, whatever the law, the grid and the noise."""
    assert made.is_named(fault(np.random.default_rng(seed)))


@settings(max_examples=15, deadline=None)
@given(seed=SEEDS)
def test_seeds_are_never_taken_as_a_sweep(seed):
    """The names differ; the loss does not follow them."""
    assert not made.is_swept(made.sweep(np.random.default_rng(seed), replicates=True))
