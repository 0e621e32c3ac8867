"""Stability of runs: spikes of gradient norms, collapsed routers, dropped tokens and loads, from own rows and from logs."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from marin_scaling.run.stability import (
    GRADIENT_NORM_KEYS,
    SUSTAINED,
    Stability,
    entropy_share,
    extreme_loads,
    norm_spikes,
    stability_document,
    stability_findings,
    stability_lines,
    stability_of_log,
    stability_of_rows,
    without_norms,
)
from marin_scaling.run.store import HistoryRow
from marin_scaling.run.trackers import read_tracked_runs

STEPS = 2000


def smooth(seed: int, *, has_tails: bool = False) -> np.ndarray:
    """Gradient norms that fall as a power of the step and drift, with normal scatter or that of Student's t of 4 degrees."""
    random = np.random.default_rng(seed)
    scatter = 0.1 * (random.standard_t(4, size=STEPS) if has_tails else random.normal(size=STEPS))
    drift = 0.002 * np.cumsum(random.normal(size=STEPS))
    return np.asarray(5 * np.arange(1, STEPS + 1) ** -0.3 * np.exp(scatter + drift))


@pytest.fixture(scope="module")
def smooth_runs() -> list[np.ndarray]:
    return [smooth(seed) for seed in range(100)]


def test_smooth_runs_have_no_spike(smooth_runs: list[np.ndarray]) -> None:
    assert not any(norm_spikes(range(STEPS), norms.tolist()) for norms in smooth_runs)


def test_single_high_steps_are_no_findings() -> None:
    """Scatter with heavy tails has some in 100 runs, and never several in a row."""
    runs = [Stability(steps=range(STEPS), norms=smooth(seed, has_tails=True).tolist()) for seed in range(100)]
    assert any(norm_spikes(each.steps, each.norms) for each in runs)
    assert not any(map(stability_findings, runs))


@pytest.mark.parametrize("length", [1, SUSTAINED, 6])
def test_a_planted_spike_is_found_at_its_step(length: int, smooth_runs: list[np.ndarray]) -> None:
    for norms in smooth_runs[:20]:
        planted = norms.copy()
        planted[700 : 700 + length] *= 20
        spikes = norm_spikes(range(STEPS), planted.tolist())
        worst = max(spikes, key=lambda each: each.norm / each.median)
        assert (worst.step, worst.length) == (700, length)
        assert worst.norm == planted[700 : 700 + length].max()
        found = stability_findings(Stability(steps=range(STEPS), norms=planted.tolist()))
        assert len(found) == (length >= SUSTAINED)


def test_a_spike_names_both_numbers_and_its_step() -> None:
    norms = [1.0, 1.02] * 50 + [44.0, 40.0, 41.0] + [1.0] * 40
    (found,) = stability_findings(Stability(steps=range(0, 10 * len(norms), 10), norms=norms))
    assert all(fact in found for fact in ("44", "1.01", "1000", "3 logged steps"))


def test_norms_of_0_and_short_runs_are_no_error() -> None:
    assert norm_spikes(range(10), [1.0] * 10) == []
    assert norm_spikes(range(100), [0.0] * 100) == []
    assert norm_spikes([], []) == []


def row(step: int, **more: object) -> HistoryRow:
    return HistoryRow.model_validate({"step": step, "train_loss_nats_per_token": 2.0, "gradient_norm": 0.5, **more})


def test_the_latest_routing_of_own_rows_counts() -> None:
    """Own mixtures drop no token."""
    first = row(0, router_entropy_nats=[0.1], expert_shares=[[1.0, 0.0]])
    second = row(1, router_entropy_nats=[math.log(2)], expert_shares=[[0.25, 0.75]])
    found = stability_of_rows([first, second, row(2)])
    assert (found.routed_at, found.dropped, found.experts) == (1, 0.0, 2)
    assert entropy_share(found) == pytest.approx(1.0)
    assert extreme_loads(found.shares) == ((0.5, 0, 0), (1.5, 0, 1))
    assert found.norms == [0.5, 0.5, 0.5]
    assert stability_findings(found) == []
    assert stability_findings(stability_of_rows([first])) != []


def test_a_dense_run_has_no_routing_and_an_older_one_nothing() -> None:
    dense = stability_of_rows([row(0), row(1)])
    assert (dense.dropped, dense.shares, dense.is_empty) == (None, (), False)
    older = stability_of_rows([HistoryRow(step=0, train_loss_nats_per_token=2.0)])
    assert older.is_empty
    assert (stability_lines(older), stability_document(older)) == ([], None)


