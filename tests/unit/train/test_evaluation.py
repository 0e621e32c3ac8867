"""Bits per byte, against the sum of each token's loss by plain softmax, on each pinned version."""

import math
from pathlib import Path

import numpy as np
import pytest
from run_factory import rung_spec

from marin_scaling.data.corpus import RowFacts, TokenCorpus, TokenizerIdentity
from marin_scaling.run.plan import data_of

pytest.importorskip("levanter", reason="the train extra is not installed")
pytestmark = [pytest.mark.train, pytest.mark.filterwarnings("ignore")]


def corpus_of_words(sets: dict[str, int]) -> TokenCorpus:
    """Kinds of tokens of 0 to 7 bytes, and held-out sets of so many tokens."""
    random = np.random.default_rng(3)
    rows = {name: random.integers(0, 256, size).astype(np.uint8) for name, size in {"train": 10_000, **sets}.items()}
    token_bytes = (np.arange(256) % 8).astype(np.uint16)
    return TokenCorpus(
        source="words",
        tokenizer=TokenizerIdentity(name="words", digest="d" * 64, size=256),
        token_bytes=token_bytes,
        train=rows["train"],
        validation={name: rows[name] for name in sets},
        facts={name: RowFacts(tokens=len(row), text_bytes=4 * len(row), sha256="f" * 64) for name, row in rows.items()},
        digest="e" * 64,
    )


def test_bits_per_byte_are_all_losses_over_all_bytes_of_each_set(tmp_path: Path) -> None:
    """A set of 100 windows, one of 7 and a bit, of which all are taken; the first token of each window is not scored."""
    import haliax as hax
    import jax
    from levanter.trainer import Trainer, initialize

    from marin_scaling.train.levanter_config import trainer_config
    from marin_scaling.train.optimizer import initial_optimizer
    from marin_scaling.train.step import initial_state, language_model_loss
    from marin_scaling.train.train import _evaluate

    corpus = corpus_of_words({"long": 3_200, "short": 7 * 32 + 5})
    spec = rung_spec(data=data_of(corpus))
    config = trainer_config(spec, work_dir=tmp_path)
    initialize(config)
    optimizer = initial_optimizer(spec)
    with Trainer(config, optimizer, language_model_loss(0.0)) as trainer:
        model = initial_state(trainer, spec, optimizer).model
        measured = _evaluate(trainer, model, spec=spec, corpus=corpus)
        windows = {
            "long": corpus.validation["long"][np.linspace(0, 3_200 - 32, 64).round().astype(int)[:, None] + np.arange(32)],
            "short": corpus.validation["short"][np.linspace(0, 197, 7).round().astype(int)[:, None] + np.arange(32)],
        }
        for name, tokens in windows.items():
            axes = (hax.Axis("batch", len(tokens)), hax.Axis("position", 32))
            logits = model(hax.named(tokens.astype(np.int32), axes), attn_mask=_causal()).rearrange(
                ("batch", "position", "vocab")
            )
            logs = np.asarray(jax.nn.log_softmax(logits.array, axis=-1), np.float64)
            losses = -np.take_along_axis(logs[:, :-1], tokens[:, 1:, None].astype(int), axis=-1)
            expected = losses.sum() / math.log(2) / corpus.token_bytes[tokens[:, 1:]].sum()
            assert measured[name] == pytest.approx(expected, rel=1e-5)


def _causal() -> object:
    from levanter.layers.attention import AttentionMask

    return AttentionMask.causal()
