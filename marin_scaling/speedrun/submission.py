"""A speedrun submission: its document, and reading and writing its file."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal

from pydantic import Field, JsonValue, ValidationError, model_validator

from marin_scaling.canonical_json import dump_canonical, load_strict
from marin_scaling.errors import DocumentError, MarinScalingError
from marin_scaling.files import publish_folder, read_bytes
from marin_scaling.limits import UNKNOWN_KEYS_NAMED
from marin_scaling.printable import joined, quoted
from marin_scaling.recipe.flops import WITH_LM_HEAD, training_flops
from marin_scaling.strict_model import Part
from marin_scaling.untrusted_text import SHA256, Amount, Commit, Count, Line, Link, Name, Words
from marin_scaling.yaml_config import PATTERNS, Moment

EXACT = 1e-6
"""Relative difference up to which two figures are one."""
LEVANTER_FLOPS = WITH_LM_HEAD
"""The formula by which all submissions can be compared: three forwards a token, full attention, with the output head."""

Level = Literal["self-reported", "log-checked", "re-evaluated", "reproduced", "reproduced-by-ci"]


class Author(Part):
    """Who made it."""

    name: Line
    """As they want to be called."""
    affiliation: Line | None = None
    """Where they work."""
    url: Link | None = None
    """A page of theirs."""


class Code(Part):
    """What was run."""

    repository: Link | None = None
    """Where it can be had."""
    commit: Commit | None = None
    """At which commit."""
    tree_sha256: SHA256 | None = None
    """Digest of the source files that ran, also where they were not committed."""
    path: Line | None = None
    """Of the script or folder in the repository."""
    command: Line | None = None
    """That runs it again."""


class Environment(Part):
    """On what software."""

    python: Line
    """Its version."""
    packages: dict[str, Line]
    """Versions of the libraries that the numbers hang on."""


class Data(Part):
    """What it was trained on."""

    name: Line
    """Of the data set."""
    tokenizer: Line | None = None
    """Its name."""
    digest: SHA256 | None = None
    """Of the tokens in their order."""
    unique_tokens: Count | None = None
    """How many tokens the data set has; with fewer than were trained on, text came again."""
    trained_tokens: Count | None = None
    """How many tokens were trained on."""


class Shape(Part):
    """The sizes that FLOPs are counted by."""

    hidden_dim: Count
    """Width."""
    intermediate_dim: Count
    """Of the gated MLP, or of one expert."""
    num_layers: Count
    """Depth."""
    num_heads: Count
    """Of queries."""
    num_kv_heads: Count
    """Of keys and values."""
    vocab_size: Count
    """Rows of the output head."""
    seq_len: Count
    """Tokens of a sequence."""
    num_experts: int = Field(default=0, ge=0)
    """Experts of a layer; 0 of a dense model."""
    experts_per_token: int = Field(default=0, ge=0)
    """How many of them a token goes through."""
    shared_intermediate_dim: int = Field(default=0, ge=0)
    """Of the expert that every token goes through, if there is one."""

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.hidden_dim // self.num_heads

    @property
    def mlp_dim_per_token(self) -> int:
        """Width of what one token goes through in one layer."""
        return self.intermediate_dim * (self.experts_per_token or 1) + self.shared_intermediate_dim

    @property
    def router_outputs(self) -> int:
        """What the router of a layer chooses from."""
        return self.num_experts


class Model(Part):
    """What was trained."""

    params_total: Count
    """All parameters."""
    params_active: Count | None = None
    """Those that one token uses; of a dense model all."""
    params_non_embedding: Count | None = None
    """Without input embedding and output head."""
    shape: Shape | None = None
    """Sizes, where FLOPs can be counted from them."""
    config: dict[str, JsonValue] = Field(default_factory=dict)
    """All else that was configured, in its author's names."""


class Training(Part):
    """How it was trained."""

    batch_size: Count
    """Sequences of a step."""
    seq_len: Count
    """Tokens of a sequence."""
    steps: Count
    """Of the optimizer."""
    config: dict[str, JsonValue] = Field(default_factory=dict)
    """All else that was configured, in its author's names."""


