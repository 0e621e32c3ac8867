"""RunSpec: everything needed to repeat one training run. The digest of its canonical JSON is the run's name.

A file format (`spec.json`), therefore a strict pydantic model: unknown keys are refused. Plans nothing and trains nothing.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from marin_scaling.canonical_json import digest_of, dump_canonical, load_strict
from marin_scaling.errors import RecordError
from marin_scaling.ladder.config import Compute
from marin_scaling.recipe.flops import flops_convention, training_flops
from marin_scaling.recipe.model_shape import ModelShape, shape_of
from marin_scaling.units import TrainedMetric, format_flops

DIRECTORY_DIGITS = 16
"""How many hexadecimal digits of the spec's digest name the run's folder (64 bits; the whole digest stands in the record)."""


class Document(BaseModel):
    """A part of a file: frozen, finite, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


class _Sizes(Document):
    """What every model has."""

    hidden_dim: int = Field(gt=0)
    """Width of the residual stream."""
    intermediate_dim: int = Field(gt=0)
    """Width inside the gated MLP."""
    num_layers: int = Field(gt=0)
    """Blocks of attention and MLP."""
    num_heads: int = Field(gt=0)
    """Attention heads."""
    num_kv_heads: int = Field(gt=0)
    """Heads of keys and values; equally many query heads share each."""
    vocab_size: int = Field(gt=1)
    """Kinds of tokens; 256 for bytes."""
    seq_len: int = Field(gt=1)
    """Tokens of a training sequence."""

    def shape(self) -> ModelShape:
        """The same numbers as a `ModelShape`, which counts parameters."""
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
    """How many of them each token passes."""
    shared_intermediate_dim: int = Field(gt=0)
    """Width inside the expert that every token passes."""
    norm_gate_rank: int = Field(gt=0)
    """Rank of the gate after each norm."""


class OptimizerSpec(Document):
    """AdamH or MuonH on matrices, Adam on embeddings and norms; warm-up, stable and decay as fractions of all steps."""

    name: Literal["adamH", "muonH"] = "adamH"
    """Levanter's name of the optimizer."""
    learning_rate: float = Field(gt=0)
    """Peak rate of the matrices."""
    adam_learning_rate: float = Field(gt=0)
    """Peak rate of embeddings and norms."""
    beta1: float = Field(gt=0, lt=1)
    """Decay of the mean of gradients."""
    beta2: float = Field(gt=0, lt=1)
    """Decay of the mean of squared gradients."""
    epsilon: float = Field(gt=0)
    """Added to the root of the mean square."""
    max_grad_norm: float = Field(ge=0)
    """Gradients of a larger norm are scaled down to it; 0: none are."""
    warmup_fraction: float = Field(ge=0, le=1)
    """First part of the steps, in which the rates rise from 0 to their peaks."""
    decay_fraction: float = Field(ge=0, le=1)
    """Last part of the steps, in which they fall in a straight line."""
    min_learning_rate_ratio: float = Field(ge=0, le=1)
    """Where they end, as a share of the peaks."""
    z_loss_weight: float = Field(ge=0)
    """Weight of the squared log-normalizer of the output in the training loss; the metric has none."""
    router_z_loss_weight: float = Field(default=0.0, ge=0, exclude_if=lambda weight: weight == 0)
    """The same of routers; not in the recorded training loss. Left out where it is 0, as in every dense model."""
    constant_norm: Literal["matrix", "slice"] = Field(default="slice", exclude_if=lambda norm: norm == "slice")
    """What AdamH and MuonH keep the norm of: each matrix, as Marin's scanned layers do, or each slice along the first axis of a
    weight that has an axis for heads, as Levanter's optimizers do to layers that are not scanned. Left out where it is `slice`,
    which all runs before this key have."""

    @property
    def without_rates(self) -> OptimizerSpec:
        """What its program depends on: rates and epsilon are inputs of it, here 1."""
        return self.model_copy(update={"learning_rate": 1.0, "adam_learning_rate": 1.0, "epsilon": 1.0})


class TokenizerSpec(Document):
    """What turns text into tokens."""

    name: str
    """As in the ladder file: a folder, or a name on the Hugging Face hub."""
    digest: str
    """SHA-256 of all that it is, and of which token ends a text."""
    size: int = Field(gt=1)
    """Kinds of tokens."""


class HeldOutSpec(Document):
    """One named held-out set."""

    tokens: int = Field(gt=0)
    """Its tokens."""
    bytes: int = Field(gt=0)
    """Bytes of text that they stand for."""
    digest: str
    """SHA-256 of its tokens."""


class DataSpec(Document):
    """The text that is trained and evaluated on, by digest."""

    source: str
    """Where the text comes from, by name."""
    digest: str
    """SHA-256 over the digests of the tokens to train on and of the held-out ones."""
    train_bytes: int = Field(gt=0)
    """Bytes of text to train on."""
    validation_bytes: int = Field(gt=0)
    """Bytes of text held out, in all sets."""
    tokenizer: TokenizerSpec | None = Field(default=None, exclude_if=lambda value: value is None)
    """What makes the tokens; left out where every byte is one."""
    train_tokens: int | None = Field(default=None, gt=0, exclude_if=lambda value: value is None)
    """Tokens to train on; left out where every byte is one."""
    held_out: dict[str, HeldOutSpec] = Field(default_factory=dict, exclude_if=lambda value: not value)
    """The held-out sets by name; left out where there is one without a name."""

    @property
    def tokens(self) -> int:
        """Tokens to train on."""
        return self.train_tokens or self.train_bytes


