"""Marin's published stages, from published runs and figures: gates, stacked stages, products, and the dense stage."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import marin_scaling as ms
from marin_scaling.fitting.frontier import fit_pinned_frontier
from marin_scaling.forecast.speedup_chain import chain_of_tables
from marin_scaling.forecast.speedup_conventions import Verdict, needed_flops
from marin_scaling.publish.chain_page import ChainFile, PublishedSpeedup, cumulative_products, read_compared
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


# experiments/grug/fast_track/README.md (032ccc1, Apache-2.0), FLOPs and losses; those of the dense runs have two digits.
DENSE = np.array([[9.4e16, 3.676], [6.3e17, 3.283], [3.9e18, 3.006], [1.2e19, 2.847]])
MOE = np.array(
    [
        [3.4575737427276595e17, 3.155886173248291],
        [2.283858510439514e18, 2.8723344802856445],
        [1.407030549153212e19, 2.6329593658447266],
        [4.256438329798559e19, 2.5036158561706543],
    ]
)


def test_the_dense_stage_of_fast_track_comes_out_near_its_published_speedup():
    """Published: 4.2x, from laws with the asymptote pinned at 1.2. From FLOPs of two digits, ours lies within 6 % of it."""
    dense, moe = (fit_pinned_frontier(runs[:, 0], loss=runs[:, 1], asymptote=1.2) for runs in (DENSE, MOE))
    assert moe.A * moe.reference_flops**moe.gamma == pytest.approx(58.67, rel=0.01)
    assert moe.gamma == pytest.approx(0.0842, abs=2e-4)
    for loss in (3.0, 2.847, 2.6):
        assert needed_flops(dense, loss=loss) / needed_flops(moe, loss=loss) == pytest.approx(4.2, rel=0.06)
