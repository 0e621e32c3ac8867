"""Speedrun submission: its document, and reading and writing its file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal

from pydantic import Field, JsonValue, ValidationError, model_validator

from marin_scaling.canonical_json import dump_canonical, load_strict, sha256_hex
from marin_scaling.errors import DocumentError, MarinScalingError
from marin_scaling.files import publish_folder, read_bytes, replace_file
from marin_scaling.printable import joined
from marin_scaling.recipe.model_shape import WITH_LM_HEAD, training_flops
from marin_scaling.run.spec import BatchStage, windows_before
from marin_scaling.strict_model import SHA256, Part, fault_text
from marin_scaling.untrusted_text import Amount, Commit, Count, Line, Link, Name, Words
from marin_scaling.yaml_config import AwareMoment, Document, Moment

EXACT = 1e-6
"""Largest relative difference of equal figures."""
LEVANTER_FLOPS = WITH_LM_HEAD
"""Common FLOPs formula: three forward passes per token, full attention, with the output head."""
MOST_ABOVE_OWN_COUNT, MOST_ABOVE_OWN_CODE = 1.25, 1.1
"""Ratio of XLA's FLOPs to the class's own from which XLA's are compared, for Levanter's classes and for code of the entry.

XLA also counts what formulas leave out: norms, activations and the softmax. Of Levanter's models with 4e4 parameters, Llama and
OLMo 2 have a ratio of 1.03, Mistral and Gemma of 1.17; a Llama with 9e5 parameters has 1.01, and the starter at width 16 1.05.
"""


def compared_flops(own: float, xla: float | None, *, has_code: bool) -> float:
    """Return the FLOPs that the board compares: those that the model's class counts, or XLA's if they are clearly more.

    >>> compared_flops(1e12, 1.2e12, has_code=False), compared_flops(1e12, 1.2e12, has_code=True)
    (1000000000000.0, 1200000000000.0)
    """
    most = MOST_ABOVE_OWN_CODE if has_code else MOST_ABOVE_OWN_COUNT
    return own if xla is None or xla <= most * own else xla


class Author(Part):
    """Author of a submission."""

    name: Line
    """Name, as the author prefers it."""
    affiliation: Line | None = None
    """Institution."""
    url: Link | None = None
    """Web page."""


class Code(Part):
    """Code that was run."""

    repository: Link | None = None
    """Web address of the repository."""
    commit: Commit | None = None
    """Commit that was run."""
    tree_sha256: SHA256 | None = None
    """Digest of the source files that ran, including uncommitted ones."""
    path: Line | None = None
    """Path of the script or folder in the repository."""
    command: Line | None = None
    """Command that runs it again."""


class Environment(Part):
    """Software of the run."""

    python: Line
    """Version of Python."""
    packages: dict[str, Line]
    """Versions of the libraries that affect the numbers."""


class Data(Part):
    """Training data."""

    name: Line
    """Name of the data set."""
    tokenizer: Line | None = None
    """Name of the tokenizer."""
    digest: SHA256 | None = None
    """SHA-256 of the tokens in order."""
    unique_tokens: Count | None = None
    """Tokens in the data set; training on more repeats text."""
    trained_tokens: Count | None = None
    """Trained tokens."""


class Shape(Part):
    """Sizes from which FLOPs are computed."""

    hidden_dim: Count
    """Width."""
    intermediate_dim: Count
    """Width of the gated MLP, or of one expert."""
    num_layers: Count
    """Number of layers."""
    num_heads: Count
    """Query heads."""
    num_kv_heads: Count
    """Key and value heads."""
    vocab_size: Count
    """Rows of the output head."""
    seq_len: Count
    """Tokens per sequence."""
    num_experts: int = Field(default=0, ge=0)
    """Experts per layer; 0 for a dense model."""
    experts_per_token: int = Field(default=0, ge=0)
    """Experts per token."""
    shared_intermediate_dim: int = Field(default=0, ge=0)
    """Width of the shared expert; 0 without one."""

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.hidden_dim // self.num_heads

    @property
    def mlp_dim_per_token(self) -> int:
        """Total MLP width that one token uses in a layer."""
        return self.intermediate_dim * (self.experts_per_token or 1) + self.shared_intermediate_dim

    @property
    def router_outputs(self) -> int:
        """Outputs of a layer's router."""
        return self.num_experts


