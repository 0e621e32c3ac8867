"""`python -m marin_scaling.train.type_counts`: count parameters and FLOPs of a model by its registered name.

It reads a `Question` as JSON from standard input, and writes the counts, or the fault of a section. It runs the code of an
entry, so it is a process of its own, on the CPU.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import haliax as hax
import jax
import jax.numpy as jnp
from levanter.models.lm_model import LmConfig, LmExample
from levanter.optim.config import OptimizerConfig
from levanter.tracker.tracker import NoopConfig
from levanter.trainer import Trainer, TrainerConfig, initialize
from levanter.trainer_state import TrainerState
from pydantic import JsonValue

from marin_scaling.canonical_json import dump_canonical
from marin_scaling.errors import DocumentError, TrainingFailed
from marin_scaling.strict_model import Part
from marin_scaling.train.levanter_types import FIX_SECTION, decoded, run_code, told, with_fields
from marin_scaling.train.step import flattened, language_model_loss

_ON_THE_FORM = ("scan_layers", "gradient_checkpointing")


class Question(Part):
    """Model, optimizer and steps to count."""

    model: dict[str, JsonValue]
    optimizer: dict[str, JsonValue]
    code: str | None
    code_name: str
    vocab_size: int
    batch_sizes: tuple[int, ...]
    train_steps: int
    z_loss_weight: float


def counts(question: Question) -> dict[str, Any]:
    """Return the sections of a spec, and XLA's FLOPs of a step by batch size, with and without the optimizer."""
    if question.code:
        run_code(question.code, name=question.code_name)
    config, optimizer = _configurations(question)
    counted = config.flops_per_token(question.vocab_size, config.max_seq_len)
    if not isinstance(counted, int | float) or not 0 < counted < math.inf:
        raise DocumentError(
            f"model: flops_per_token of {question.model['type']} returns {counted!r}, not a number above zero.",
            why="The board compares entries by FLOPs.",
            fix="Return the forward FLOPs of one token from flops_per_token of the class.",
        )
    if not optimizer.learning_rate >= 0:
        raise DocumentError(f"optimizer.learning_rate is {optimizer.learning_rate!r}, below zero.", fix=FIX_SECTION)
    vocab = hax.Axis("vocab", question.vocab_size)
    shapes = eqx.filter_eval_shape(lambda: config.build(vocab, key=jax.random.PRNGKey(0)))
    named = [each for each in jax.tree.leaves(shapes, is_leaf=_is_named) if hasattr(each, "size")]
    embedded = sum(each.size for each in named if _is_named(each) and vocab.name in {axis.name for axis in each.axes})
    total = sum(each.size for each in named)
    model, own = dict(question.model), dict(question.optimizer)
    return {
        "model": {
            "type": model.pop("type"),
            "settings": model,
            "hidden_dim": config.Embed.size,
            "vocab_size": question.vocab_size,
            "seq_len": config.max_seq_len,
            "params_total": total,
            "params_non_embedding": total - embedded,
            "flops_per_token": 3.0 * counted,
        },
        "optimizer": {
            "type": own.pop("type"),
            "settings": own,
            "learning_rate": float(optimizer.learning_rate),
            "z_loss_weight": question.z_loss_weight,
        },
        "whole_settings": {"model": _plain(config), "optimizer": _plain(optimizer)},
        "xla_flops": {size: _xla_flops(config, optimizer, question, batch_size=size) for size in question.batch_sizes},
    }


def _configurations(question: Question) -> list[Any]:
    """Return the configurations of model and optimizer; `DocumentError` with the faults of both."""
    found, faults = list[Any](), list[DocumentError]()
    for kind, key in ((LmConfig, "model"), (OptimizerConfig, "optimizer")):
        try:
            found.append(decoded(kind, key, getattr(question, key)))
        except DocumentError as error:
            faults.append(error)
    if faults:
        lines = tuple(line for each in faults for line in each.lines)
        raise DocumentError(lines, why=" ".join(each.why for each in faults), fix=faults[0].fix)
    return found


