"""From planned rungs to run specs: the plan, the exact data and the evaluation bound together, ready to train."""

from __future__ import annotations

from dataclasses import asdict

from marin_scaling.canonical_json import sha256_hex
from marin_scaling.errors import DataError
from marin_scaling.ladder.ladder import Ladder
from marin_scaling.ladder.ladder_file import LadderFile
from marin_scaling.recipe.moe_shape import MoeShape
from marin_scaling.recipe.run_plan import RungPlan
from marin_scaling.run.byte_corpus import BYTE_VOCABULARY, ByteCorpus, require_windows
from marin_scaling.run.run_spec import DataSpec, EvaluationSpec, ModelSpec, MoeModelSpec, OptimizerSpec, RunSpec
from marin_scaling.units import format_flops


def rung_specs(ladder: Ladder, *, corpus: ByteCorpus) -> list[RunSpec]:
    """The spec of every rung, in the ladder's order."""
    return [_spec(ladder.file, rung.plan, seed=rung.seed, role="rung", corpus=corpus) for rung in ladder.rungs]


def target_spec(file: LadderFile, plan: RungPlan, *, corpus: ByteCorpus) -> RunSpec:
    """The spec of the target run, with the ladder's first seed and not yet bound to a statement."""
    return _spec(file, plan, seed=file.seeds[0], role="target", corpus=corpus).model_copy(update={"data_order_seed": 0})


def _spec(file: LadderFile, plan: RungPlan, *, seed: int, role: str, corpus: ByteCorpus) -> RunSpec:
    spec = RunSpec(
        ladder=file.name,
        role=role,  # type: ignore[arg-type]  # checked by pydantic
        recipe=plan.recipe,
        budget_flops=plan.budget_flops,
        model=model_of(plan),
        optimizer=optimizer_of(plan),
        batch_size=plan.batch_size,
        train_steps=plan.train_steps,
        seed=seed,
        data_order_seed=_data_order_seed(file.name, seed),
        data=DataSpec(
            source=corpus.source,
            digest=corpus.digest,
            train_bytes=len(corpus.train),
            validation_bytes=len(corpus.validation),
        ),
        evaluation=EvaluationSpec(metric=file.evaluation.metric, seq_len=plan.shape.seq_len, windows=file.evaluation.windows),
    )
    require_data(spec, corpus=corpus)
    return spec


def model_of(plan: RungPlan) -> ModelSpec | MoeModelSpec:
    """The plan's shape as it stands in its spec."""
    kind = MoeModelSpec if isinstance(plan.shape, MoeShape) else ModelSpec
    return kind(**asdict(plan.shape))


def optimizer_of(plan: RungPlan) -> OptimizerSpec:
    """The plan's optimizer, rates and schedule as they stand in its spec."""
    return OptimizerSpec(name=plan.optimizer, **asdict(plan.hyperparameters), **asdict(plan.schedule))


def require_data(spec: RunSpec, *, corpus: ByteCorpus) -> None:
    """`DataError` with both numbers when the run has another vocabulary than the data, or would see text twice."""
    if spec.model.vocab_size != BYTE_VOCABULARY:
        raise DataError(
            f"The recipe {spec.recipe!r} makes models of {spec.model.vocab_size} kinds of tokens; the data are bytes, of "
            f"{BYTE_VOCABULARY} kinds.",
            why="A model of other tokens than those it is trained on is another model, and its FLOPs are not what was planned.",
            fix="Take a byte-level recipe (quickstart), or set vocab_size in a recipe file.",
        )
    if spec.trained_tokens > len(corpus.train):
        raise DataError(
            f"The run of {format_flops(spec.budget_flops)} FLOPs at width {spec.model.hidden_dim} wants "
            f"{spec.trained_tokens} tokens; the training data has {len(corpus.train)}.",
            why="Text that is repeated is worth less than new text, and a law fitted across that border misleads.",
            fix="Lower the budget or raise the model size in the ladder file.",
        )
    require_windows(len(corpus.validation), seq_len=spec.evaluation.seq_len, windows=spec.evaluation.windows)


def _data_order_seed(ladder: str, seed: int) -> int:
    """64 bits from the ladder's name and the run's seed, so that rungs of one seed see the data in one order."""
    return int(sha256_hex(f"{ladder}/{seed}".encode())[:16], 16)
