"""The published optima of the Delphi ladder, to all their digits (openathena.ai/blog/delphi)."""

from pathlib import Path

import numpy as np
import pytest
from known_figures import DELPHI_OPTIMA

from marin_scaling.fitting.fit import fit
from marin_scaling.laws import frontier_loss
from marin_scaling.run.table import read_run_table

DELPHI = Path(__file__).parents[2] / "runs" / "delphi"


@pytest.fixture(scope="module")
def delphi():
    return fit(read_run_table(DELPHI))


def test_the_seven_published_quadratics_come_out_to_ten_digits(delphi):
    """Coefficients, optimal tokens and optimal loss: an ordinary least-squares fit has one answer."""
    for bowl, (budget, runs, a, b, c, tokens, _, loss) in zip(delphi.bowls, DELPHI_OPTIMA, strict=True):
        assert bowl.run_count == runs
        assert bowl.flops == pytest.approx(budget, rel=1e-5)  # runs are off their nominal budget by up to 1.4e-5
        assert (bowl.a, bowl.b, bowl.c) == pytest.approx((a, b, c), rel=1e-10)
        assert (bowl.optimal_tokens, bowl.optimal_loss) == pytest.approx((tokens, loss), rel=1e-10)


def test_the_published_optimal_sizes_come_out_to_the_last_parameter(delphi):
    """N* is published rounded to whole parameters."""
    assert [round(bowl.optimal_params) for bowl in delphi.bowls] == [row[6] for row in DELPHI_OPTIMA]


def test_the_free_asymptote_and_its_forecasts_are_those_known_for_the_seven_optima(delphi):
    """E = 1.709, gamma = .1015; 2.7491, 2.5323 and 2.3607 at 1e21 to 1e23: computed by others from the same optima."""
    assert pytest.approx(1.709, abs=1e-3) == delphi.law.E
    assert delphi.law.gamma == pytest.approx(0.1015, abs=1e-4)
    known = [2.7491, 2.5323, 2.3607]
    assert frontier_loss(delphi.law, flops=[1e21, 1e22, 1e23]) == pytest.approx(known, abs=1.1e-4)


def test_all_81_runs_are_used(delphi):
    """None diverged, none is a duplicate; the three over-trained ones are in, as published."""
    assert len(delphi.frame) == 81
    assert delphi.excluded == ()
    assert delphi.frame["flops"].dtype == np.float64