def _plain(config: Any) -> dict[str, JsonValue]:
    """Return all settings of a configuration, those that are no number, truth value or text left out, by nested names."""
    found: dict[str, JsonValue] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            found[field.name] = _plain(value)
        elif isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
            found[field.name] = value
    return found


def _is_named(node: Any) -> bool:
    return isinstance(node, hax.NamedArray)


def _xla_flops(config: LmConfig, optimizer: OptimizerConfig, question: Question, *, batch_size: int) -> list[float]:
    """Return XLA's FLOPs of a step's gradients, and of the whole step.

    Layers are unrolled and not recomputed for this count, because XLA counts one pass of a loop. The program is counted as it
    is lowered, before XLA changes it; compiled programs of the measured models differ by 0.2 to 2 %.
    """
    config, built = with_fields(config, dict.fromkeys(_ON_THE_FORM, False)), optimizer.build(question.train_steps)
    key, tokens = jax.random.PRNGKey(0), jax.ShapeDtypeStruct((batch_size, config.max_seq_len), jnp.int32)
    with _trainer(built, question, batch_size=batch_size) as trainer:

        def begin() -> TrainerState:
            model = config.build(hax.Axis("vocab", question.vocab_size), key=key)
            return TrainerState.init(built, model, key=key, is_trainable=True, mp=trainer.mp)

        leaves, rebuild = flattened(eqx.filter_eval_shape(begin))
        found = []
        for whole in (False, True):

            def step(leaves: list[Any], tokens: Any, whole: bool = whole) -> Any:
                state, example = rebuild(leaves), (_example(tokens),)
                if whole:
                    result = trainer._train_step(state, example, {}, _no_hooks=True)
                    return jax.tree.leaves(eqx.filter((result.new_state, result.loss), eqx.is_array))
                loss, gradients, _ = trainer._compute_gradients_microbatched(trainer.loss_fn, state.model, *example, key=key)
                return jax.tree.leaves(eqx.filter((loss, gradients), eqx.is_array))

            found.append(float((jax.jit(step).lower(leaves, tokens).cost_analysis() or {}).get("flops", 0.0)))
    return found


def _example(tokens: Any) -> Any:
    axes = tuple(hax.Axis(name, size) for name, size in zip(("batch", "position"), tokens.shape, strict=True))
    weights = jnp.broadcast_to(jnp.arange(tokens.shape[1]) < tokens.shape[1] - 1, tokens.shape).astype(jnp.float32)
    return LmExample(tokens=hax.named(tokens, axes), loss_weight=hax.named(weights, axes))


@contextlib.contextmanager
def _trainer(optimizer: Any, question: Question, *, batch_size: int) -> Iterator[Trainer]:
    with tempfile.TemporaryDirectory() as folder:
        config = TrainerConfig(
            tracker=NoopConfig(), log_dir=Path(folder), train_batch_size=batch_size, require_accelerator=False, log_jaxprs=False
        )
        initialize(config)
        with Trainer(config, optimizer, language_model_loss(question.z_loss_weight), add_default_hooks=False) as trainer:
            yield trainer


def answer(question: Question) -> dict[str, Any]:
    """Return the counts, or the fault of the entry as `{"fault": {"what", "why", "fix"}}`."""
    try:
        return counts(question)
    except (DocumentError, TrainingFailed) as error:
        return {"fault": {"what": list(error.lines), "why": error.why, "fix": error.fix}}
    except Exception as error:  # whatever the code of an entry, or a class with these settings, raises
        what = told(error, question.code_name)
        fix = (
            f"Correct {question.code_name}."
            if question.code and what.startswith(question.code_name)
            else "Change the settings of model or optimizer."
        )
        return {"fault": {"what": [what], "why": "", "fix": fix}}


def main() -> None:
    """Answer one question."""
    question = Question.model_validate_json(sys.stdin.read())
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # an entry's code may print
    with answers:
        answers.write(dump_canonical(answer(question)))


if __name__ == "__main__":
    main()
