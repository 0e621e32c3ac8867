"""Specs and records of tiny runs for tests; real formats, made-up numbers that agree with each other."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marin_scaling.canonical_json import sha256_hex
from marin_scaling.data.corpus import TokenCorpus, byte_corpus
from marin_scaling.recipe.quickstart import QuickstartMoeRecipe
from marin_scaling.run.plan import model_of, optimizer_of
from marin_scaling.run.spec import DataSpec, EvaluationSpec, ModelSpec, OptimizerSpec, RunSpec
from marin_scaling.run.store import Hardware, History, HistoryRow, RunRecord

SHAPE = {
    "hidden_dim": 16,
    "intermediate_dim": 64,
    "num_layers": 2,
    "num_heads": 2,
    "num_kv_heads": 2,
    "vocab_size": 256,
    "seq_len": 32,
}
MOE_SHAPE = {
    **SHAPE,
    "intermediate_dim": 20,
    "num_heads": 4,
    "num_experts": 6,
    "experts_per_token": 2,
    "shared_intermediate_dim": 24,
    "norm_gate_rank": 3,
}


def corpus() -> TokenCorpus:
    """The bytes that `rung_spec` speaks of, with structure: a random walk over the alphabet."""
    random = np.random.default_rng(0)
    walk = (np.cumsum(random.integers(-1, 2, size=110_000)) % 256).astype(np.uint8)
    return byte_corpus(source="test", train=walk[:100_000], validation=walk[100_000:])


def rung_spec(**changes: Any) -> RunSpec:
    """A rung of ten steps of a model with 16,528 parameters; `changes` are fields of the spec."""
    fields: dict[str, Any] = {
        "ladder": "tiny",
        "role": "rung",
        "recipe": "quickstart",
        "budget_flops": 1e9,
        "model": ModelSpec(**SHAPE),
        "optimizer": OptimizerSpec(
            learning_rate=0.012,
            adam_learning_rate=0.04,
            beta1=0.9,
            beta2=0.97,
            epsilon=1e-8,
            max_grad_norm=1.0,
            warmup_fraction=0.1,
            decay_fraction=0.4,
            min_learning_rate_ratio=0.0,
            z_loss_weight=1e-7,
        ),
        "batch_size": 4,
        "train_steps": 10,
        "seed": 0,
        "data_order_seed": 7,
        "data": DataSpec(source="test", digest="d" * 64, train_bytes=100_000, validation_bytes=10_000),
        "evaluation": EvaluationSpec(seq_len=32, windows=64),
    }
    return RunSpec(**(fields | changes))


def mixture_spec(**changes: Any) -> RunSpec:
    """The same of a mixture of the recipe `quickstart-moe`, of width 16."""
    plan = QuickstartMoeRecipe().plan(budget_flops=3e10, hidden_dim=16)
    evaluation = EvaluationSpec(seq_len=plan.shape.seq_len, windows=64)
    return rung_spec(**({"model": model_of(plan), "optimizer": optimizer_of(plan), "evaluation": evaluation} | changes))


def record_of(spec: RunSpec, *, loss: float | None = 3.0, history: History | None = None) -> RunRecord:
    """A record that is the outcome of `spec`, with the given loss in bits per byte."""
    shape = spec.model.shape()
    return RunRecord(
        spec_digest=spec.digest,
        status="diverged" if loss is None else "finished",
        metric="bits_per_byte",
        loss=loss,
        flops=spec.flops,
        flops_convention=spec.flops_convention,
        params_total=shape.params_total,
        params_active=shape.params_active,
        params_non_embedding=shape.params_non_embedding,
        trained_tokens=spec.trained_tokens,
        seed=spec.seed,
        wall_seconds=1.0,
        step_seconds=0.5,
        started_at="2026-11-21T00:00:00+00:00",
        finished_at="2026-11-21T00:00:01+00:00",
        hardware=Hardware(platform="Linux x86_64, cpu", device_kind="cpu", device_count=1, cpu_count=2),
        versions={"python": "3.11.7"},
        data_digest=spec.data.digest,
        history_sha256=sha256_hex(history.to_bytes()) if history else "0" * 64,
        statement_sha256=spec.statement_sha256,
    )


def stand_in(script: Path, *, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell script stands for the training process, and writes into the file `seen` what `says` is for it."""
    script.write_text(f"#!/bin/sh\necho {says} >> seen\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))


def curve_lines(*losses: float | None) -> str:
    """The file of a curve with these losses."""
    rows = (HistoryRow(step=step, train_loss_nats_per_token=loss) for step, loss in enumerate(losses))
    return "".join(f"{row.model_dump_json()}\n" for row in rows)
