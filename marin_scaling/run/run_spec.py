"""RunSpec: everything needed to repeat one training run. The digest of its canonical JSON is the run's name.

A file format (`spec.json`), therefore a strict pydantic model: unknown keys are refused. Plans nothing and trains nothing.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from marin_scaling.canonical_json import digest_of, dump_canonical, load_strict
from marin_scaling.errors import RecordError
from marin_scaling.recipe.flop_counting import FLOPS_CONVENTION, training_flops
from marin_scaling.recipe.model_shape import ModelShape

DIRECTORY_DIGITS = 16
"""How many hexadecimal digits of the spec's digest name the run's folder (64 bits; the whole digest stands in the record)."""


class Document(BaseModel):
    """A part of a file: frozen, finite, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ModelSpec(Document):
    """The shape of the model, as in `ModelShape`."""

    family: Literal["qwen3"] = "qwen3"
    hidden_dim: int = Field(gt=0)
    intermediate_dim: int = Field(gt=0)
    num_layers: int = Field(gt=0)
    num_heads: int = Field(gt=0)
    num_kv_heads: int = Field(gt=0)
    vocab_size: int = Field(gt=1)
    seq_len: int = Field(gt=1)

    def shape(self) -> ModelShape:
        """The same numbers as a `ModelShape`, which counts parameters."""
        return ModelShape(**self.model_dump(exclude={"family"}))


class OptimizerSpec(Document):
    """AdamH on matrices, Adam on embeddings and norms, and a warm-up, stable, decay schedule; fractions are of all steps."""

    name: Literal["adamH"] = "adamH"
    learning_rate: float = Field(gt=0)
    adam_learning_rate: float = Field(gt=0)
    beta1: float = Field(gt=0, lt=1)
    beta2: float = Field(gt=0, lt=1)
    epsilon: float = Field(gt=0)
    max_grad_norm: float = Field(gt=0)
    warmup_fraction: float = Field(ge=0, le=1)
    decay_fraction: float = Field(ge=0, le=1)
    min_learning_rate_ratio: float = Field(ge=0, le=1)
    z_loss_weight: float = Field(ge=0)


class DataSpec(Document):
    """The bytes that are trained and evaluated on, by digest."""

    source: str
    digest: str
    train_bytes: int = Field(gt=0)
    validation_bytes: int = Field(gt=0)


class EvaluationSpec(Document):
    """How the metric is measured: how many windows of which length, spread evenly over the held-out bytes."""

    metric: Literal["bits_per_byte"] = "bits_per_byte"
    seq_len: int = Field(gt=1)
    windows: int = Field(gt=0, multiple_of=64)
    protocol: Literal["disjoint-windows-first-byte-given"] = "disjoint-windows-first-byte-given"


class RunSpec(Document):
    """All one needs to repeat a run."""

    format_version: Literal[1] = 1
    ladder: str
    role: Literal["rung", "target"]
    recipe: str
    budget_flops: float = Field(gt=0)
    model: ModelSpec
    optimizer: OptimizerSpec
    batch_size: int = Field(gt=0)
    train_steps: int = Field(gt=0)
    seed: int = Field(ge=0)
    data_order_seed: int = Field(ge=0, lt=2**64)
    data: DataSpec
    evaluation: EvaluationSpec
    statement_sha256: str | None = None
    """Digest of the preregistration that this run answers; None for the rungs of a ladder."""

    @property
    def trained_tokens(self) -> int:
        """Batch size times sequence length times steps."""
        return self.batch_size * self.model.seq_len * self.train_steps

    @property
    def flops(self) -> float:
        """Training FLOPs by our formula; the convention is `FLOPS_CONVENTION`."""
        return training_flops(self.model.shape(), tokens=self.trained_tokens)

    @property
    def flops_convention(self) -> str:
        """Name of the formula that counted `flops`."""
        return FLOPS_CONVENTION

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
