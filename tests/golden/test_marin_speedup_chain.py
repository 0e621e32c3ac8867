"""Marin's published stages, from published runs and figures: gates, stacked stages, products, and the dense stage."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import curve_fit

import marin_scaling as ms
from marin_scaling.forecast.speedup_chain import chain_of_tables
from marin_scaling.forecast.speedup_conventions import MARIN_ALPHA, MARIN_E, Verdict, needed_flops
from marin_scaling.laws import FrontierLaw
from marin_scaling.publish.chain_page import (
    ChainFile,
    PublishedSpeedup,
    RecomputedSpeedup,
    cumulative_products,
    read_compared,
)
from marin_scaling.run.table import table_of_frame

CHAIN = Path(__file__).parents[2] / "experiments" / "chains" / "marin-stages"
DELPHI = CHAIN.parents[2] / "runs" / "delphi"

# Issue 5596: width, FLOPs (experiments/grug/moe/agent.md @042d196), losses of AdamH and MuonH, tokens per second of both, and
# the published speedups in FLOPs and in wall-clock time.
GATES = [
    (512, 3.82e17, 3.8104, 3.7542, 405_630, 405_630 * 1.010, 1.31, 1.33),
    (768, 2.81e18, 3.4339, 3.3988, 273_532, 273_532 * 1.025, 1.23, 1.26),
    (1024, 1.16e19, 3.1605, 3.1357, 175_165, 179_731, 1.19, 1.22),
]


def gate(*, loss: int, speed: int):
    """One run a width; sizes are placeholders that no speedup depends on."""
    rows = [
        {
            "run": f"d{row[0]}",
            "flops": row[1],
            "params": 1e2 * row[0] ** 2,
            "tokens": row[1] / row[0] ** 2 / 6e2,
            "paloma_macro_loss": row[loss],
            "tokens_per_second": row[speed],
        }
        for row in GATES
    ]
    return table_of_frame(pd.DataFrame(rows))


@pytest.mark.parametrize("row", GATES, ids=["d512", "d768", "d1024"])
def test_the_optimizer_stage_agrees_in_flops_and_in_wall_clock(row):
    """AdamH to MuonH at each width of the gate, to the published two decimals."""
    recipes = [("adamh", gate(loss=2, speed=4)), ("muonh", gate(loss=3, speed=5))]
    (stage,) = chain_of_tables(recipes, convention="marin", at_flops=row[1]).stages
    assert stage.model_flops.value == pytest.approx(row[6], abs=0.005)
    assert stage.wall_clock.value == pytest.approx(row[7], abs=0.005)
    assert stage.wall_clock.verdict_after_holm is Verdict.FASTER


# Compute-optimal runs (marin issues 4697 and 6074; experiments/grug/moe/README): FLOPs without the output head, width, tokens,
# loss. MoE v16 has 64 experts and AdamH, the May recipe 256 experts and MuonH.
V16 = [
    (2.19e17, 512, 8.37e8, 3.8104),
    (1.7e18, 768, 2.71e9, 3.4339),
    (9e18, 1024, 6.63e9, 3.1605),
    (2.83e19, 1280, 1.24e10, 3.0065),
]
MAY = [
    (3.82e17, 512, 1.44e9, 3.5422),
    (2.81e18, 768, 4.42e9, 3.2273),
    (1.16e19, 1024, 8.43e9, 3.0195),
    (3.46e19, 1280, 1.5e10, 2.8857),
]


def optima(rows):
    frame = pd.DataFrame(rows, columns=["flops", "width", "tokens", "loss"])
    return table_of_frame(frame.assign(params=1e2 * frame["width"] ** 2.0, metric="paloma_macro_loss_nats"))


def test_the_four_stages_after_the_first_agree_when_measured_together():
    """Published for four stages stacked on MoE V1 at 3e19 FLOPs: 2.1. By the compute-optimal runs of two recipes: 2.1, too."""
    chain = ms.speedup_chain({"v16": optima(V16), "may": optima(MAY)}, at_flops=2.83e19, allow=["flop-count"])
    assert f"{chain.stages[0].model_flops.value:.1f}" == "2.1"
    chain = ms.speedup_chain({"v16": CHAIN / "moe-v16.csv", "may": CHAIN / "moe-may.csv"}, at_flops=3e19)
    low, high = chain.stages[0].model_flops.interval
    assert low < 2.1 < high
    assert chain.stages[0].model_flops.value == pytest.approx(2.18, abs=0.005)


def test_the_measured_chain_of_the_page_is_the_one_that_its_text_states():
    """Dense to MoE v16 to MoE May at a loss of 2.90: 2.91 x 2.07 = 6.04, in FLOPs with the output head."""
    chain = ms.speedup_chain({"dense": DELPHI, "v16": CHAIN / "moe-v16.csv", "may": CHAIN / "moe-may.csv"})
    assert f"{chain.loss:.2f}" == "2.90"
    found = [each.model_flops for each in (*chain.stages, chain.cumulative[-1])]
    assert [round(each.value, 2) for each in found] == [2.91, 2.07, 6.04]
    assert {each.verdict_after_holm for each in found} == {Verdict.FASTER}
    (far, *_) = ms.speedup_chain({"dense": DELPHI, "v16": CHAIN / "moe-v16.csv"}, at_flops=1e23).stages
    assert far.model_flops.interval[0] < 6.7 < far.model_flops.interval[1]


def products(stages: tuple[PublishedSpeedup, ...], unit: str) -> list[float]:
    return cumulative_products([getattr(each, unit) for each in stages])


def test_products_of_the_published_stages():
    """7.30 in wall clock, 15.2 in FLOPs; the last four 2.27 and 2.03; with 2.1 measured for these, 6.75; the headline is 6."""
    chain = read_compared(CHAIN / "chain.yaml", ChainFile)
    assert f"{products(chain.published, 'wall_clock')[-1]:.2f}" == "7.30"
    assert f"{products(chain.published, 'model_flops')[-1]:.1f}" == "15.2"
    in_flops, in_time = (products(chain.published[1:], unit)[-1] for unit in ("model_flops", "wall_clock"))
    assert (f"{in_flops:.2f}", f"{in_time:.2f}") == ("2.27", "2.03")
    claims = {each.name: each.wall_clock for each in chain.claims}
    assert claims["first stage, last four together"] == pytest.approx(3.6 * 2.1 * in_time / in_flops, abs=0.02)
    assert claims["headline"] == 6


def law(scale: float, exponent: float, asymptote: float) -> FrontierLaw:
    """Return a law as Marin writes it: asymptote + scale * C^-exponent."""
    return FrontierLaw(E=asymptote, A=scale, gamma=exponent, reference_flops=1.0)


def recomputed() -> dict[str, RecomputedSpeedup]:
    return {each.name: each for each in read_compared(CHAIN / "chain.yaml", ChainFile).recomputed}


@pytest.mark.parametrize("budget", ["1e18", "3e18", "1e19", "3e19"])
def test_the_four_stages_after_the_first_agree_by_the_published_method(budget):
    """Issue 6074 compares the bottom of a parabola in log width with the law of MoE v16 (issue 4447)."""
    runs = pd.read_csv(CHAIN / "moe-may.csv")
    runs = runs[runs["budget_flops"] == float(budget)]
    parabola = np.poly1d(np.polyfit(np.log(runs["width"]), runs["loss"], 2))
    speedup = needed_flops(law(95.182, 0.0941, 1.6), loss=parabola(parabola.deriv().roots[0])) / float(budget)
    row = recomputed()[f"MoE v16 -> MoE May at {budget} FLOPs"]
    assert speedup == pytest.approx(row.recomputed, abs=0.005)
    assert row.published == row.recomputed


# experiments/grug/fast_track/README.md (032ccc1, Apache-2.0): FLOPs and losses; tokens and active parameters of each width.
# FLOPs of dense runs are published with two digits.
DENSE = np.array([[9.4e16, 3.676], [6.3e17, 3.283], [3.9e18, 3.006], [1.2e19, 2.847]])
DENSE_SIZES = np.array([[361_758_720, 18.1e6], [1_069_547_520, 53.5e6], [2_894_069_760, 144.7e6], [5_230_297_088, 261.5e6]])
MOE = np.array(
    [
        [3.4575737427276595e17, 3.155886173248291],
        [2.283858510439514e18, 2.8723344802856445],
        [1.407030549153212e19, 2.6329593658447266],
        [4.256438329798559e19, 2.5036158561706543],
    ]
)
MOE_SIZES = np.array([[1_250_426_880, 20.8e6], [3_633_315_840, 60.6e6], [9_720_299_520, 162.0e6], [17_478_713_344, 291.3e6]])


def dense_flops() -> np.ndarray:
    """Return all digits of the dense runs' FLOPs: those of a mixture's token, less six for each parameter that it has more."""
    of_token = MOE[:, 0] / MOE_SIZES[:, 0] - 6 * (MOE_SIZES[:, 1] - DENSE_SIZES[:, 1])
    return of_token * DENSE_SIZES[:, 0]


def by_losses(flops: np.ndarray, loss: np.ndarray) -> FrontierLaw:
    """Fit 1.2 + A C^-alpha by least squares of the loss, not of its logarithm above the asymptote."""
    (scale, exponent), _ = curve_fit(lambda c, a, alpha: 1.2 + a * (c / 1e18) ** -alpha, flops, loss, p0=(2.0, 0.08))
    return law(scale * 1e18**exponent, exponent, 1.2)


def test_the_dense_stage_of_fast_track_agrees_by_the_published_method():
    """Published: 1.2 + 66.70 C^-.0844 (dense), 1.2 + 58.67 C^-.0842 (mixtures) and 4.2x; the dense scale from rounded sizes."""
    assert [f"{each:.1e}" for each in dense_flops()] == [f"{each:.1e}" for each in DENSE[:, 0]]
    dense, moe = by_losses(dense_flops(), DENSE[:, 1]), by_losses(MOE[:, 0], MOE[:, 1])
    scales = [moe.A, dense.A]
    assert scales == pytest.approx([58.67, 66.70], abs=0.1)
    assert (f"{moe.gamma:.4f}", f"{dense.gamma:.4f}") == ("0.0842", "0.0844")
    found = {loss: needed_flops(dense, loss=loss) / needed_flops(moe, loss=loss) for loss in (3.283, 2.847, 2.633)}
    row = recomputed()["dense -> MoE of fast_track, at a loss of 2.847"]
    assert found == pytest.approx({3.283: 4.23, 2.847: row.recomputed, 2.633: 4.18}, abs=0.005)
    assert {f"{each:.2g}" for each in found.values()} == {f"{row.published:.2g}"}


def test_the_first_stage_at_1e23_does_not_agree_and_the_page_says_so():
    losses = pd.read_csv(DELPHI / "heldout.csv").set_index("run")["loss"]
    (dense,) = [loss for run, loss in losses.items() if run.startswith("delphi-1e23")]
    row = recomputed()["dense -> MoE V1 at 1e23 FLOPs"]
    assert ((dense - MARIN_E) / (2.2333362 - MARIN_E)) ** (1 / MARIN_ALPHA) == pytest.approx(row.recomputed, abs=0.005)
    assert [name for name, each in recomputed().items() if not each.agrees] == [row.name]