class Tuning(Part):
    """What was tried before this was shown."""

    trials: Count
    """How many runs were made to choose its settings, this one among them."""
    budget_flops: Amount | None = None
    """Model FLOPs of all of them."""
    selected_on: Line | None = None
    """By which metric the best was taken."""
    grid: dict[str, tuple[float, ...]] = Field(default_factory=dict)
    """Each setting's values that were tried."""
    chosen: dict[str, float] = Field(default_factory=dict)
    """The value of each that was taken."""


class Hardware(Part):
    """On which machine."""

    kind: Line
    """Of the chip, as in the hardware table: v5p, h100, cpu ..."""
    name: Line | None = None
    """Of the machine or slice, as it was rented: v5p-32."""
    chips: Count
    """How many chips, not cores; of a CPU its cores."""
    peak_flops_per_second: Amount | None = None
    """Of one chip, dense, in the precision that was used."""


class Compute(Part):
    """What one run cost."""

    model_flops: Amount
    """Of training, by the formula."""
    model_flops_formula: Line = LEVANTER_FLOPS
    """By which formula they were counted."""
    hardware: Hardware | None = None
    """On which machine."""
    cost_usd: Amount | None = None
    """What was paid, or the list price of its chip-hours."""


class Evaluation(Part):
    """How the result was measured."""

    name: Line
    """Of the held-out text: paloma/c4_en."""
    digest: SHA256 | None = None
    """Of its bytes."""
    bytes: Count | None = None
    """How many there are."""
    tokenizer_sha256: SHA256 | None = None
    """Digest of the tokenizer, without which bits per byte cannot be measured again."""


class CurvePoint(Part):
    """The held-out loss at one step."""

    step: int = Field(ge=0)
    """After how many."""
    bits_per_byte: float
    """Of the held-out text."""


class SeedResult(Part):
    """One run from one seed."""

    seed: int | None = None
    """Of initialisation and order of data, as it was run."""
    bits_per_byte: Amount
    """Of the held-out text at the end."""
    nats: Amount | None = None
    """Summed loss of the held-out text."""
    training_seconds: Amount | None = None
    """Of all steps, without compilation, evaluation and checkpoints."""
    hardware_flops: Amount | None = None
    """As it was stated: seconds times chips times peak."""
    started_at: Moment | None = None
    """When its first step began (UTC)."""
    finished_at: Moment | None = None
    """When its last step ended (UTC)."""
    log: Link | None = None
    """Where its log can be seen."""
    log_sha256: SHA256 | None = None
    """Digest of the log."""
    curve: tuple[CurvePoint, ...] = ()
    """Held-out loss on the way."""


class Lineage(Part):
    """What it was made from."""

    parent: Name
    """The submission that it changes."""
    changes: tuple[Line, ...] = ()
    """What was changed, a line each."""


class Verification(Part):
    """Who has seen that it is so."""

    level: Level = "self-reported"
    """From the author's word to a run that CI made again."""
    by: Line | None = None
    """Whose word it is."""
    evidence: Line | None = None
    """Where it can be seen."""