EvaluationProtocol = Literal["disjoint-windows-first-byte-given", "disjoint-windows-first-token-given-mean-of-sets"]


class EvaluationSpec(Document):
    """How the metric is measured: how many windows of which length, spread evenly over the held-out bytes."""

    metric: TrainedMetric = "bits_per_byte"
    """What is measured: cross entropy in bits, by byte of text."""
    seq_len: int = Field(gt=1)
    """Tokens of a window."""
    windows: int = Field(gt=0, multiple_of=64)
    """How many held-out windows are evaluated, spread evenly over the held-out bytes."""
    protocol: EvaluationProtocol = "disjoint-windows-first-byte-given"
    """Windows do not overlap; the first byte or token of each is given and not scored. With `mean-of-sets` the value is the
    mean over named sets, each weighing the same, and of a set that has fewer windows all are taken."""


class RunSpec(Document):
    """All one needs to repeat a run."""

    format_version: Literal[1] = 1
    """Of this file."""
    ladder: str
    """Name of the ladder file."""
    role: Literal["rung", "target"]
    """A rung is fitted; a target is forecast."""
    recipe: str
    """Name of the recipe that made the choices below."""
    budget_flops: float = Field(gt=0)
    """FLOPs that the run was planned for; what it costs is in its record, at most 1 % off."""
    model: Annotated[ModelSpec | MoeModelSpec, Field(discriminator="family")]
    """The model's shape, below."""
    optimizer: OptimizerSpec
    """Optimizer and schedule, below."""
    batch_size: int = Field(gt=0)
    """Sequences a step."""
    train_steps: int = Field(gt=0)
    """Optimizer steps."""
    seed: int = Field(ge=0)
    """Of the weights."""
    data_order_seed: int = Field(ge=0, lt=2**64)
    """Of the order of the training windows; a target's follows from its statement."""
    data: DataSpec
    """What is trained on, below."""
    epochs: int = Field(default=1, ge=1, exclude_if=lambda value: value == 1)
    """How many times the training tokens are gone through, the last time perhaps in part; left out where it is once."""
    evaluation: EvaluationSpec
    """How it is measured, below."""
    compute: Compute = Field(default=Compute(), exclude_if=lambda compute: compute == Compute())
    """How its steps are computed, below; left out where it is as by default."""
    statement_sha256: str | None = None
    """Digest of the preregistration that this run answers; None for the rungs of a ladder."""

    @property
    def trained_tokens(self) -> int:
        """Batch size times sequence length times steps."""
        return self.batch_size * self.model.seq_len * self.train_steps

    @property
    def rung_name(self) -> str:
        """BUDGET/WIDTH, as `marin-scale ladder --only` takes it."""
        return f"{format_flops(self.budget_flops)}/{self.model.hidden_dim}"

    @property
    def measured_on(self) -> str:
        """What two runs have in common whose losses can be compared: the held-out text by digest, and the protocol."""
        held_out = {name: each.digest for name, each in self.data.held_out.items()} or self.data.digest
        return digest_of({"held_out": held_out, "evaluation": self.evaluation.model_dump(mode="json")})[:16]

    @property
    def evaluated_windows(self) -> dict[str, int]:
        """Windows that are evaluated, by held-out set: as many as are wanted, or all of a named set that has fewer."""
        from marin_scaling.data.corpus import HELD_OUT

        wanted, length = self.evaluation.windows, self.evaluation.seq_len
        named = {name: min(wanted, each.tokens // length) for name, each in self.data.held_out.items()}
        return named or {HELD_OUT: wanted}

    @property
    def times_seen(self) -> float:
        """How many times each training token is seen, on average."""
        return self.trained_tokens / self.data.tokens

    @property
    def flops(self) -> float:
        """Training FLOPs by our formula, in the convention of this kind of model."""
        return training_flops(self.model.shape(), tokens=self.trained_tokens)

    @property
    def flops_convention(self) -> str:
        """Name of the formula that counted `flops`."""
        return flops_convention(self.model.shape())

    @property
    def program_digest(self) -> str:
        """Runs in which it is the same share their compiled programs, on the same devices."""
        parts = self.model_copy(update={"optimizer": self.optimizer.without_rates}).model_dump(mode="json")
        return digest_of({key: parts.get(key) for key in ("model", "optimizer", "batch_size", "compute")})

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON: the run's name."""
        return digest_of(self.model_dump(mode="json"))

    @property
    def directory_name(self) -> str:
        """Name of the run's folder in the store."""
        return self.digest[:DIRECTORY_DIGITS]

    def to_bytes(self) -> bytes:
        """The content of `spec.json`."""
        return dump_canonical(self.model_dump(mode="json"))


def read_spec(raw: bytes, *, name: str) -> RunSpec:
    """The spec in the bytes of a `spec.json`; `name` is the file to speak of in errors."""
    try:
        return RunSpec.model_validate(load_strict(raw, name=name))
    except ValidationError as error:
        raise _malformed(name, error) from error


def _malformed(name: str, error: ValidationError) -> RecordError:
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    return RecordError(
        f"{name}: {key or 'document'}: {first['msg']}.",
        why="A spec or record that is not of this format cannot be used in a fit.",
        fix="Restore the file from version control, or remove its folder and train the run again.",
    )
