"""Runs whose FLOPs, sizes or epochs do not go with the others'."""

from pathlib import Path

import numpy as np
import pytest

from marin_scaling.run.audit import audit_sizes
from marin_scaling.run.table import read_run_table

DELPHI = Path(__file__).parents[3] / "runs" / "delphi"


def sizes(**changes):
    """The Delphi ladder's sizes, with some numbers changed: {column: {position: factor}}."""
    frame = read_run_table(DELPHI).frame
    columns = {name: frame[name].to_numpy().copy() for name in ("flops", "params", "tokens")}
    for name, factors in changes.items():
        for position, factor in factors.items():
            columns[name][position] *= factor
    return audit_sizes(frame["run"].tolist(), **columns)


def test_a_sound_ladder_raises_no_doubt():
    """81 runs, three of them with more than 250 tokens per parameter."""
    audit = sizes()
    assert (audit.reasons, audit.doubts) == ({}, ())


@pytest.mark.parametrize("position", [0, 17, 40, 80])
def test_forward_flops_among_training_flops_are_left_out(position):
    """As in sweeps whose names carry a third of what a run cost."""
    audit = sizes(flops={position: 1 / 3})
    assert list(audit.reasons) == [position]
    assert "a third of what its size and tokens cost" in audit.reasons[position]


def test_runs_counted_with_another_output_layer_are_doubted():
    """Two runs of one shape, one counted without the output layer: 20 % fewer FLOPs a token."""
    params = read_run_table(DELPHI).frame["params"].to_numpy()
    values, counts = np.unique(params, return_counts=True)
    position = int(np.flatnonzero(params == values[counts >= 3][0])[0])
    (doubt,) = sizes(flops={position: 0.8}).doubts
    assert "FLOPs a token differ between runs of one size" in doubt


def test_a_digit_too_many_in_tokens_and_flops_is_doubted_by_its_ratio():
    """A million times the tokens: the FLOPs agree, the ratio does not."""
    (doubt,) = sizes(tokens={5: 1e6}, flops={5: 1e6}).doubts
    assert "tokens per parameter lie ten times or more beyond all others'" in doubt


def test_forward_flops_throughout_are_doubted():
    """A table of one kind is no contradiction in itself; against 6 N D it is."""
    (doubt,) = sizes(flops=dict.fromkeys(range(81), 1 / 3)).doubts
    assert "forward passes only (then multiply by three)" in doubt


@pytest.mark.parametrize(("factor", "share"), [(1e-6, "1e-06"), (1e15, "1e+15")])
def test_flops_in_another_unit_are_doubted(factor, share):
    """Millions of FLOPs, or FLOPs where petaFLOPs were meant: every law fits them as well, and a budget means another one."""
    (doubt,) = sizes(flops=dict.fromkeys(range(81), factor)).doubts
    assert f"FLOPs are {share} of 6 x parameters x tokens in the median run" in doubt


def test_swapped_columns_are_doubted():
    """6 N D does not tell; tokens per parameter does."""
    frame = read_run_table(DELPHI).frame
    columns = {name: frame[name].to_numpy() for name in ("flops", "params", "tokens")}
    columns["params"], columns["tokens"] = columns["tokens"], columns["params"]
    doubts = audit_sizes(frame["run"].tolist(), **columns).doubts
    assert any("columns of parameters and tokens swapped" in doubt for doubt in doubts)


def test_repeated_data_is_said():
    """Epochs beyond the first, with the largest of them."""
    three = np.array([1e18, 2e18, 4e18])
    audit = audit_sizes(list("abc"), flops=three, params=np.full(3, 1e8), tokens=three / 6e8, epochs=np.array([1, 2, 5.0]))
    assert "more than one epoch, up to 5, in b, c" in audit.doubts[0]


def test_a_hundred_thousand_runs_and_none_are_audited():
    """Neither very many runs nor none at all are an error."""
    many = np.random.default_rng(0).uniform(1, 2, size=(3, 100_000))
    audit_sizes([str(n) for n in range(100_000)], flops=6 * many[0] * many[1], params=many[0], tokens=many[1])
    assert audit_sizes([], flops=np.array([]), params=np.array([]), tokens=np.array([])).doubts == ()