class Model(Part):
    """Trained model."""

    params_total: Count
    """All parameters."""
    params_active: Count | None = None
    """Parameters that one token uses; equal to `params_total` for a dense model."""
    params_non_embedding: Count | None = None
    """Parameters without input embedding and output head."""
    shape: Shape | None = None
    """Sizes, if FLOPs can be computed from them."""
    flops_per_token: Amount | None = None
    """Training FLOPs per token as the model's class counts them, if they cannot be computed from sizes."""
    config: dict[str, JsonValue] = Field(default_factory=dict)
    """All other settings, under the author's names."""


class Training(Part):
    """Training of one run."""

    batch_size: Count
    """Sequences per step."""
    seq_len: Count
    """Tokens per sequence."""
    steps: Count
    """Optimizer steps."""
    batch_schedule: tuple[BatchStage, ...] = Field(default=(), exclude_if=lambda stages: not stages)
    """Batch sizes from some steps on, of which `batch_size` is the largest; empty if all steps have the same."""
    config: dict[str, JsonValue] = Field(default_factory=dict)
    """All other settings, under the author's names."""

    @property
    def stages(self) -> tuple[BatchStage, ...]:
        """Stages of the batch size, one if all steps have the same."""
        return self.batch_schedule or (BatchStage(start=0, value=self.batch_size),)

    @property
    def windows(self) -> int:
        """Sequences of all steps."""
        return windows_before(self.steps, self.batch_schedule, batch_size=self.batch_size)


class Tuning(Part):
    """Runs made to choose the settings."""

    trials: Count
    """Number of runs made to choose the settings, including those submitted."""
    budget_flops: Amount | None = None
    """Model FLOPs of all these runs."""
    selected_on: Line | None = None
    """Metric by which the best was chosen."""
    grid: dict[str, tuple[float, ...]] = Field(default_factory=dict)
    """Values tried for each setting."""
    chosen: dict[str, float] = Field(default_factory=dict)
    """Chosen value of each setting."""


class Hardware(Part):
    """Machine of the run."""

    kind: Line
    """Kind of chip, as in the hardware table: v5p, h100, cpu ..."""
    name: Line | None = None
    """Name of the machine or slice, as rented: v5p-32."""
    chips: Count
    """Number of chips, not cores; for a CPU its cores."""
    peak_flops_per_second: Amount | None = None
    """Dense peak of one chip in the precision used."""


class Compute(Part):
    """Cost of one run."""

    model_flops: Amount
    """Model FLOPs of training."""
    model_flops_formula: Line = LEVANTER_FLOPS
    """Formula of the model FLOPs."""
    xla_gradient_flops: Amount | None = None
    """FLOPs of all gradients as XLA counts them, for a model whose class counts its own."""
    xla_flops: Amount | None = None
    """FLOPs of all steps as XLA counts them, with the optimizer."""
    hardware: Hardware | None = None
    """Machine of the run."""
    cost_usd: Amount | None = None
    """Price paid, or the list price of its chip-hours."""


class Evaluation(Part):
    """Evaluation of the result."""

    name: Line
    """Name of the held-out text: paloma/c4_en."""
    digest: SHA256 | None = None
    """SHA-256 of its bytes."""
    bytes: Count | None = None
    """Number of its bytes."""
    tokenizer_sha256: SHA256 | None = None
    """SHA-256 of the tokenizer, needed to measure bits per byte again."""