class Submission(Part):
    """One submission: one recipe at one size, from one seed or several."""

    schema_version: Literal[1] = 1
    """Of this format."""
    name: Name
    """Unique on the board; the part before the last slash is its scaling group."""
    track: Name
    """For which it is submitted."""
    title: Line | None = None
    """For a reader."""
    description: Words = ""
    """What is new in it."""
    authors: tuple[Author, ...] = Field(min_length=1)
    """Who made it."""
    code: Code | None = None
    """What was run."""
    environment: Environment | None = None
    """On what software."""
    data: Data
    """What it was trained on."""
    model: Model
    """What was trained."""
    training: Training | None = None
    """How it was trained."""
    tuning: Tuning | None = None
    """What was tried before this was shown."""
    compute: Compute
    """What one run cost."""
    evaluation: Evaluation
    """How the result was measured."""
    seeds: tuple[SeedResult, ...] = Field(min_length=1)
    """One entry a seed; none is left out."""
    lineage: Lineage | None = None
    """What it was made from."""
    verification: Verification = Verification()
    """Who has seen that it is so."""
    absent: dict[str, Line] = Field(default_factory=dict)
    """Why what is not known is not known, by key: "code", "data.digest", "seeds.log_sha256"."""
    imported_from: Line | None = None
    """Which file of which format it was made from, where it was not submitted in this one."""

    @model_validator(mode="after")
    def _what_is_missing_says_why(self) -> Submission:
        missing = set(missing_keys(self))
        if unsaid := sorted(key for key in missing if not _has_reason(key, self.absent)):
            raise ValueError(f"nothing is said of {joined(unsaid)}; put a value there, or the reason under absent")
        if idle := sorted(key for key in self.absent if not any(_within(each, key) for each in missing)):
            raise ValueError(f"absent says why there is no {joined(idle)}, and it is there, or no key of a submission")
        return self

    @property
    def group(self) -> str:
        """Submissions of one group are one recipe at several sizes."""
        return self.name.rpartition("/")[0] or self.name

    @property
    def bits_per_byte(self) -> float:
        """The mean over seeds."""
        return fmean(each.bits_per_byte for each in self.seeds)

    @property
    def standard_error(self) -> float | None:
        """Of that mean, from the spread of its seeds; None of a single one."""
        if len(self.seeds) < 2:
            return None
        return stdev([each.bits_per_byte for each in self.seeds]) / math.sqrt(len(self.seeds))

    @property
    def training_seconds(self) -> float | None:
        """The mean over seeds; None where one of them is not known."""
        times = [each.training_seconds for each in self.seeds if each.training_seconds is not None]
        return fmean(times) if len(times) == len(self.seeds) else None

    @property
    def chip_seconds(self) -> float | None:
        """Of one run; None where time or machine is not known."""
        hardware, seconds = self.compute.hardware, self.training_seconds
        return None if hardware is None or seconds is None else seconds * hardware.chips

    @property
    def hardware_flops(self) -> float | None:
        """Seconds times chips times peak, the mean over seeds; as stated where one of these is not known."""
        stated = [each.hardware_flops for each in self.seeds if each.hardware_flops is not None]
        mean = fmean(stated) if len(stated) == len(self.seeds) else None
        counted = self.counted_hardware_flops
        return counted if mean is None or (counted is not None and not math.isclose(mean, counted, rel_tol=EXACT)) else mean

    @property
    def counted_hardware_flops(self) -> float | None:
        """Seconds times chips times peak; None where one of these is not known."""
        peak = self.compute.hardware.peak_flops_per_second if self.compute.hardware else None
        return None if peak is None or self.chip_seconds is None else self.chip_seconds * peak

    @property
    def counted_flops(self) -> float | None:
        """Model FLOPs by the common formula; None where sizes or tokens are not known."""
        shape, tokens = self.model.shape, self.data.trained_tokens
        return None if shape is None or tokens is None else training_flops(shape, tokens=tokens, convention=WITH_LM_HEAD)

    @property
    def comparable_flops(self) -> float:
        """Model FLOPs by the common formula where they can be counted, else as stated."""
        stated, counted = self.compute.model_flops, self.counted_flops
        return stated if counted is None or math.isclose(stated, counted, rel_tol=EXACT) else counted

    @property
    def mfu(self) -> float | None:
        """Model FLOPs over hardware FLOPs."""
        return None if self.hardware_flops is None else self.compute.model_flops / self.hardware_flops

    @property
    def epochs(self) -> float | None:
        """How often the data set was seen; None where its size is not known."""
        trained, unique = self.data.trained_tokens, self.data.unique_tokens
        return None if trained is None or unique is None else trained / unique


def missing_keys(part: Part, *, below: str = "") -> Iterator[str]:
    """The keys of a submission that have no value, as `absent` names them; of seeds once for all.

    A curve that is empty is missing; a list of changes, a grid or an author's own settings may be empty.
    """
    for key in type(part).model_fields:
        value = getattr(part, key)
        if (value is None and key not in _NEED_NOT_BE) or (key == "curve" and not value):
            yield f"{below}{key}"
        elif key == "seeds":
            yield from sorted({each for seed in value for each in missing_keys(seed, below="seeds.")})
        elif isinstance(value, Part) and key not in _NEED_NOT_BE:
            yield from missing_keys(value, below=f"{below}{key}.")


