"""RunSpec: everything needed to repeat one training run. The digest of its canonical JSON is the run's name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

from pydantic import Field, JsonValue, ValidationError

from marin_scaling.canonical_json import digest_of, dump_canonical, load_strict
from marin_scaling.errors import RecordError, UsageError
from marin_scaling.ladder.config import Compute, MixPhase
from marin_scaling.recipe.base import RungKey, steps_before_decay
from marin_scaling.recipe.model_shape import (
    WITH_LM_HEAD,
    WITHOUT_LM_HEAD,
    ModelShape,
    OwnShape,
    flops_convention,
    shape_of,
    training_flops,
)
from marin_scaling.strict_model import Part, faults_of
from marin_scaling.units import TrainedMetric, format_flops

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

AnyPart = TypeVar("AnyPart", bound=Part)
DIRECTORY_DIGITS = 16
"""Hexadecimal digits of the spec's digest in the name of the run's folder (64 bits); the record has the whole digest."""


class _Sizes(Part):
    """Sizes that every model has."""

    hidden_dim: int = Field(gt=0)
    """Width of the residual stream."""
    intermediate_dim: int = Field(gt=0)
    """Width inside the gated MLP."""
    num_layers: int = Field(gt=0)
    """Number of blocks of attention and MLP."""
    num_heads: int = Field(gt=0)
    """Number of attention heads."""
    num_kv_heads: int = Field(gt=0)
    """Number of key and value heads; equally many query heads share each."""
    vocab_size: int = Field(gt=1)
    """Size of the vocabulary; 256 for bytes."""
    seq_len: int = Field(gt=1)
    """Tokens of a training sequence."""

    def shape(self) -> ModelShape:
        """Return the same numbers as a `ModelShape`, which counts parameters."""
        return shape_of(self.model_dump())


class ModelSpec(_Sizes):
    """The shape of a dense model, as in `ModelShape`."""

    family: Literal["qwen3"] = "qwen3"
    """Levanter's name of the architecture."""


class MoeModelSpec(_Sizes):
    """The shape of a mixture of experts, as in `MoeShape`; `intermediate_dim` is that of one expert."""

    family: Literal["grug-moe"] = "grug-moe"
    """Our name of the architecture."""
    num_experts: int = Field(gt=1)
    """Experts of each layer, without the shared one."""
    experts_per_token: int = Field(gt=0)
    """Experts that each token passes through."""
    shared_intermediate_dim: int = Field(gt=0)
    """Width inside the shared expert, which every token passes through."""
    norm_gate_rank: int = Field(gt=0)
    """Rank of the gate after each norm."""


class OwnModelSpec(Part):
    """A model of a class that Levanter knows by name; its own numbers are those that the class counts."""

    family: Literal["levanter"] = "levanter"
    """Kind of this section."""
    type: str
    """Name under which the class is registered."""
    settings: dict[str, JsonValue]
    """Settings of the class, by its own names."""
    hidden_dim: int = Field(gt=0)
    """Width of the residual stream."""
    vocab_size: int = Field(gt=1)
    """Size of the vocabulary; 256 for bytes."""
    seq_len: int = Field(gt=1)
    """Tokens of a training sequence."""
    params_total: int = Field(gt=0)
    """Counted parameters."""
    params_non_embedding: int = Field(ge=0)
    """Counted parameters of arrays without an axis for the vocabulary."""
    flops_per_token: float = Field(gt=0)
    """Training FLOPs per token: three times the forward FLOPs that the class counts."""

    def shape(self) -> OwnShape:
        """Return the counts."""
        return OwnShape(**self.model_dump(exclude={"family", "type", "settings"}))