class CurvePoint(Part):
    """Held-out loss at one step."""

    step: int = Field(ge=0)
    """Number of steps before the measurement."""
    bits_per_byte: float
    """Loss on the held-out text."""


class SeedResult(Part):
    """Run of one seed."""

    seed: int | None = None
    """Seed of initialization and data order."""
    bits_per_byte: Amount
    """Final loss on the held-out text."""
    nats: Amount | None = None
    """Summed loss on the held-out text."""
    training_seconds: Amount | None = None
    """Time of all steps, without compilation, evaluation and checkpoints."""
    hardware_flops: Amount | None = None
    """Hardware FLOPs as stated: seconds times chips times peak."""
    started_at: Moment | None = None
    """Start of the first step (UTC)."""
    finished_at: Moment | None = None
    """End of the last step (UTC)."""
    log: Link | None = None
    """Web address of the log."""
    log_sha256: SHA256 | None = None
    """SHA-256 of the log."""
    curve: tuple[CurvePoint, ...] = ()
    """Held-out loss during training."""


class Lineage(Part):
    """Parent of a submission."""

    parent: Name
    """Submission that this one changes."""
    changes: tuple[Line, ...] = ()
    """Changes from the parent, one per line."""


class Verification(Part):
    """Author's own statement; only a `confirmation.json` next to the submission states more."""

    level: Literal["self-reported"] = "self-reported"
    """Level that an author can state."""
    evidence: Line | None = None
    """Source of the figures."""


class Submission(Part):
    """Submission of one recipe at one size, from one seed or several."""

    schema_version: Literal[1] = 1
    """Version of this format."""
    name: Name
    """Unique name on the board; the part before the last slash is the scaling group."""
    track: Name
    """Track of the submission."""
    title: Line | None = None
    """Title for readers."""
    description: Words = ""
    """Description of what is new."""
    authors: tuple[Author, ...] = Field(min_length=1)
    """Authors."""
    code: Code | None = None
    """Code that was run."""
    environment: Environment | None = None
    """Software of the run."""
    data: Data
    """Training data."""
    model: Model
    """Trained model."""
    training: Training | None = None
    """Training of one run."""
    tuning: Tuning | None = None
    """Runs made to choose the settings."""
    compute: Compute
    """Cost of one run."""
    evaluation: Evaluation
    """Evaluation of the result."""
    seeds: tuple[SeedResult, ...] = Field(min_length=1)
    """Results of all seeds, one entry each."""
    lineage: Lineage | None = None
    """Parent of the submission."""
    verification: Verification = Verification()
    """Author's own statement of verification."""
    absent: dict[str, Line] = Field(default_factory=dict)
    """Reasons for missing values, by key: "code", "data.digest", "seeds.log_sha256"."""
    imported_from: Line | None = None
    """Source file and format, if the submission was imported."""

    @model_validator(mode="after")
    def _what_is_missing_says_why(self) -> Submission:
        missing = set(missing_keys(self))
        if unsaid := sorted(key for key in missing if not _has_reason(key, self.absent)):
            raise ValueError(f"no value for {joined(unsaid)}; add a value, or a reason under absent")
        if idle := sorted(key for key in self.absent if not any(_within(each, key) for each in missing)):
            raise ValueError(f"absent has a reason for {joined(idle)}, which has a value or is an unknown key")
        return self

    @property
    def group(self) -> str:
        """Scaling group: one recipe at several sizes."""
        return self.name.rpartition("/")[0] or self.name

    @property
    def bits_per_byte(self) -> float:
        """Mean over seeds."""
        return fmean(each.bits_per_byte for each in self.seeds)

    @property
    def standard_error(self) -> float | None:
        """Standard error of the mean over seeds; None for a single seed."""
        if len(self.seeds) < 2:
            return None
        return stdev([each.bits_per_byte for each in self.seeds]) / math.sqrt(len(self.seeds))

    @property
    def training_seconds(self) -> float | None:
        """Mean over seeds; None if one is unknown."""
        times = [each.training_seconds for each in self.seeds if each.training_seconds is not None]
        return fmean(times) if len(times) == len(self.seeds) else None

    @property
    def chip_seconds(self) -> float | None:
        """Chip-seconds of one run; None if time or machine is unknown."""
        hardware, seconds = self.compute.hardware, self.training_seconds
        return None if hardware is None or seconds is None else seconds * hardware.chips

    @property
    def hardware_flops(self) -> float | None:
        """Hardware FLOPs at peak: the mean of the stated values, else time times chips times peak."""
        stated = [each.hardware_flops for each in self.seeds if each.hardware_flops is not None]
        mean = fmean(stated) if len(stated) == len(self.seeds) else None
        counted = self.counted_hardware_flops
        return counted if mean is None or (counted is not None and not math.isclose(mean, counted, rel_tol=EXACT)) else mean

    @property
    def counted_hardware_flops(self) -> float | None:
        """Seconds times chips times peak; None if one of them is unknown."""
        peak = self.compute.hardware.peak_flops_per_second if self.compute.hardware else None
        return None if peak is None or self.chip_seconds is None else self.chip_seconds * peak

    @property
    def counted_flops(self) -> float | None:
        """Model FLOPs by the common formula, or the class's own count; None if sizes or tokens are unknown."""
        shape, own, tokens = self.model.shape, self.model.flops_per_token, self.data.trained_tokens
        if tokens is None or (shape is None and own is None):
            return None
        if shape is None:
            return compared_flops((own or 0.0) * tokens, self.compute.xla_gradient_flops, has_code=self.has_code)
        return training_flops(shape, tokens=tokens, convention=WITH_LM_HEAD)

    @property
    def has_code(self) -> bool:
        """True for an entry with Python code of its own, whose digest is stated."""
        return self.model.flops_per_token is not None and self.code is not None and self.code.tree_sha256 is not None

    @property
    def comparable_flops(self) -> float:
        """Model FLOPs by the common formula, else as stated."""
        stated, counted = self.compute.model_flops, self.counted_flops
        return stated if counted is None or math.isclose(stated, counted, rel_tol=EXACT) else counted

    @property
    def mfu(self) -> float | None:
        """Model FLOPs over hardware FLOPs."""
        return None if self.hardware_flops is None else self.compute.model_flops / self.hardware_flops

    @property
    def epochs(self) -> float | None:
        """Passes over the data set; None if its size is unknown."""
        trained, unique = self.data.trained_tokens, self.data.unique_tokens
        return None if trained is None or unique is None else trained / unique


