"""A small ladder with records, a forecast from it, a signed preregistration: ground for tests of signing and checking."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ed25519

from marin_scaling.canonical_json import sha256_hex
from marin_scaling.ladder.config import Promise
from marin_scaling.preregistration.format import LEVELS
from marin_scaling.preregistration.register import Evidence, Registration, preregister_target
from marin_scaling.preregistration.signing.keys import SigningKey
from marin_scaling.preregistration.signing.sshsig import public_key_of
from marin_scaling.run.spec import DataSpec, EvaluationSpec, ModelSpec, OptimizerSpec, RunSpec
from marin_scaling.run.store import Hardware, History, HistoryRow, RunRecord, add_run, read_runs

PRINCIPAL = "ada@example.org"
CREATED_AT = datetime(2026, 11, 20, 8, 30, tzinfo=UTC)
DUE = date(2030, 11, 1)
"""Within four years, the longest term: where nothing else is said, a forecast is pending until then."""
MEDIAN, SPREAD, ASYMPTOTE = 2.5, 0.1, 1.0
RUNGS = ((32, 1), (32, 2), (64, 1), (64, 2))


def run_spec(*, hidden_dim: int = 32, train_steps: int = 100, role: str = "rung", ladder: str = "tiny") -> RunSpec:
    """A spec of a tiny run; only sizes matter here."""
    return RunSpec(
        ladder=ladder,
        role=role,
        recipe="delphi",
        budget_flops=1e9,
        model=ModelSpec(
            hidden_dim=hidden_dim,
            intermediate_dim=4 * hidden_dim,
            num_layers=2,
            num_heads=2,
            num_kv_heads=2,
            vocab_size=256,
            seq_len=64,
        ),
        optimizer=OptimizerSpec(
            learning_rate=0.01,
            adam_learning_rate=0.001,
            beta1=0.9,
            beta2=0.95,
            epsilon=1e-8,
            max_grad_norm=1.0,
            warmup_fraction=0.1,
            decay_fraction=0.2,
            min_learning_rate_ratio=0.0,
            z_loss_weight=0.0,
        ),
        batch_size=8,
        train_steps=train_steps,
        seed=0,
        data_order_seed=0,
        data=DataSpec(source="stdlib", digest="d" * 64, train_bytes=1000, validation_bytes=100),
        evaluation=EvaluationSpec(seq_len=64, windows=64),
    )


def target_spec() -> RunSpec:
    """The target: about ten times the largest rung."""
    return run_spec(hidden_dim=128, train_steps=800, role="target")


def _an_hour_after(began: str) -> str:
    return f"{datetime.fromisoformat(began).astimezone(UTC) + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"


def store_run(runs_dir: Path, *, spec: RunSpec, loss: float | None, day: str = "2026-11-19", **changes: Any) -> Path:
    """Put a complete run into the store; a loss of None is a diverged run."""
    history = History(spec_digest=spec.digest, rows=(HistoryRow(step=0, train_loss_nats_per_token=5.5),))
    shape = spec.model.shape()
    fields: dict[str, Any] = {
        "spec_digest": spec.digest,
        "status": "diverged" if loss is None else "finished",
        "metric": "bits_per_byte",
        "loss": loss,
        "flops": spec.flops,
        "flops_convention": spec.flops_convention,
        "params_total": shape.params_total,
        "params_active": shape.params_active,
        "params_non_embedding": shape.params_non_embedding,
        "trained_tokens": spec.trained_tokens,
        "seed": spec.seed,
        "wall_seconds": 1.0,
        "step_seconds": 0.5,
        "started_at": f"{day}T10:00:00Z",
        "finished_at": _an_hour_after(changes.get("started_at", f"{day}T10:00:00Z")),
        "hardware": Hardware(platform="cpu", device_kind="cpu", device_count=1, cpu_count=2),
        "versions": {},
        "data_digest": spec.data.digest,
        "history_sha256": sha256_hex(history.to_bytes()),
        "statement_sha256": spec.statement_sha256,
    }
    return add_run(runs_dir, spec=spec, record=RunRecord(**{**fields, **changes}), history=history)


def store_ladder(runs_dir: Path, *, ladder: str = "tiny") -> list[dict[str, Any]]:
    """A ladder of four rungs in the store, and the rows of a table of them."""
    for hidden_dim, steps in RUNGS:
        spec = run_spec(hidden_dim=hidden_dim, train_steps=100 * steps, ladder=ladder)
        store_run(runs_dir, spec=spec, loss=1.0 + 100 * spec.flops**-0.2)
    return ladder_rows(runs_dir, ladder=ladder)


def ladder_rows(runs_dir: Path, *, ladder: str = "tiny") -> list[dict[str, Any]]:
    """The rows of a table of the ladder in the store."""
    return [
        {
            "run": run.spec.digest,
            "budget_flops": run.spec.budget_flops,
            "flops": run.record.flops,
            "params": run.record.params_total,
            "tokens": run.record.trained_tokens,
            "loss": run.record.loss,
        }
        for run in read_runs(runs_dir / ladder)
        if run.spec.role == "rung"
    ]


def forecast_document(*, flops: float | None = None, **changes: Any) -> dict[str, Any]:
    """A fit document whose one prediction is a normal distribution at the target's FLOPs."""
    normal = NormalDist(MEDIAN, SPREAD)
    prediction = {
        "flops": flops or target_spec().flops,
        "params": 1e5,
        "tokens": 1e6,
        "median": MEDIAN,
        "quantiles": {f"{level:g}": MEDIAN if level == 0.5 else normal.inv_cdf(level) for level in LEVELS},
        "bands": {"noise": 0.01, "sampling": 0.05},
        "sensitivity": [{"choice": "as forecast", "median": MEDIAN, "why_none": ""}],
        "extrapolation": 10.0,
    }
    document = {
        "law": "E + A * C^-alpha",
        "parameters": {"E": ASYMPTOTE, "A": 100.0, "alpha": 0.2},
        "status": "free asymptote",
        "seed": 0,
        "tool": "marin-scaling 0",
        "metric": "bits_per_byte",
        "predictions": [prediction],
        "excluded": [],
        "warnings": [],
        "backtest": [],
    }
    return {**document, **changes}


