"""Best size for many inference tokens: the optimum of a known law, its limits, and what the command prints."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize_scalar
from typer.testing import CliRunner

import marin_scaling as ms
from marin_scaling.cli.app import app
from marin_scaling.errors import FitRefused, UsageError
from marin_scaling.fitting.fit import fit
from marin_scaling.forecast.forecast import forecast
from marin_scaling.forecast.next_runs import size_for_inference
from marin_scaling.laws import SurfaceLaw
from marin_scaling.run.table import simulate_ladder

SURFACE = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
FLOPS = 1e21
DELPHI = Path(__file__).parents[3] / "runs" / "delphi"


def ladder(noise=0.0):
    return simulate_ladder(SURFACE, budgets_flops=(1e18, 3e18, 1e19, 3e19, 1e20), sizes_per_budget=6, noise=noise, seed=0)


@pytest.mark.parametrize("inference_tokens", [1e11, 1e12, 1e13])
def test_the_size_is_the_known_optimum_of_hoffmanns_surface(inference_tokens):
    """6 N D + 2 N D_inf is least on the line of equal loss, which gives D for each N in closed form (Sardana et al. 2024)."""
    found = size_for_inference(fit(ladder(), law="additive-surface"), flops=FLOPS, inference_tokens=inference_tokens)
    loss = _optimal_loss()

    def total(log_params):
        params = np.exp(log_params)
        tokens = ((loss - SURFACE.E - SURFACE.A * params**-SURFACE.alpha) / SURFACE.B) ** (-1 / SURFACE.beta)
        return 6 * params * tokens + 2 * params * inference_tokens

    least = (SURFACE.A / (loss - SURFACE.E)) ** (1 / SURFACE.alpha)
    best = minimize_scalar(total, bounds=(np.log(1.01 * least), np.log(1e11)), method="bounded")
    assert found.flops == pytest.approx(best.fun, rel=0.05)
    assert found.forecast.active_params == pytest.approx(np.exp(best.x), rel=0.1)
    assert found.forecast.median == pytest.approx(loss, rel=0.005)


def _optimal_loss():
    def loss(log_params):
        params = np.exp(log_params)
        return SURFACE.E + SURFACE.A * params**-SURFACE.alpha + SURFACE.B * (FLOPS / 6 / params) ** -SURFACE.beta

    return float(minimize_scalar(loss, bounds=(np.log(1e8), np.log(1e11)), method="bounded").fun)


def test_more_inference_tokens_want_smaller_models_trained_longer():
    """The loss stays that of the compute-optimal run, within a fiftieth of its interval."""
    result = fit(ladder(noise=0.001))
    sizes = [size_for_inference(result, flops=FLOPS, inference_tokens=each) for each in (1e10, 1e12, 1e14)]
    params, tokens = ([getattr(each.forecast, name) for each in sizes] for name in ("active_params", "tokens"))
    assert params == sorted(params, reverse=True)
    assert tokens == sorted(tokens)
    optimum = forecast(result, flops=FLOPS)
    low, high = optimum.interval()
    for each in sizes:
        assert each.flops <= each.flops_at_optimum
        assert each.flops == each.forecast.flops + 2 * each.forecast.active_params * each.inference_tokens
        assert abs(each.forecast.median - optimum.median) < 0.02 * (high - low)


def test_unique_tokens_keep_the_model_larger():
    """Repeated tokens are worth less, so training longer costs more."""
    result = fit(ladder(noise=0.001))
    free, limited = (size_for_inference(result, flops=FLOPS, inference_tokens=1e13, unique_tokens=each) for each in (None, 5e9))
    assert limited.forecast.active_params > free.forecast.active_params


def test_a_law_of_optima_and_a_wrong_number_are_refused():
    """Both name the number."""
    with pytest.raises(FitRefused, match="1e21"):
        size_for_inference(fit(ladder(), law="isoflop-frontier"), flops=FLOPS, inference_tokens=1e12)
    with pytest.raises(UsageError, match="-1"):
        size_for_inference(fit(ladder()), flops=FLOPS, inference_tokens=-1)


def test_the_command_prints_and_documents_the_size():
    """The numbers are those of the Python interface."""
    arguments = ["fit", str(DELPHI), "--predict", "1e22", "--inference-tokens", "1e12"]
    expected = ms.fit(DELPHI).size_for_inference(1e22, inference_tokens=1e12)
    assert str(expected) in CliRunner().invoke(app, arguments).stdout
    (prediction,) = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)["predictions"]
    assert prediction["inference"] == pytest.approx(expected.document)


def test_runs_at_one_ratio_show_no_other_size():
    """Neither a cheaper one to serve nor a larger one for little text."""
    frame = ladder().frame.drop_duplicates("budget_flops")
    params = np.sqrt(frame["flops"] / 120)
    tokens = 20 * params
    loss = SURFACE.E + SURFACE.A * params**-SURFACE.alpha + SURFACE.B * tokens**-SURFACE.beta
    found = ms.fit(pd.DataFrame({"flops": frame["flops"], "params": params, "tokens": tokens, "loss": loss}))
    with pytest.raises(FitRefused, match="one curve"):
        found.size_for_inference(FLOPS, inference_tokens=1e12)
    assert found.forecast(FLOPS, unique_tokens=1e9).params == pytest.approx(found.forecast(FLOPS).params)


def test_a_size_beyond_the_runs_tokens_per_parameter_is_said():
    """Delphi's end at 817."""
    fitted = ms.fit(DELPHI)
    assert "at most 817 tokens per parameter" in str(fitted.size_for_inference(1e23, inference_tokens=1e16))
    assert "at most" not in str(fitted.size_for_inference(1e23, inference_tokens=1e12))


def test_numbers_may_be_texts_as_for_flops():
    fitted = ms.fit(ladder().frame)
    as_text, as_number = (fitted.size_for_inference("1e21", inference_tokens=each) for each in ("1e13", 1e13))
    assert as_text.flops == as_number.flops
    with pytest.raises(UsageError, match="abc"):
        fitted.size_for_inference(1e21, inference_tokens="abc")
