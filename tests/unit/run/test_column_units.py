"""Units of FLOPs, parameters and tokens: what is converted, what is refused, and overflow of 64-bit integers."""

import re

import numpy as np
import pandas as pd
import pytest

from marin_scaling.errors import RunTableError, Severity, UsageError
from marin_scaling.run.column_units import unit_named
from marin_scaling.run.table import table_of_frame

PARAMS = np.tile(np.geomspace(5e7, 5e8, 5), 4)
TOKENS = np.repeat(np.geomspace(1e9, 3e10, 4), 5)


def runs(**scales):
    """Twenty runs of 6 N D FLOPs, their columns divided by `scales`."""
    whole = {"flops": 6 * PARAMS * TOKENS, "params": PARAMS, "tokens": TOKENS}
    columns = {name: values / scales.get(name, 1.0) for name, values in whole.items()}
    return pd.DataFrame({"run": [f"r{n}" for n in range(20)], **columns, "loss": 3.5 - 0.1 * np.log(PARAMS * TOKENS / 1e17)})


@pytest.mark.parametrize("name", ["Val BPB", "eval/c4_en/bpb", "bits per byte"])
def test_bits_per_byte_are_known_by_the_name_of_their_column_and_not_converted(name):
    """Their nats per token depend on the bytes of a token."""
    frame = runs().rename(columns={"loss": name})
    table = table_of_frame(frame, columns={"loss": name})
    assert table.metric == "bits_per_byte"
    with pytest.raises(RunTableError):
        table_of_frame(frame, columns={"loss": name}, units={"loss": "bits"})


def assert_whole(table):
    frame = table.frame
    np.testing.assert_allclose(frame["flops"], 6 * frame["params"] * frame["tokens"], rtol=1e-9)
    np.testing.assert_allclose(frame["params"].sum(), PARAMS.sum(), rtol=1e-9)


@pytest.mark.parametrize(
    ("names", "scales"),
    [
        ({"flops": "total_gflops"}, {"flops": 1e9}),
        ({"flops": "PFLOP-days"}, {"flops": 8.64e19}),
        ({"params": "params_M"}, {"params": 1e6}),
        ({"params": "params_M", "tokens": "tokens (B)", "flops": "PFLOPs"}, {"params": 1e6, "tokens": 1e9, "flops": 1e15}),
        ({"tokens": "tokens_B"}, {}),
    ],
)
def test_a_unit_that_name_and_numbers_agree_on_is_converted_and_printed(names, scales):
    """A name alone converts nothing: tokens_B may hold tokens."""
    table = table_of_frame(runs(**scales).rename(columns=names), columns=names)
    assert_whole(table)
    assert [each.severity for each in table.findings if each.code == "converted-unit"] == [Severity.NOTE] * len(scales)


@pytest.mark.parametrize("scales", [{"flops": 1e9}, {"flops": 1e12}, {"params": 1e6}, {"tokens": 1e9}, {"params": 1e9}])
def test_a_unit_that_only_the_numbers_show_is_refused_with_the_option_that_converts(scales):
    """The user states the unit, and it is converted."""
    with pytest.raises(RunTableError, match="--unit") as refused:
        table_of_frame(runs(**scales))
    column, unit = re.findall(r"--unit (\w+)=([\w/-]+)", str(refused.value))[0]
    assert_whole(table_of_frame(runs(**scales), units={column: unit}))


def test_columns_in_units_that_cancel_are_refused():
    """Millions of parameters, billions of tokens and PFLOPs: 6 N D fits, but no model has 50 parameters."""
    with pytest.raises(RunTableError, match="--unit flops=PFLOPs --unit params=millions --unit tokens=billions"):
        table_of_frame(runs(flops=1e15, params=1e6, tokens=1e9))


@pytest.mark.parametrize("rows", [[3], [0, 1, 2], list(range(10)), list(range(2, 20))])
def test_rows_in_another_unit_are_named(rows):
    """Also where they are half of the table, or most of it."""
    frame = runs()
    frame.loc[rows, "params"] /= 1e6
    with pytest.raises(RunTableError, match=rf"in {len(rows)} of 20 runs.*r{rows[0]}\b.*millions"):
        table_of_frame(frame)
    kept = table_of_frame(frame, keep=[f"r{row}" for row in rows])
    assert len(kept.frame) == 20


def test_a_budget_in_the_unit_of_its_flops_is_converted_with_them():
    """Nominal budgets are about the FLOPs of their runs."""
    table = table_of_frame(runs(flops=1e9).assign(budget_flops=6 * PARAMS * TOKENS / 1e9), units={"flops": "gflops"})
    np.testing.assert_allclose(table.frame["budget_flops"], table.frame["flops"])


@pytest.mark.parametrize("signed", [True, False])
def test_flops_that_overflowed_64_bits_are_mended_and_it_is_a_warning(signed):
    """6 N D modulo 2^64 proves what the FLOPs were."""
    exact = [6 * round(n) * round(d) for n, d in zip(PARAMS, TOKENS, strict=True)]
    left = [each % 2**64 for each in exact]
    wrapped = [each - 2**64 if signed and each >= 2**63 else each for each in left]
    frame = runs().assign(flops=wrapped, params=PARAMS.round(), tokens=TOKENS.round())
    table = table_of_frame(frame.sample(frac=1, random_state=0))
    np.testing.assert_allclose(table.frame["flops"].sort_values(), sorted(map(float, exact)), rtol=1e-9)
    assert [each.code for each in table.findings if each.severity is not Severity.NOTE] == ["int64-overflow"]


def test_an_unknown_unit_is_refused_with_those_there_are():
    """Of FLOPs, and of counts."""
    for column, known in (("flops", "GFLOPs"), ("tokens", "billions")):
        with pytest.raises(UsageError, match=known):
            unit_named(column, "dozens")