class OptimizerSpec(Part):
    """AdamH or MuonH on matrices, Adam on embeddings and norms; warm-up, stable phase and decay as fractions of all steps."""

    name: Literal["adamH", "muonH"] = "adamH"
    """Levanter's name of the optimizer."""
    learning_rate: float = Field(gt=0)
    """Peak learning rate of the matrices."""
    adam_learning_rate: float = Field(gt=0)
    """Peak learning rate of embeddings and norms."""
    beta1: float = Field(gt=0, lt=1)
    """Decay of the mean of gradients."""
    beta2: float = Field(gt=0, lt=1)
    """Decay of the mean of squared gradients."""
    epsilon: float = Field(gt=0)
    """Constant added to the root of the mean square."""
    max_grad_norm: float = Field(ge=0)
    """Norm to which larger gradients are clipped; 0 for no clipping."""
    warmup_fraction: float = Field(ge=0, le=1)
    """Share of steps, at the start, in which learning rates rise from 0 to their peaks."""
    decay_fraction: float = Field(ge=0, le=1)
    """Share of steps, at the end, in which learning rates decay linearly."""
    min_learning_rate_ratio: float = Field(ge=0, le=1)
    """Final learning rate as a share of the peak."""
    z_loss_weight: float = Field(ge=0)
    """Weight of the squared log-normalizer of the output in the training loss; the metric does not include it."""
    router_z_loss_weight: float = Field(default=0.0, ge=0, exclude_if=lambda weight: weight == 0)
    """Weight of the squared log-normalizer of routers; the recorded training loss does not include it. Left out if 0."""
    constant_norm: Literal["matrix", "slice"] = Field(default="slice", exclude_if=lambda norm: norm == "slice")
    """Unit whose norm AdamH and MuonH keep: each matrix, as Marin's scanned layers do, or each slice along the first axis
    (`slice`) of a weight with an axis for heads, as Levanter does in layers that are not scanned. Left out if `slice`."""

    @property
    def without_rates(self) -> OptimizerSpec:
        """Return the optimizer with learning rates and epsilon, which are inputs of the compiled program, set to 1."""
        return self.model_copy(update={"learning_rate": 1.0, "adam_learning_rate": 1.0, "epsilon": 1.0})


class OwnOptimizerSpec(Part):
    """An optimizer of a class that Levanter knows by name, with its own schedule."""

    name: Literal["levanter"] = "levanter"
    """Kind of this section."""
    type: str
    """Name under which the class is registered."""
    settings: dict[str, JsonValue]
    """Settings of the class, by its own names."""
    learning_rate: float = Field(ge=0)
    """Peak learning rate."""
    z_loss_weight: float = Field(ge=0)
    """Weight of the squared log-normalizer of the output in the training loss; the metric does not include it."""

    @property
    def decay_fraction(self) -> float:
        """0: when the rates of this schedule decay is not known here."""
        return 0.0


class BatchStage(Part):
    """A batch size from a step on, by Levanter's names."""

    start: int = Field(ge=0)
    """First step with this batch size, from 0."""
    value: int = Field(gt=0)
    """Sequences per step."""


class TokenizerSpec(Part):
    """The tokenizer by name and digest."""

    name: str
    """Folder, or name on the Hugging Face hub, as in the ladder file."""
    digest: str
    """SHA-256 of the whole tokenizer and its end-of-text token."""
    size: int = Field(gt=1)
    """Size of the vocabulary."""


class NamedTokens(Part):
    """Named tokens: a held-out set, or the training text of a part of a mix."""

    tokens: int = Field(gt=0)
    """Number of tokens."""
    bytes: int = Field(gt=0)
    """Bytes of text that the tokens encode."""
    digest: str
    """SHA-256 of the tokens."""


class DataSpec(Part):
    """The text that is trained and evaluated on, by digest."""

    source: str
    """Name of the text's source."""
    digest: str
    """SHA-256 over the digests of training and held-out tokens."""
    train_bytes: int = Field(gt=0)
    """Bytes of training text."""
    validation_bytes: int = Field(gt=0)
    """Bytes of held-out text, over all sets."""
    tokenizer: TokenizerSpec | None = Field(default=None, exclude_if=lambda value: value is None)
    """Tokenizer; left out if every byte is a token."""
    train_tokens: int | None = Field(default=None, gt=0, exclude_if=lambda value: value is None)
    """Number of training tokens; left out if every byte is a token."""
    parts: dict[str, NamedTokens] = Field(default_factory=dict, exclude_if=lambda value: not value)
    """Training texts of a mix by name; left out for a single text."""
    held_out: dict[str, NamedTokens] = Field(default_factory=dict, exclude_if=lambda value: not value)
    """Held-out sets by name; left out for a single set without a name."""

    @property
    def tokens(self) -> int:
        """Number of training tokens."""
        return self.train_tokens or self.train_bytes


@dataclass(frozen=True, kw_only=True)
class Exposure:
    """A part of a mix as a run reads it.

    `share` of the run's windows are of this part, which has `available` ones; the run makes `passes` over the `read` ones.
    """

    name: str
    share: float
    available: int
    read: int
    passes: float


