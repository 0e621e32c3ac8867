"""Runs whose FLOPs, sizes or epochs do not go with the others'."""

from pathlib import Path

import numpy as np
import pytest

from marin_scaling.errors import Severity
from marin_scaling.run.audit import audit_runs, audit_sizes
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
    (finding,) = sizes(tokens={5: 1e6}, flops={5: 1e6}).findings
    assert (finding.severity, finding.code) == (Severity.WARNING, "tokens-per-param")
    assert "--drop" in finding.message


def test_flops_far_below_6_n_d_lower_the_status_unless_they_rise_with_size():
    """Forward passes, or experts that a token does not pass; embeddings that are not counted weigh less in large models."""
    frame = read_run_table(DELPHI).frame
    forward = audit_runs(frame.assign(flops=frame["flops"] / 3, budget_flops=frame["budget_flops"] / 3))
    assert [(each.severity, each.code) for each in forward.findings] == [(Severity.WARNING, "flop-count")]
    assert "active_params" in forward.findings[0].message
    embeddings = 0.5
    assert audit_runs(frame.assign(flops=frame["flops"] * embeddings, budget_flops=frame["budget_flops"])).findings == ()


def test_swapped_columns_are_doubted():
    """6 N D does not tell; tokens per parameter does."""
    frame = read_run_table(DELPHI).frame
    columns = {name: frame[name].to_numpy() for name in ("flops", "params", "tokens")}
    columns["params"], columns["tokens"] = columns["tokens"], columns["params"]
    findings = audit_sizes(frame["run"].tolist(), **columns).findings
    assert [(each.severity, each.code) for each in findings] == [(Severity.ERROR, "swapped")]


@pytest.mark.parametrize(("most", "severities"), [(2, []), (16, []), (17, [Severity.WARNING])])
def test_more_than_sixteen_epochs_lower_the_status(most, severities):
    """Fewer epochs are named, too."""
    frame = read_run_table(DELPHI).frame
    audit = audit_runs(frame.assign(epochs=[1.0] * (len(frame) - 1) + [most]))
    assert [each.severity for each in audit.findings] == severities
    (said,) = [each for each in (*audit.doubts, *(f.message for f in audit.findings)) if "epoch" in each]
    assert f"up to {most}," in said
    assert str(frame["run"].iloc[-1]) in said


def test_a_hundred_thousand_runs_and_none_are_audited():
    """Neither very many runs nor none at all are an error."""
    many = np.random.default_rng(0).uniform(1, 2, size=(3, 100_000))
    audit_sizes([str(n) for n in range(100_000)], flops=6 * many[0] * many[1], params=many[0], tokens=many[1])
    assert audit_sizes([], flops=np.array([]), params=np.array([]), tokens=np.array([])).doubts == ()