def missing_keys(part: Part, *, below: str = "") -> Iterator[str]:
    """Yield the keys without a value, as `absent` names them; keys of seeds once for all.

    An empty curve is missing; empty lists of changes, grids and settings are allowed.
    """
    for key in type(part).model_fields:
        value = getattr(part, key)
        if (value is None and key not in _NEED_NOT_BE) or (key == "curve" and not value):
            yield f"{below}{key}"
        elif key == "seeds":
            yield from sorted({each for seed in value for each in missing_keys(seed, below="seeds.")})
        elif isinstance(value, Part) and key not in _NEED_NOT_BE:
            yield from missing_keys(value, below=f"{below}{key}.")


_NEED_NOT_BE = {
    *("title", "imported_from", "lineage", "verification", "absent"),
    *("flops_per_token", "xla_gradient_flops", "xla_flops"),  # of models whose class counts them
}
"""Keys that need no reason when they are absent."""


def _has_reason(key: str, absent: dict[str, str]) -> bool:
    return any(_within(key, given) for given in absent)


def _within(key: str, other: str) -> bool:
    return key == other or key.startswith(f"{other}.")


class ConfirmationFile(Part):
    """Confirmed retraining of a submission, written by `marin-scale speedrun confirm --by`."""

    schema_version: Literal[1] = 1
    """Version of this format."""
    submission_sha256: SHA256
    """SHA-256 of the confirmed `submission.json`."""
    by: Line
    """Person who retrained the entry, or the address of the workflow run that did."""
    at: AwareMoment
    """End of the retraining (UTC)."""
    retrained: Submission
    """Submission that the retraining gave, with its losses, settings, machine and software."""


