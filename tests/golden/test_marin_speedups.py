"""The effective speedups that Marin's gate published for one variant, from the losses and throughputs published beside them."""

from dataclasses import replace

import pandas as pd
import pytest

from marin_scaling.forecast.speedup import compare_recipes
from marin_scaling.forecast.speedup_conventions import Verdict
from marin_scaling.run.table import RunTable

# marin-community/marin issue 5596 (MuonH against the baseline recipe, mixture of experts): width, loss of baseline and variant
# (Paloma macro loss, nats per token), tokens per second of both, speedup in FLOPs and in wall-clock time as published. Where
# the variant's throughput was published as a gain in per cent, it is that gain here. At width 1280 only the baseline's loss
# and the wall-clock speedup (1.19) were published, so that nothing can be computed.
PUBLISHED = [
    (512, 3.8104, 3.7542, 405_630, 405_630 * 1.010, 1.31, 1.33),
    (768, 3.4339, 3.3988, 273_532, 273_532 * 1.025, 1.23, 1.26),
    (1024, 3.1605, 3.1357, 175_165, 179_731, 1.19, 1.22),
]
BUDGETS = {512: 3.82e17, 768: 2.81e18, 1024: 1.16e19}  # FLOPs of the gate's widths: experiments/grug/moe/agent.md @042d196


def table(*, loss_column: int, rate_column: int) -> RunTable:
    """One run a width. Sizes and tokens were not published with the figures and stand in; no speedup depends on them."""
    rows = [
        {
            "run": f"d{row[0]}",
            "flops": BUDGETS[row[0]],
            "budget_flops": BUDGETS[row[0]],
            "params": row[0] ** 2 * 1e2,
            "tokens": BUDGETS[row[0]] / row[0] ** 2 / 6e2,
            "loss": row[loss_column],
            "tokens_per_second": row[rate_column],
        }
        for row in PUBLISHED
    ]
    return RunTable(
        frame=pd.DataFrame(rows),
        excluded=(),
        warnings=(),
        column_mapping={},
        source="issue 5596",
        metric="paloma_macro_loss_nats",
    )


BASELINE, VARIANT = table(loss_column=1, rate_column=3), table(loss_column=2, rate_column=4)
PINNED = compare_recipes(BASELINE, VARIANT, convention="marin")


@pytest.mark.parametrize(("row", "each"), zip(PUBLISHED, PINNED.comparisons, strict=True), ids=["d512", "d768", "d1024"])
def test_published_speedups_come_out_to_a_hundredth(row, each):
    """Figures are published with two decimals; ours lie within .005 of them, as rounding does."""
    assert each.model_flops.value == pytest.approx(row[5], abs=0.005)
    assert each.wall_clock.value == pytest.approx(row[6], abs=0.005)


def test_all_three_are_faster_beyond_the_noise_of_seeds():
    """With one run a width the noise is that of other ladders' seeds, and the verdicts stand together, too."""
    assert {each.model_flops.verdict_after_holm for each in PINNED.comparisons} == {Verdict.FASTER}
    assert "seeds of Delphi's runs" in PINNED.noise


def test_swapping_the_recipes_inverts_a_pinned_speedup_exactly():
    """Both directions share E and alpha: one is 1 over the other to the last digits."""
    back = compare_recipes(VARIANT, BASELINE, convention="marin")
    for there, here in zip(PINNED.comparisons, back.comparisons, strict=True):
        assert there.model_flops.value * here.model_flops.value == pytest.approx(1, rel=1e-12)
        assert there.wall_clock.value * here.wall_clock.value == pytest.approx(1, rel=1e-12)


def test_the_sensitivity_to_the_loss_is_the_known_one():
    """At 3.2 nats a hundredth of a nat is 6.6 %: d ln(speedup) / dL = -1 / (alpha (L - E)), by calculus from the same law."""
    at = replace(BASELINE, frame=BASELINE.frame.assign(loss=3.2))
    better = replace(BASELINE, frame=BASELINE.frame.assign(loss=3.19))
    value = compare_recipes(at, better, convention="marin").comparisons[0].model_flops.value
    assert value - 1 == pytest.approx(0.01 / (0.0941 * 1.6), rel=0.05)  # 5 %: the next term of the series is 3.6 %