EvaluationProtocol = Literal["disjoint-windows-first-byte-given", "disjoint-windows-first-token-given-mean-of-sets"]


class EvaluationSpec(Part):
    """Protocol of the metric: number and length of windows, spread evenly over the held-out text."""

    metric: TrainedMetric = "bits_per_byte"
    """Cross entropy in bits per byte of text."""
    seq_len: int = Field(gt=1)
    """Tokens of a window."""
    windows: int = Field(gt=0, multiple_of=64)
    """Number of held-out windows, spread evenly over the held-out text."""
    protocol: EvaluationProtocol = "disjoint-windows-first-byte-given"
    """Disjoint windows; the first byte or token of each is context and not scored. With `mean-of-sets` the value is the
    unweighted mean over named sets, and all windows are taken of a set that has fewer than `windows`."""


class RunSpec(Part):
    """Complete description of a run, sufficient to repeat it."""

    format_version: Literal[1] = 1
    """Version of this file format."""
    ladder: str
    """Name of the ladder file."""
    role: Literal["rung", "target"]
    """Role: a rung is fitted, a target is forecast."""
    recipe: str
    """Name of the recipe that chose the values below."""
    budget_flops: float = Field(gt=0)
    """Planned FLOPs; the record has the actual cost, at most 1 % off."""
    model: Annotated[ModelSpec | MoeModelSpec | OwnModelSpec, Field(discriminator="family")]
    """Shape of the model."""
    optimizer: Annotated[OptimizerSpec | OwnOptimizerSpec, Field(discriminator="name")]
    """Optimizer and schedule."""
    code: str | None = Field(default=None, exclude_if=lambda code: code is None)
    """Python source that registers the classes of model and optimizer. Left out for Levanter's own."""
    batch_size: int = Field(gt=0)
    """Sequences per step; the largest of a schedule."""
    batch_schedule: tuple[BatchStage, ...] = Field(default=(), exclude_if=lambda stages: not stages)
    """Batch sizes from some steps on, the first from step 0. Left out if all steps have the same."""
    train_steps: int = Field(gt=0)
    """Number of optimizer steps."""
    seed: int = Field(ge=0)
    """Seed of the weights."""
    data_order_seed: int = Field(ge=0, lt=2**64)
    """Seed of the order of training windows; a target's is derived from its statement."""
    data: DataSpec
    """Training and held-out data."""
    epochs: int = Field(default=1, ge=1, exclude_if=lambda value: value == 1)
    """Passes over the training tokens, the last one perhaps partial; left out if 1."""
    mix: tuple[MixPhase, ...] = Field(default=(), exclude_if=lambda mix: not mix)
    """Weights of the parts of the training text, in one phase or several. Left out for a single text."""
    horizon_tokens: int | None = Field(default=None, gt=0, exclude_if=lambda value: value is None)
    """Tokens of the run whose repeats of each part this run simulates. Left out if none are simulated."""
    evaluation: EvaluationSpec
    """Protocol of the metric."""
    compute: Compute = Field(default=Compute(), exclude_if=lambda compute: compute == Compute())
    """Precision and devices of the steps; left out if default."""
    shared_trunk: bool = Field(default=False, exclude_if=lambda shared: not shared)
    """Runs of this width share their steps before the decay. Left out if each is trained from the beginning."""
    statement_sha256: str | None = None
    """Digest of the preregistration that this run answers; None for a rung."""

    @property
    def recipe_model(self) -> ModelSpec | MoeModelSpec:
        """Model of a recipe's run; `UsageError` for a class by its name."""
        if isinstance(self.model, OwnModelSpec):
            raise UsageError(
                f"The model of {self.directory_name} is {self.model.type!r}, a class by Levanter's name.",
                why="Only the models of recipes are written for other tools.",
                fix="Use Levanter's own converter for that class, or choose a run of a recipe.",
            )
        return self.model

    @property
    def recipe_optimizer(self) -> OptimizerSpec:
        """Optimizer of a recipe's run; `UsageError` for a class by its name."""
        if isinstance(self.optimizer, OwnOptimizerSpec):
            raise UsageError(
                f"The optimizer of {self.directory_name} is {self.optimizer.type!r}, a class by Levanter's name.",
                why="It has a schedule of its own.",
                fix="Choose a run of a recipe.",
            )
        return self.optimizer

    @property
    def trained_tokens(self) -> int:
        """Windows of all steps times sequence length."""
        return self.windows * self.model.seq_len

    @property
    def windows(self) -> int:
        """Training windows of all steps."""
        return self.windows_before(self.train_steps)

    def windows_before(self, step: int) -> int:
        """Return the number of windows of the steps before this one."""
        return windows_before(step, self.batch_schedule, batch_size=self.batch_size)

    @property
    def rung_name(self) -> str:
        """BUDGET/WIDTH, as in `marin-scale ladder --only`."""
        return f"{format_flops(self.budget_flops)}/{self.model.hidden_dim}"

    @property
    def rung_key(self) -> RungKey:
        """Name, seed, FLOPs, batch size and learning rate, as a plan has them."""
        return self.rung_name, self.seed, self.flops, self.batch_size, self.optimizer.learning_rate

    @property
    def measured_on(self) -> str:
        """Digest of held-out text and protocol; the losses of two runs are comparable if it is equal."""
        held_out = {name: each.digest for name, each in self.data.held_out.items()} or self.data.digest
        return digest_of({"held_out": held_out, "evaluation": self.evaluation.model_dump(mode="json")})[:16]

    @property
    def evaluated_windows(self) -> dict[str, int]:
        """Number of evaluated windows by held-out set: `windows`, or all windows of a set that has fewer."""
        from marin_scaling.data.corpus import HELD_OUT

        wanted, length = self.evaluation.windows, self.evaluation.seq_len
        named = {name: min(wanted, each.tokens // length) for name, each in self.data.held_out.items()}
        return named or {HELD_OUT: wanted}

    @property
    def exposures(self) -> tuple[Exposure, ...]:
        """Parts of a mix as the run reads them, in their order; empty for a single text."""
        windows, found = self.windows, []
        for name, part in self.data.parts.items():
            available = part.tokens // self.model.seq_len
            read = available
            if self.horizon_tokens is not None:
                read = max(1, round(available * min(1.0, self.trained_tokens / self.horizon_tokens)))
            wanted = sum(count * phase.mix.get(name, 0.0) for count, phase in self._phases)
            passes = wanted / max(1, read)
            found.append(Exposure(name=name, share=wanted / windows, available=available, read=read, passes=passes))
        return tuple(found)

    @property
    def _phases(self) -> list[tuple[int, MixPhase]]:
        """The phases of the mix with their numbers of windows, which add up to those of the run."""
        windows = self.windows
        ends = [0, *(round(phase.until * windows) for phase in self.mix)]
        return [(end - begin, phase) for (begin, end), phase in zip(pairwise(ends), self.mix, strict=True)]

    @property
    def is_repeating(self) -> bool:
        """Return True if the run sees tokens more than once. Simulated repeats do not count: all runs of a ladder have them."""
        if self.mix:
            return self.horizon_tokens is None and any(each.passes > 1 for each in self.exposures)
        return self.epochs > 1

    @property
    def unique_tokens(self) -> int | None:
        """Number of different training tokens if the run repeats any, None if it sees each at most once."""
        if not self.is_repeating:
            return None
        different = [each.read * min(1.0, each.passes) for each in self.exposures]
        return round(sum(different)) * self.model.seq_len if self.mix else self.data.tokens

    @property
    def times_seen(self) -> float:
        """Mean number of passes over each training token that the run reads."""
        return self.trained_tokens / (self.unique_tokens or (self.trained_tokens if self.mix else self.data.tokens))

    def window_starts(self) -> NDArray[np.int64]:
        """Return the first token of each training window in the training tokens, in the order of the run."""
        from marin_scaling.data.corpus import PartWindows, mixed_window_starts, training_window_starts

        length, seed = self.model.seq_len, self.data_order_seed
        if not self.mix:
            return training_window_starts(self.data.tokens, seq_len=length, seed=seed, epochs=self.epochs)
        firsts = accumulate((part.tokens for part in self.data.parts.values()), initial=0)
        parts = {
            each.name: PartWindows(first_token=first, windows=each.available, read=each.read)
            for first, each in zip(firsts, self.exposures, strict=False)
        }
        return mixed_window_starts(parts, [(count, phase.mix) for count, phase in self._phases], seq_len=length, seed=seed)

    @property
    def flops(self) -> float:
        """Training FLOPs by our formula, in the convention of this kind of model."""
        return training_flops(self.model.shape(), tokens=self.trained_tokens)

    @property
    def lm_head_flops(self) -> float:
        """Training FLOPs of the output head, which only some conventions count."""
        counted, not_counted = (
            training_flops(self.model.shape(), tokens=self.trained_tokens, convention=each)
            for each in (WITH_LM_HEAD, WITHOUT_LM_HEAD)
        )
        return counted - not_counted

    @property
    def flops_convention(self) -> str:
        """Name of the formula that counted `flops`."""
        return flops_convention(self.model.shape())

    @property
    def program_digest(self) -> str:
        """Digest of the compiled program; runs with the same digest share it on the same devices."""
        if isinstance(self.optimizer, OwnOptimizerSpec):  # its schedule is part of the program
            own = self.model_dump(mode="json", include={"model", "optimizer", "code", "batch_size", "train_steps", "compute"})
            return digest_of(own)
        parts = self.model_copy(update={"optimizer": self.optimizer.without_rates}).model_dump(mode="json")
        return digest_of({key: parts.get(key) for key in ("model", "optimizer", "batch_size", "compute")})

    @property
    def steps_before_decay(self) -> int:
        """Steps of warm-up and stable phase."""
        return steps_before_decay(self.train_steps, decay_fraction=self.optimizer.decay_fraction)

    @property
    def trunk_digest(self) -> str:
        """Digest of all that determines the steps before the decay, except their number."""
        parts = self.model_dump(mode="json", exclude={"budget_flops", "train_steps", "epochs", "evaluation"})
        optimizer = {key: value for key, value in parts["optimizer"].items() if not key.endswith("_fraction")}
        warmup_steps = int(parts["optimizer"].get("warmup_fraction", 0.0) * self.train_steps)
        return digest_of({**parts, "optimizer": optimizer, "warmup_steps": warmup_steps})

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON: the run's name."""
        return digest_of(self.model_dump(mode="json"))

    @property
    def directory_name(self) -> str:
        """Name of the run's folder in the store."""
        return self.digest[:DIRECTORY_DIGITS]

    def to_bytes(self) -> bytes:
        """Return the content of `spec.json`."""
        return dump_canonical(self.model_dump(mode="json"))


def windows_before(step: int, stages: Sequence[BatchStage], *, batch_size: int) -> int:
    """Return the number of windows in the steps before `step`; without stages, all have the same batch size.

    >>> windows_before(30, [BatchStage(start=0, value=8), BatchStage(start=10, value=16)], batch_size=16)
    400
    """
    if not stages:
        return batch_size * step
    ends = [*(stage.start for stage in stages[1:]), step]
    return sum(stage.value * max(0, min(end, step) - stage.start) for stage, end in zip(stages, ends, strict=True))


def differences(specs: Sequence[RunSpec]) -> dict[str, str]:
    """Return what sets each run apart from others of its rung, by its folder: ", lr 0.006", or "" if nothing does."""
    found = dict[str, str]()
    for name in dict.fromkeys(spec.rung_name for spec in specs):
        parts = {
            spec.directory_name: (f"seed {spec.seed}", f"lr {spec.optimizer.learning_rate:.3g}", f"batch {spec.batch_size}")
            for spec in specs
            if spec.rung_name == name
        }
        varied = [place for place in range(3) if len({each[place] for each in parts.values()}) > 1]
        found |= {folder: "".join(f", {each[place]}" for place in varied) for folder, each in parts.items()}
    return found


def by_trunk(specs: Sequence[RunSpec]) -> list[list[RunSpec]]:
    """Return the runs that share a trunk together, shortest first, and each other run alone, in order of the first of each."""
    found = dict[str, list[RunSpec]]()
    for spec in specs:
        found.setdefault(spec.trunk_digest if spec.shared_trunk else spec.digest, []).append(spec)
    return [sorted(alike, key=lambda spec: spec.train_steps) for alike in found.values()]


def read_spec(raw: bytes, *, name: str) -> RunSpec:
    """Parse the bytes of a `spec.json`; errors name the file `name`."""
    return parse_part(RunSpec, raw, name=name)


def parse_part(model: type[AnyPart], raw: bytes, *, name: str) -> AnyPart:
    """Parse the bytes of a file of the run store; `RecordError` lists the faults of the file `name`."""
    document = load_strict(raw, name=name)
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise RecordError(
            tuple(f"{name}: {fault.message}." for fault in faults_of(error, document)),
            fix="Restore the file from version control, or remove its folder and train the run again.",
        ) from error