_NEED_NOT_BE = {"title", "imported_from", "lineage", "verification", "absent"}
"""Keys whose absence says enough by itself."""


def _has_reason(key: str, absent: dict[str, str]) -> bool:
    return any(_within(key, given) for given in absent)


def _within(key: str, other: str) -> bool:
    return key == other or key.startswith(f"{other}.")


SUBMISSION_NAME = "submission.json"
MAX_SUBMISSION_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Submitted:
    """What lies in one place: a submission, or the reason why there is none."""

    place: Path
    submission: Submission | None
    refusal: str | None = None


def to_bytes(submission: Submission) -> bytes:
    """Canonical bytes; keys without a value are left out."""
    return dump_canonical(submission.model_dump(mode="json", exclude_none=True))


def parse_submission(raw: bytes, *, name: str) -> Submission:
    """The submission in these bytes; `DocumentError` names the first keys that are wrong."""
    if len(raw) > MAX_SUBMISSION_BYTES:
        raise _refusal(name, f"it has {len(raw)} bytes, more than {MAX_SUBMISSION_BYTES}")
    load_strict(raw, name=name)  # no key twice, no NaN
    try:
        return Submission.model_validate_json(raw, strict=True)
    except ValidationError as error:
        raise _refusal(name, explained(error)) from error


def read_submission(path: Path) -> Submission:
    """The submission in a file, or in the `submission.json` of a folder."""
    file = path / SUBMISSION_NAME if path.is_dir() else path
    return parse_submission(read_bytes(file), name=str(file))


def read_submissions(folder: Path) -> list[Submitted]:
    """All `submission.json` below a folder, or the one file, by path; one that is malformed is kept, with the reason.

    `StorageError` where there is no such folder or file.
    """
    if folder.is_dir():
        return [_read(path) for path in sorted(folder.rglob(SUBMISSION_NAME))]
    return [_parsed(folder, read_bytes(folder))]


def write_submission(folder: Path, submission: Submission) -> Path:
    """Publish a new submission in a folder of its own below `folder`; one that is there is never written over."""
    place = folder / submission.name
    publish_folder(place, {SUBMISSION_NAME: to_bytes(submission)})
    return place / SUBMISSION_NAME


def submission_schema() -> dict[str, Any]:
    """The JSON Schema of the format."""
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


def explained(error: ValidationError, *, with_values: bool = True) -> str:
    """The first keys that are wrong; not those that are only wrong because a part of theirs is.

    Where the file may hold what must not be published, its values are left out (not `with_values`).
    """
    wrong = error.errors(include_url=False)
    above = {each["loc"][:count] for each in wrong for count in range(len(each["loc"]))}
    inner = [each for each in wrong if each["loc"] not in above]
    rest = len(inner) - UNKNOWN_KEYS_NAMED
    more = f"; {rest} more keys are wrong" if rest > 0 else ""
    return "; ".join(_sentence(each, with_value=with_values) for each in inner[:UNKNOWN_KEYS_NAMED]) + more


def _sentence(error: Any, *, with_value: bool) -> str:
    where = quoted(".".join(map(str, error["loc"])) or "the whole")
    if error["type"] in ("missing", "value_error"):
        return f"{where}: {error['msg'].removeprefix('Value error, ')}"
    said = error["msg"]
    if error["type"] == "string_pattern_mismatch":
        said = f"it should be {PATTERNS[error['ctx']['pattern']]}"
    return f"{where}: {said} (it is {json.dumps(error['input'], default=str)[:60]})" if with_value else f"{where}: {said}"


def _refusal(name: str, reason: str) -> DocumentError:
    return DocumentError(
        f"{name} is no submission: {reason}.",
        why="What is not understood cannot be compared with others.",
        fix="Write keys as in the reference of submission files, or let the tool write it: marin-scale speedrun import.",
    )
