"""Parameter and FLOP counts agree with the published Delphi numbers (openathena.ai/blog/delphi) and with Levanter's count."""

import csv
from pathlib import Path

import pytest

from marin_scaling.recipe.model_shape import ModelShape, forward_flops_per_token, training_flops

DELPHI = Path(__file__).parents[3] / "runs" / "delphi"


def delphi_shape(row: dict[str, str]) -> ModelShape:
    hidden_dim = int(row["hidden_dim"])
    return ModelShape(
        hidden_dim=hidden_dim,
        intermediate_dim=4 * hidden_dim,
        num_layers=int(row["num_layers"]),
        num_heads=hidden_dim // 128,
        num_kv_heads=hidden_dim // 128,
        vocab_size=128_256,
        seq_len=4096,
    )


def rows(name: str) -> list[dict[str, str]]:
    with open(DELPHI / name, newline="") as file:
        return list(csv.DictReader(file))


def test_all_81_published_rungs_are_there() -> None:
    """The table that ships has the 81 published runs."""
    assert len(rows("runs.csv")) == 81


@pytest.mark.parametrize("row", rows("runs.csv") + rows("heldout.csv"), ids=lambda row: row["run"])
def test_a_published_run_costs_and_weighs_what_was_published(row: dict[str, str]) -> None:
    """FLOPs to 1e-12 relative, parameters exactly."""
    shape = delphi_shape(row)
    assert shape.params_total == int(float(row["params"]))
    assert training_flops(shape, tokens=int(float(row["tokens"]))) == pytest.approx(float(row["flops"]), rel=1e-12)


@pytest.mark.train
@pytest.mark.parametrize(
    ("hidden_dim", "num_heads", "num_kv_heads", "seq_len"), [(32, 2, 2, 128), (96, 6, 2, 64), (512, 4, 4, 4096)]
)
def test_our_count_is_levanters_count(hidden_dim: int, num_heads: int, num_kv_heads: int, seq_len: int) -> None:
    """The formula agrees with `lm_flops_per_token` of the installed Levanter to the last digit."""
    flop_utils = pytest.importorskip("levanter.utils.flop_utils", reason="the train extra is not installed")
    shape = ModelShape(
        hidden_dim=hidden_dim,
        intermediate_dim=4 * hidden_dim,
        num_layers=3,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        vocab_size=256,
        seq_len=seq_len,
    )
    levanters = flop_utils.lm_flops_per_token(
        hidden_dim=hidden_dim,
        intermediate_dim=4 * hidden_dim,
        num_layers=3,
        num_kv_heads=num_kv_heads,
        num_heads=num_heads,
        seq_len=seq_len,
        vocab_size=256,
        glu=True,
    )
    assert forward_flops_per_token(shape) == levanters