def signing_key(private_key: Any = None) -> SigningKey:
    """A key in memory."""
    private = private_key or ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    return SigningKey(private_key=private, public_key=public_key_of(private), path=Path("key"), note="signing with a test key")


def evidence(rows: list[dict[str, Any]], **changes: Any) -> Evidence:
    """What a forecast of the target is registered with; the recipe's document says of the numbers only the batch."""
    target = changes.get("target") or target_spec()
    forecast = changes.get("forecast") or forecast_document()
    parts: dict[str, Any] = {
        "forecast": forecast,
        "losses": losses_of(forecast),
        "recipe": {
            "recipe": target.recipe,
            "numbers": [{"name": "batch_size", "value": target.batch_size, "formula": "given", "source": "given"}],
            "constants": [],
        },
        "target": target,
    }
    return Evidence(rows=rows, **{**parts, **changes})


def losses_of(forecast: dict[str, Any]) -> list[float]:
    """Equally likely losses with the quantiles of a document's last prediction, as far as these say."""
    if "predictions" not in forecast:
        return [MEDIAN]
    stated = [(float(level), value) for level, value in forecast["predictions"][-1]["quantiles"].items() if level != "half"]
    levels, values = zip(*sorted(stated), strict=True)
    return [float(loss) for loss in np.interp([(draw + 0.5) / 2000 for draw in range(2000)], levels, values)]


EVIDENCE = ("forecast", "losses", "recipe", "target")


def make_registration(root: Path, **changes: Any) -> Registration:
    """A ladder in `root`/runs and its signed preregistration in `root`/preregistrations."""
    arguments: dict[str, Any] = {
        "promise": Promise(due=DUE),
        "registry_dir": root / "preregistrations",
        "key": signing_key(),
        "principal": PRINCIPAL,
        "slug": "tiny-target",
        "created_at": CREATED_AT,
    }
    rows = changes.pop("rows", None) or store_ladder(root / "runs")
    shown = evidence(rows, **{name: changes.pop(name) for name in EVIDENCE if name in changes})
    return preregister_target(shown, **{**arguments, **changes})


def make_second_registration(root: Path) -> Registration:
    """Another one in the same registry, of another target."""
    other = run_spec(hidden_dim=128, train_steps=900, role="target")
    rows, forecast = ladder_rows(root / "runs"), forecast_document(flops=other.flops)
    return make_registration(root, rows=rows, target=other, forecast=forecast, slug="second")