@pytest.mark.parametrize(
    "fault",
    [
        {"router_entropy_nats": [1.0]},
        {"expert_shares": [[0.5, 0.5]]},
        {"router_entropy_nats": [1.0], "expert_shares": [[]]},
        {"router_entropy_nats": [1.0, 1.0], "expert_shares": [[0.5, 0.5], [0.2, 0.3, 0.5]]},
        {"router_entropy_nats": [1.0], "expert_shares": [[1.5, -0.5]]},
        {"gradient_norm": -1.0},
        {"gradient_norm": math.nan},
    ],
)
def test_a_row_with_half_a_routing_is_refused(fault: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        row(0, **fault)


def test_a_collapsed_router_and_dropped_tokens_are_findings_with_both_numbers() -> None:
    found = Stability(entropies=[1.9, 0.9], experts=8, dropped=0.04)
    collapsed, dropped = stability_findings(found)
    assert "0.9 nats" in collapsed
    assert "ln(8) = 2.08" in collapsed
    assert "4.00%" in dropped
    assert "1%" in dropped
    assert stability_findings(Stability(entropies=[1.9, 1.8], experts=8, dropped=0.01)) == []


def test_an_entropy_above_the_maximum_is_in_no_known_unit() -> None:
    found = Stability(entropies=[2.9], experts=8)
    assert entropy_share(found) is None
    assert stability_findings(found) == []


LEVANTER = {
    "grad/norm/total": 0.75,
    "grad/norm/embeddings": 0.3,
    "moe/layer0/routing_entropy": 1.0,
    "moe/layer1/routing_entropy": 1.2,
    **{f"moe/layer{layer}/expert{expert}_load": 0.25 for layer in (0, 1) for expert in range(4)},
}
MARIN = {
    "grad/norm/total": 0.75,
    "train/router/routing_entropy_mean": 1.1,
    "train/router/layer_0/routing_entropy": 1.0,
    "train/router/layer_1/routing_entropy": 1.2,
    "train/router/capacity_overflow_rate_mean": 0.03,
    "train/router/layer_0/capacity_overflow_rate": 0.02,
    "train/router/sender_overflow_rate_mean": 0.5,
    "train/router/routing_counts_per_layer": [[10, 30, 40, 20], [25, 25, 25, 25]],
    "train/router/bias_max": 4.0,
}


def log_of(values: dict[str, object], path: Path, *, kind: str) -> str:
    """Write a log of 40 steps in which these values are those of every step, and the norm is 0.5 before the last."""
    norms = [name for name in GRADIENT_NORM_KEYS if name in values][:1]
    rows = [{**values, **(dict.fromkeys(norms, 0.5) if step < 39 else {}), "train/loss": 2.0} for step in range(40)]
    if kind == "levanter":
        events = [{"tracker": "json_logger", "event": "log", "step": step, "metrics": each} for step, each in enumerate(rows)]
        path.write_text("".join(json.dumps(each) + "\n" for each in events))
    elif kind == "jsonl":
        path.write_text("".join(json.dumps({"step": step, **each}) + "\n" for step, each in enumerate(rows)))
    else:
        names = list(rows[0])
        lines = [",".join(["step", *names]), *(",".join(map(str, (at, *each.values()))) for at, each in enumerate(rows))]
        path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.mark.parametrize("kind", ["levanter", "jsonl", "csv"])
def test_a_log_of_levanters_mixtures_is_read(kind: str, tmp_path: Path) -> None:
    place = log_of(LEVANTER, tmp_path / f"run.{'csv' if kind == 'csv' else 'jsonl'}", kind=kind)
    (run,) = read_tracked_runs(place, curves=GRADIENT_NORM_KEYS)
    found = stability_of_log(run)
    assert (len(found.norms), found.norms[-1], found.steps[-1]) == (40, 0.75, 39)
    assert (found.entropies, found.experts, found.dropped) == ([1.0, 1.2], 4, None)
    assert found.shares == [[0.25] * 4] * 2
    assert found.routed_at in (39, None)


def test_a_log_of_marins_mixtures_is_read(tmp_path: Path) -> None:
    """Overflow is the whole one, not that of senders; counts are divided by their sums."""
    place = log_of(MARIN, tmp_path / "run.jsonl", kind="levanter")
    (run,) = read_tracked_runs(place, curves=GRADIENT_NORM_KEYS)
    found = stability_of_log(run)
    assert found.dropped == 0.03
    assert found.entropies == [1.0, 1.2]
    assert found.shares[0] == pytest.approx([0.1, 0.3, 0.4, 0.2])
    assert len(stability_findings(found)) == 1


@pytest.mark.parametrize(
    ("key", "value", "dropped"),
    [
        ("moe/drop_fraction", 0.02, 0.02),
        ("moe/dropped_tokens_percent", 2.0, 0.02),
        ("router/token_drop_rate", 0.02, 0.02),
        ("moe/dropped_tokens", 120, None),
        ("model/dropout_rate", 0.1, None),
        ("data/dropped_fraction", 0.1, None),
        ("moe/drop_fraction", 20.0, None),
    ],
)
def test_dropped_tokens_are_taken_where_the_key_names_a_share(
    key: str, value: float, dropped: float | None, tmp_path: Path
) -> None:
    (run,) = read_tracked_runs(log_of({key: value}, tmp_path / "run.jsonl", kind="levanter"))
    assert stability_of_log(run).dropped == dropped


def test_a_log_without_such_keys_gives_nothing(tmp_path: Path) -> None:
    (run,) = read_tracked_runs(log_of({"moe_bias/layer_1/expert_0": 0.3}, tmp_path / "run.jsonl", kind="levanter"))
    assert stability_of_log(run).is_empty


def test_entropies_in_bits_become_nats(tmp_path: Path) -> None:
    values: dict[str, object] = {"router/entropy_bits": 3.0, "router/experts": 8}
    (run,) = read_tracked_runs(log_of(values, tmp_path / "run.jsonl", kind="levanter"))
    assert stability_of_log(run).entropies == [pytest.approx(math.log(8))]


def test_norms_leave_the_rows_of_the_losses_as_they_were(tmp_path: Path) -> None:
    """The curve of a run is read as without them."""
    place = log_of(LEVANTER, tmp_path / "run.jsonl", kind="levanter")
    (without,) = read_tracked_runs(place, curves=["train/loss"])
    (run,) = read_tracked_runs(place, curves=["train/loss", *GRADIENT_NORM_KEYS])
    assert without_norms(run) == list(without.history)


def test_lines_fit_a_terminal_of_80_columns() -> None:
    shares = [[0.1] * 7 + [0.3]] * 30
    norms = [1.0, 1.02] * 100 + [444.0] * 4 + [1.23e-5] * 60
    found = Stability(
        steps=[100_000 + step for step in range(len(norms))],
        norms=norms,
        entropies=[1.987654] * 30,
        experts=8,
        shares=shares,
        routed_at=100_200,
        dropped=0.012345,
    )
    assert max(map(len, stability_lines(found))) <= 80
    assert len(stability_lines(found)) == 8


@pytest.mark.parametrize("written", ["NaN", '"NaN"', "Infinity"])
def test_norms_that_are_not_finite_are_counted_from_their_first_step(written: str, tmp_path: Path) -> None:
    """A log that ends in them has no last norm to show, and says so."""
    lines = [json.dumps({"step": step, "train/loss": 2.0, "grad_norm": 0.5}) for step in range(40)]
    lines += [f'{{"step": {step}, "train/loss": 2.0, "grad_norm": {written}}}' for step in range(40, 50)]
    (tmp_path / "run.jsonl").write_text("\n".join(lines) + "\n")
    (run,) = read_tracked_runs(str(tmp_path / "run.jsonl"), curves=GRADIENT_NORM_KEYS)
    found = stability_of_log(run)
    assert (len(found.norms), len(found.broken), found.broken[0]) == (40, 10, 40)
    (finding,) = stability_findings(found)
    assert "10 of 50" in finding


def test_an_empty_cell_of_a_table_is_no_broken_norm(tmp_path: Path) -> None:
    """Norms are logged at fewer steps than losses."""
    rows = [f"{step},2.0,{0.5 if step % 10 == 0 else ''}" for step in range(100)]
    (tmp_path / "run.csv").write_text("\n".join(["step,train/loss,grad_norm", *rows]) + "\n")
    (run,) = read_tracked_runs(str(tmp_path / "run.csv"), curves=GRADIENT_NORM_KEYS)
    found = stability_of_log(run)
    assert (len(found.norms), len(found.broken)) == (10, 0)


def test_a_layer_that_drops_many_tokens_is_named_though_their_mean_is_small(tmp_path: Path) -> None:
    """Forty percent of one layer, three permille of all."""
    values = {"moe/drop_fraction": 0.003, "moe/layer0/drop_fraction": 0.0, "moe/layer1/drop_fraction": 0.4}
    (run,) = read_tracked_runs(log_of(values, tmp_path / "run.jsonl", kind="jsonl"), curves=GRADIENT_NORM_KEYS)
    found = stability_of_log(run)
    assert (found.dropped, found.most_dropped) == (0.003, 0.4)
    (finding,) = stability_findings(found)
    assert "40.00%" in finding
