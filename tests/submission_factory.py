"""A submission in which all adds up, and the same with something changed: ground for tests of validation and of the board."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

from marin_scaling.recipe.model_shape import WITH_LM_HEAD, training_flops
from marin_scaling.speedrun.submission import Shape, Submission

FINISHED_AT = datetime(2026, 11, 20, 12, tzinfo=UTC)
SHAPE = Shape(
    hidden_dim=512, intermediate_dim=1792, num_layers=6, num_heads=8, num_kv_heads=8, vocab_size=128_256, seq_len=4096
)
BATCH_SIZE, STEPS, SECONDS, BYTES = 128, 4959, 1200.0, 1_000_000
TOKENS = BATCH_SIZE * SHAPE.seq_len * STEPS


def seed_document(*, seed: int = 0, bits_per_byte: float = 1.17, **changes: Any) -> dict[str, Any]:
    """One run, as it stands in a file."""
    document = {
        "seed": seed,
        "bits_per_byte": bits_per_byte,
        "nats": bits_per_byte * BYTES * math.log(2),
        "training_seconds": SECONDS,
        "hardware_flops": SECONDS * 16 * 459e12,
        "started_at": (FINISHED_AT - timedelta(hours=1)).isoformat(),
        "finished_at": (FINISHED_AT + timedelta(seconds=seed)).isoformat(),
        "log": f"https://example.org/{seed}",
        "log_sha256": f"{seed:064x}",
        "curve": [{"step": 0, "bits_per_byte": 8.0}],
    }
    return document | changes


def retrained(**changes: Any) -> Submission:
    """The same runs, trained by somebody else an hour after they ended."""
    document = submission_document(**changes)
    started = (FINISHED_AT + timedelta(hours=1)).isoformat()
    ended = (FINISHED_AT + timedelta(hours=2)).isoformat()
    seeds = [seed | {"started_at": started, "finished_at": ended} for seed in document["seeds"]]
    return Submission.model_validate(document | {"seeds": seeds})


def submission_document(**changes: Any) -> dict[str, Any]:
    """The document of a `submission.json`."""
    document = {
        "schema_version": 1,
        "name": "llama/130m",
        "track": "fineweb-edu",
        "authors": [{"name": "Ada", "affiliation": "Example", "url": "https://example.org/ada"}],
        "code": {
            "repository": "https://example.org/code",
            "commit": "a" * 40,
            "tree_sha256": "b" * 64,
            "path": "train.py",
            "command": "python train.py",
        },
        "environment": {"python": "3.11.9", "packages": {"jax": "0.11.2"}},
        "data": {
            "name": "fineweb-edu-10B",
            "tokenizer": "llama3",
            "digest": "c" * 64,
            "unique_tokens": 10**10,
            "trained_tokens": TOKENS,
        },
        "model": {
            "params_total": 154_147_328,
            "params_active": 154_147_328,
            "params_non_embedding": 22_813_184,
            "shape": SHAPE.model_dump(),
        },
        "training": {"batch_size": BATCH_SIZE, "seq_len": SHAPE.seq_len, "steps": STEPS},
        "tuning": {
            "trials": 3,
            "budget_flops": 5e18,
            "selected_on": "paloma/c4_en",
            "grid": {"learning_rate": [0.001, 0.002, 0.004]},
            "chosen": {"learning_rate": 0.002},
        },
        "compute": {
            "model_flops": training_flops(SHAPE, tokens=TOKENS, convention=WITH_LM_HEAD),
            "hardware": {"kind": "v5p", "name": "v5p-32", "chips": 16, "peak_flops_per_second": 459e12},
            "cost_usd": 20.0,
        },
        "evaluation": {"name": "paloma/c4_en", "digest": "d" * 64, "bytes": BYTES, "tokenizer_sha256": "e" * 64},
        "seeds": [seed_document(seed=0), seed_document(seed=1, bits_per_byte=1.18)],
    }
    return document | changes


def submission(**changes: Any) -> Submission:
    """The same, read."""
    return Submission.model_validate(submission_document(**changes))


def changed(**paths: Any) -> Submission:
    """A sound submission with other values at these places, like `compute__hardware__chips=32`; of seeds in each."""
    document = submission_document()
    for path, value in paths.items():
        *above, key = path.split("__")
        parts = [document]
        for name in above:
            parts = [each for part in parts for each in (part[name] if isinstance(part[name], list) else [part[name]])]
        for part in parts:
            part[key] = value
    return Submission.model_validate(document)