SUBMISSION_NAME = "submission.json"
CONFIRMATION_NAME = "confirmation.json"
MAX_SUBMISSION_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Submitted:
    """Submission at one place, or the reason why it cannot be read."""

    place: Path
    submission: Submission | None
    refusal: str | None = None


def to_bytes(document: Submission | ConfirmationFile) -> bytes:
    """Return canonical bytes, without keys that have no value."""
    return dump_canonical(document.model_dump(mode="json", exclude_none=True))


def parse_submission(raw: bytes, *, name: str) -> Submission:
    """Return the submission in these bytes; `DocumentError` names the wrong keys."""
    return _parse(raw, Submission, name=name, noun="a submission")


def read_confirmation(path: Path) -> ConfirmationFile:
    """Read a `confirmation.json`; `DocumentError` names the wrong keys."""
    return _parse(read_bytes(path), ConfirmationFile, name=str(path), noun="a confirmation")


def write_confirmation(submission: Path, retrained: Submission, *, by: str, at: datetime) -> Path:
    """Write the confirmation of the submission in a file next to it, replacing an older one; return its path."""
    path = submission.with_name(CONFIRMATION_NAME)
    digest = sha256_hex(read_bytes(submission))
    replace_file(path, to_bytes(ConfirmationFile(submission_sha256=digest, by=by, at=at, retrained=retrained)))
    return path


def _parse(raw: bytes, model: type[Document], *, name: str, noun: str) -> Document:
    if len(raw) > MAX_SUBMISSION_BYTES:
        raise _refusal(name, noun, f"the file has {len(raw)} bytes; the limit is {MAX_SUBMISSION_BYTES}")
    document = load_strict(raw, name=name)
    try:
        return model.model_validate_json(raw, strict=True)
    except ValidationError as error:
        raise _refusal(name, noun, fault_text(error, document)) from error


def read_submission(path: Path) -> Submission:
    """Read the submission in a file, or in the `submission.json` of a folder."""
    file = path / SUBMISSION_NAME if path.is_dir() else path
    return parse_submission(read_bytes(file), name=str(file))


def read_submissions(folder: Path) -> list[Submitted]:
    """Read all `submission.json` below a folder, or one file, by path; malformed ones are kept with the reason.

    `StorageError` if the folder or file does not exist.
    """
    if folder.is_dir():
        return [_read(path) for path in sorted(folder.rglob(SUBMISSION_NAME))]
    return [_parsed(folder, read_bytes(folder))]


def write_submission(folder: Path, submission: Submission) -> Path:
    """Write a new submission into its own folder below `folder`; existing ones are never overwritten."""
    place = folder / submission.name
    publish_folder(place, {SUBMISSION_NAME: to_bytes(submission)})
    return place / SUBMISSION_NAME


def submission_schema() -> dict[str, Any]:
    """Return the JSON Schema of the format."""
    schema = Submission.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema


def _read(path: Path) -> Submitted:
    try:
        raw = read_bytes(path)
    except MarinScalingError as error:
        return Submitted(place=path, submission=None, refusal=error.what)
    return _parsed(path, raw)


def _parsed(path: Path, raw: bytes) -> Submitted:
    try:
        return Submitted(place=path, submission=parse_submission(raw, name=str(path)))
    except MarinScalingError as error:
        return Submitted(place=path, submission=None, refusal=error.what)


def _refusal(name: str, noun: str, reason: str) -> DocumentError:
    return DocumentError(
        f"{name} is not {noun}: {reason}.",
        why="Unknown keys and values cannot be compared.",
        fix="Fix the named keys; site/reference/submission-files.md lists all keys.",
    )
