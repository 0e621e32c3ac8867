"""The published optima of the Delphi ladder, to all their digits (openathena.ai/blog/delphi)."""

from pathlib import Path

import numpy as np
import pytest

from marin_scaling.fit.fit_runs import fit
from marin_scaling.laws import frontier_loss
from marin_scaling.run.run_table import read_run_table

DELPHI = Path(__file__).parents[2] / "runs" / "delphi"

PUBLISHED = [  # budget, runs, a, b, c, D*, N*, L*
    (3.0e18, 5, 0.5732953357655423, -10.514341302730667, 51.79492367973987, 1479419846.4349046, 380691293, 3.5861880885612223),
    (9.0e18, 10, 0.5283811119210181, -9.999220340270968, 50.69270478922498, 2898203413.91, 558458702, 3.3857490911973898),
    (1.8e19, 15, 0.46493426341661637, -8.948588967604321, 46.32887897245253, 4202416947.878, 753603925, 3.2705098587879107),
    (3.0e19, 9, 0.39788052257399176, -7.7631775710519095, 41.06238746036791, 5697236384.01, 909880016, 3.194910554360341),
    (9.0e19, 14, 0.338922216969871, -6.785602112953769, 37.004860254494574, 10246124083.97, 1478431211, 3.0410230302917114),
    (1.8e20, 14, 0.3356739652163163, -6.839425308374326, 37.78503101734401, 15402871298.4477, 1936095968, 2.9463606138420815),
    (3.0e20, 14, 0.32496314992367503, -6.707006799901958, 37.489860773375476, 20875750175.555, 2353770605, 2.8829059351910544),
]


@pytest.fixture(scope="module")
def delphi():
    return fit(read_run_table(DELPHI))


def test_the_seven_published_quadratics_come_out_to_nine_digits(delphi):
    """Coefficients, optimal tokens and optimal loss: an ordinary least-squares fit has one answer."""
    for bowl, (budget, runs, a, b, c, tokens, _, loss) in zip(delphi.bowls, PUBLISHED, strict=True):
        assert bowl.run_count == runs
        assert bowl.flops == pytest.approx(budget, rel=1e-5)  # runs are off their nominal budget by up to 1.4e-5
        assert (bowl.a, bowl.b, bowl.c) == pytest.approx((a, b, c), rel=1e-9)
        assert (bowl.optimal_tokens, bowl.optimal_loss) == pytest.approx((tokens, loss), rel=1e-9)


def test_the_published_optimal_sizes_come_out_to_the_last_parameter(delphi):
    """N* is published rounded to whole parameters."""
    assert [round(bowl.optimal_params) for bowl in delphi.bowls] == [row[6] for row in PUBLISHED]


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
