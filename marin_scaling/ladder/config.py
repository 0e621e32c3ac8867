"""The ladder file: budgets, target, data, compute, hardware and promise."""

from __future__ import annotations

import datetime
import json
import math
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from marin_scaling.accelerators import ACCELERATORS, Accelerator, accelerator
from marin_scaling.errors import LadderFileError
from marin_scaling.files import read_bytes
from marin_scaling.strict_model import PERSON_PATTERN, SLUG_PATTERN, Part, in_words
from marin_scaling.units import TrainedMetric, format_number
from marin_scaling.untrusted_text import plain_address, plain_data_set
from marin_scaling.yaml_config import read_yaml


def _each_once(seeds: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"duplicate seed in {', '.join(map(str, seeds))}")
    return seeds


Seeds = Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1), AfterValidator(_each_once)]


class Compute(Part):
    """Precision, memory use and attention of training steps. The defaults are fastest for tiny models on a CPU."""

    precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of activations and products, in training and evaluation; parameters, optimizer state and loss are float32."""
    attention: Literal["plain", "flash"] = "plain"
    """`flash` does not store the attention matrix. It uses Levanter's kernel for the device, on a GPU without one cuDNN's (in
    bfloat16, for heads of up to 128), or else Levanter's version in JAX."""
    recompute: bool = False
    """Store only the inputs of each layer, and recompute the rest in the backward pass."""
    sequences_at_a_time: int | None = Field(default=None, gt=0)
    """Sequences that one device processes at once, with gradients summed over the batch; default: the whole batch."""


class RungsAtBudget(Part):
    """One budget and its widths: listed, or a number of the recipe's."""

    budget_flops: float = Field(gt=0)
    """Training FLOPs of each of these runs."""
    hidden_dims: tuple[int, ...] | None = Field(default=None, min_length=1)
    """Widths; the recipe derives the rest of the shape. Default: all widths that the recipe finds sensible at this budget."""
    sizes: int | None = Field(default=None, gt=0)
    """Number of the recipe's widths, evenly spread from the narrowest to the widest; instead of hidden_dims."""

    @model_validator(mode="after")
    def _one_choice(self) -> RungsAtBudget:
        if self.hidden_dims is not None and self.sizes is not None:
            raise ValueError("hidden_dims and sizes both choose the widths; leave one of them out")
        return self


class Target(Part):
    """Large run that the ladder forecasts."""

    budget_flops: float = Field(gt=0)
    """Training FLOPs, more than those of the largest rung; the fit chooses the width."""
    batch_size: int | None = Field(default=None, gt=0)
    """Sequences per step if the hardware decides; default: the recipe's."""
    seed: int | None = Field(default=None, ge=0)
    """Seed of the weights; default: the ladder's first."""


class Texts(Part):
    """Location of text: files, a data set on the Hugging Face hub, or a cache of tokens; exactly one of the three."""

    files: tuple[str, ...] | None = Field(default=None, min_length=1)
    """Addresses of files of JSON lines (`.jsonl`), Parquet or text (`.txt`, `.md`, `.py`), also compressed; `*` matches."""
    dataset: str | None = None
    """Name of a data set on the Hugging Face hub, or a folder with its layout."""
    config: str | None = None
    """Configuration of the data set, if it has several."""
    revision: str | None = None
    """Branch, tag or commit of the data set."""
    split: str = "train"
    """Split of the data set."""
    cache: str | None = None
    """Cache of tokens that Levanter built with `data.tokenizer`."""
    text_key: str | None = Field(default=None, min_length=1, exclude_if=lambda key: key is None)
    """Key of the text in a row of these texts; default: `data.text_key`."""

    @field_validator("files", mode="before")
    @classmethod
    def _one_or_many(cls, files: Any) -> Any:
        return [files] if isinstance(files, str) else files

    @field_validator("files", "cache")
    @classmethod
    def _are_plain(cls, named: tuple[str, ...] | str | None) -> tuple[str, ...] | str | None:
        for address in (named,) if isinstance(named, str) else named or ():
            plain_address(address)
        return named

    @field_validator("dataset")
    @classmethod
    def _is_no_reader(cls, dataset: str | None) -> str | None:
        return dataset and plain_data_set(dataset)

    @model_validator(mode="after")
    def _one_place(self) -> Texts:
        given = [name for name in ("files", "dataset", "cache") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"exactly one of files, dataset and cache is needed; given: {', '.join(given) or 'none'}")
        if self.dataset is None and (self.config or self.revision or self.split != "train"):
            raise ValueError("config, revision and split need a dataset")
        return self

    @property
    def location(self) -> str:
        """Short name of the location."""
        return self.cache or self.dataset or ", ".join(self.files or ())


_SET = in_words("^[a-z0-9][a-z0-9_-]{0,31}$", "a name of at most 32 lower-case letters, digits, _ and -")
_SOURCE = in_words("^[a-z0-9][a-z0-9._-]{0,63}$", "a name of at most 64 lower-case letters, digits and ._-")
SetName = Annotated[str, Field(pattern=_SET)]
STANDARD_LIBRARY = "python-standard-library"
DEFAULT_HELD_OUT = 0.01
"""Share of the training documents that is held out where a ladder file names no held-out text."""


def _sum_to_one(mix: dict[str, float]) -> dict[str, float]:
    """Return the weights; `ValueError` with their sum if it is not one, to within rounding of four decimals."""
    total = math.fsum(mix.values())
    if abs(total - 1) > _ROUNDING * len(mix):
        raise ValueError(f"the weights {' + '.join(f'{weight:g}' for weight in mix.values())} add up to {total:g}, not to 1")
    return mix


_ROUNDING = 1e-4
Mix = Annotated[dict[SetName, Annotated[float, Field(ge=0, le=1)]], Field(min_length=1), AfterValidator(_sum_to_one)]
"""Weights of corpora by name, which add up to one; a corpus without a weight is only evaluated."""


class MixPhase(Part):
    """Phase of a run: a mix, and the share of the run's steps at which it ends."""

    mix: Mix
    """Weights of the corpora, which add up to one."""
    until: float = Field(default=1.0, gt=0, le=1)
    """Share of the run at which the phase ends; the last one ends at 1."""


class Data(Part):
    """Training and held-out text: the sources of the Python that trains, or your own text."""

    source: str = Field(default=STANDARD_LIBRARY, pattern=_SOURCE)
    """Name of the text in records and pages."""
    train: Texts | None = None
    """Training text."""
    corpora: dict[SetName, Texts] = Field(default_factory=dict, exclude_if=lambda corpora: not corpora)
    """Instead of `train`: named texts, of which `mix` or `phases` says how much a run reads. Without `validation`, some
    documents of each are held out, under its name."""
    mix: Mix | None = Field(default=None, exclude_if=lambda mix: mix is None)
    """Weights of the corpora in every batch: `{web: 0.9, code: 0.1}`."""
    phases: tuple[MixPhase, ...] = Field(default=(), exclude_if=lambda phases: not phases)
    """Instead of `mix`: several mixes, one after the other, as for a change of the mix at 80 % of each run."""
    horizon: Literal["target"] | Annotated[float, Field(gt=0)] | None = Field(
        default=None, exclude_if=lambda horizon: horizon is None
    )
    """Tokens of the run whose repeats all runs simulate: a run reads a part of each corpus, so that it sees it as often as a
    run of so many tokens does. `target` takes the tokens that are expected of the target. Default: nothing is simulated."""
    validation: dict[SetName, Texts] = Field(default_factory=dict)
    """Held-out text by name; the loss is the unweighted mean over these sets."""
    held_out: float | None = Field(default=None, gt=0, le=0.5, exclude_if=lambda share: share is None)
    """Instead of `validation`: the share of training documents to hold out, chosen by their text's digest; default: 0.01."""
    tokenizer: str = "bytes"
    """`bytes`, a folder with a tokenizer, or its name on the Hugging Face hub."""
    end_token: str | None = Field(default=None, min_length=1, exclude_if=lambda token: token is None)
    """The token after each document, for a tokenizer whose files name none."""
    text_key: str = "text"
    """Key of the text in a line of JSON or a row; for nested rows the keys on the way, as in `message.content`."""
    epochs: int = Field(default=1, ge=1)
    """Maximal number of passes over the training text, or over each corpus of a mix; a run that needs more is refused."""
    order: str | None = Field(default=None, min_length=1, exclude_if=lambda order: order is None)
    """Name that, with a run's seed, gives the order of the text; default: one for all ladders, or that of recorded runs."""
    overlap: Literal["refuse", "leave-out"] = "refuse"
    """Treatment of training documents that are held out too."""

    @field_validator("tokenizer")
    @classmethod
    def _is_plain(cls, tokenizer: str) -> str:
        return plain_address(tokenizer)

    @field_validator("validation", "corpora")
    @classmethod
    def _names_are_free(cls, named: dict[str, Texts]) -> dict[str, Texts]:
        for taken in ("train", "validation"):
            if taken in named:
                raise ValueError(f"{taken!r} is reserved; give these texts another name")
        return named

    @model_validator(mode="after")
    def _all_or_nothing(self) -> Data:
        if self.train is not None and self.corpora:
            raise ValueError("train is one text, corpora are the parts of a mix; choose one of them")
        if bool(self.texts) == (self.source == STANDARD_LIBRARY):
            raise ValueError(f"your own text needs train or corpora, and a source other than {STANDARD_LIBRARY!r}")
        if not self.texts and (self.validation or self.held_out):
            raise ValueError("validation and held_out need train or corpora")
        if self.validation and self.held_out:
            raise ValueError("held_out takes its text from train, validation from elsewhere; choose one of them")
        if not self.texts and (self.tokenizer, self.end_token, self.epochs) != ("bytes", None, 1):
            raise ValueError("the standard library allows only tokenizer bytes and one epoch")
        return self

    @model_validator(mode="after")
    def _is_one_mix(self) -> Data:
        if bool(self.corpora) != bool(self.mix or self.phases) or (self.mix and self.phases):
            raise ValueError("corpora need either mix or phases, as in mix: {web: 0.9, code: 0.1}")
        if self.horizon is not None and not self.corpora:
            raise ValueError("horizon needs corpora")
        unknown = sorted({name for phase in self.mixes for name in phase.mix} - self.corpora.keys())
        if unknown:
            raise ValueError(f"the mix names {', '.join(unknown)}; the corpora are {', '.join(self.corpora)}")
        ends = [phase.until for phase in self.mixes]
        if ends and (ends[-1] != 1 or any(later <= earlier for earlier, later in pairwise(ends))):
            raise ValueError(f"phases end at {', '.join(f'{end:g}' for end in ends)} of a run; they must rise to 1")
        return self

    @property
    def texts(self) -> dict[str, Texts]:
        """Training texts by name: the corpora of a mix, or one named `train`; none of the standard library."""
        return self.corpora or ({"train": self.train} if self.train is not None else {})

    @property
    def local_places(self) -> list[str]:
        """Places of text and tokenizer on this machine, not on a hub or in a bucket."""
        texts = [*self.texts.values(), *self.validation.values()]
        files = [place for each in texts for place in (*(each.files or ()), each.cache) if place and "://" not in place]
        named = [name for name in (*(each.dataset for each in texts), self.tokenizer) if name and Path(name).exists()]
        return list(dict.fromkeys([*files, *named]))

    @property
    def mixes(self) -> tuple[MixPhase, ...]:
        """Phases of a run on a mix: one, or several; none for a single text."""
        return (MixPhase(mix=self.mix),) if self.mix else self.phases

    @property
    def held_out_share(self) -> float:
        """The share of training documents that is held out: none where there is held-out text by name."""
        return 0.0 if not self.texts or self.validation else self.held_out or DEFAULT_HELD_OUT


class Evaluation(Part):
    """Metric, and number of held-out windows."""

    metric: TrainedMetric = "bits_per_byte"
    """Cross entropy in bits per byte of text."""
    windows: int = Field(default=1024, gt=0, multiple_of=64)
    """Held-out windows, at most, of each named set; a shorter set is evaluated completely."""


_HAVE_KEYS_OF_THEIR_OWN = ("cpu", "gpu", "memory", "object_store_memory")


class TpuSlice(Part):
    """TPU slice on a Ray cluster: `{version: v5p, topology: 2x2x4}`."""

    version: str = Field(pattern=in_words("^v[0-9][a-z0-9]*$", "a TPU, like v5p"))
    """Ray's name of the chips (`v5p`, `v5litepod`, `v6e`)."""
    topology: str = Field(pattern=in_words(r"^[1-9]\d*x[1-9]\d*(x[1-9]\d*)?$", "a topology, like 2x2x4"))
    """Number of chips in each direction."""


class Mesh(Part):
    """Axes over which a run is spread, whose product is the number of its devices: `{data: 4, model: 2}`."""

    data: int | None = Field(default=None, gt=0, exclude_if=lambda count: count is None)
    """Parts of the batch, and of parameters and optimizer state by the width; default: the devices left by the other axes."""
    model: int = Field(default=1, gt=0)
    """Parts of attention heads and MLP widths (tensor parallelism), for models too large for `data` alone."""
    expert: int = Field(default=1, gt=0)
    """Parts of the experts of a mixture, with their optimizer state; the batch is spread over this axis too."""

    def over(self, devices: int) -> Mesh:
        """Return the mesh on this number of devices, with the default of `data` filled in.

        >>> Mesh(model=2).over(8)
        Mesh(data=4, model=2, expert=1)
        """
        return self.model_copy(update={"data": self.data or max(1, devices // (self.model * self.expert))})

    @property
    def devices(self) -> int:
        """Product of the axes, as far as they are given."""
        return (self.data or 1) * self.model * self.expert

    @property
    def batch_parts(self) -> int:
        """Number of parts of a batch, once `data` is filled in."""
        return (self.data or 1) * self.expert

    def __str__(self) -> str:
        return " x ".join(f"{axis} {count}" for axis, count in self if count)


ONE_AXIS = Mesh()
"""Default mesh: all devices over `data`."""


class PerRun(Part):
    """Resources of one run: its GPUs here and on a cluster (`--on ray`), all others on a cluster only."""

    cpus: int = Field(default=1, gt=0)
    """Processor cores; on this machine, runs share the cores evenly."""
    gpus: float = Field(default=0, ge=0)
    """GPUs: a whole number, or a fraction of one. A batch is spread evenly over several."""
    resources: dict[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """Other resources by their names on the cluster, in steps of 0.0001."""
    processes: int = Field(default=1, gt=0)
    """Processes that train a run together, each with these cores, GPUs and resources; on several nodes if available."""
    tpu_slice: TpuSlice | None = None
    """TPU slice for each run, with one process per host."""
    mesh: Mesh = Field(default=ONE_AXIS, exclude_if=lambda mesh: mesh == ONE_AXIS)
    """Axes over which the devices of a run are spread; default: all of them over `data`."""

    @field_validator("gpus")
    @classmethod
    def _whole_or_a_share(cls, gpus: float) -> float:
        if gpus > 1 and gpus != int(gpus):
            raise ValueError(f"{gpus:g} GPUs: a number above 1 must be whole")
        return gpus

    @model_validator(mode="after")
    def _hosts_are_the_slices(self) -> PerRun:
        if self.tpu_slice is not None and (self.processes > 1 or self.gpus or self.resources):
            raise ValueError("tpu_slice determines processes, gpus and resources; leave them out")
        if self.processes > 1 and self.gpus != int(self.gpus):
            raise ValueError(f"{self.gpus:g} GPUs: the processes of a run cannot share a GPU")
        return self

    @property
    def devices(self) -> int:
        """Devices of a run: its GPUs, or the chips of its slice, of which some are two devices; 1 on a CPU."""
        if self.tpu_slice is not None:
            known = accelerator(self.tpu_slice.version)
            chips = math.prod(int(count) for count in self.tpu_slice.topology.split("x"))
            return chips * (known.devices_per_chip if known else 1)
        return max(1, int(self.gpus)) * self.processes

    @property
    def is_group(self) -> bool:
        """Return True if several processes train a run."""
        return self.processes > 1 or self.tpu_slice is not None

    @field_validator("resources")
    @classmethod
    def _that_ray_takes(cls, resources: dict[str, float]) -> dict[str, float]:
        for name, amount in resources.items():
            if name.lower() in _HAVE_KEYS_OF_THEIR_OWN:
                raise ValueError(f"{name} is not a named resource; use cpus and gpus")
            if round(amount, 4) != amount or (amount > 1 and amount != int(amount)):
                raise ValueError(f"{amount:g} of {name}: must be whole above 1, and have at most four decimals below")
        return resources


class Hardware(Part):
    """Training hardware, its speed and cost."""

    runs_at_a_time: Annotated[int, Field(gt=0)] | Literal["cores"] = "cores"
    """Training processes; `cores` is one per core or, if runs use GPUs, as many as the GPUs allow."""
    sustained_flops_per_second: float | None = Field(default=None, ge=1)
    """Sustained FLOP/s of all processes together; only for the estimate of time, until the ladder has recorded runs."""
    cost_per_hour: float | None = Field(default=None, gt=0)
    """Cost of an hour of all the hardware, in any currency; only for the estimate of cost."""

    storage: str | None = Field(
        default=None, pattern=in_words("^[a-z][a-z0-9+.-]*://.+$", "an address, like gs://bucket/folder")
    )
    """Address where machines share runs (finished ones, checkpoints, tokens): `gs://BUCKET/FOLDER`, `s3://…`, or `file:///…`
    for a folder that all of them see. Without an address the machines need a common file system."""
    accelerator: str | None = None
    """Kind of the GPUs, such as `h100`; a tpu_slice names its own. A plan is then compared with their memory and speed."""
    per_run: PerRun = PerRun()
    """Resources of one run."""

    @property
    def chip(self) -> Accelerator | None:
        """Accelerator of a run, as far as one device has it; None on a CPU, or if it is not known."""
        name = self.per_run.tpu_slice.version if self.per_run.tpu_slice else self.accelerator
        found = accelerator(name) if name else None
        return found.device if found else None

    @model_validator(mode="after")
    def _is_known(self) -> Hardware:
        if self.accelerator is None:
            return self
        found, gpus = accelerator(self.accelerator), [name for name, each in ACCELERATORS.items() if not each.is_tpu]
        if self.per_run.tpu_slice is not None or (found and found.is_tpu):
            raise ValueError("accelerator names GPUs; a TPU is named by per_run.tpu_slice")
        if found is None:
            raise ValueError(f"accelerator {self.accelerator} is not known; known are {', '.join(gpus)}")
        if not self.per_run.gpus:
            raise ValueError("accelerator needs per_run.gpus, the number of these that a run has")
        return self

    @field_validator("storage")
    @classmethod
    def _is_one_place(cls, storage: str | None) -> str | None:
        if storage is not None and storage.startswith("file://") and not storage.startswith("file:///"):
            raise ValueError(f"{storage} is a different folder on each machine; an address of a folder begins with file:///")
        if storage is not None and storage.startswith("memory://"):
            raise ValueError(f"{storage} is visible to one process only")
        return storage and plain_address(storage)

    @model_validator(mode="after")
    def _groups_share_folders(self) -> Hardware:
        if self.storage is not None and self.per_run.is_group:
            raise ValueError("processes of one run need a common file system; leave out storage")
        return self


class WeightsAndBiases(Part):
    """Mirror loss curves to Weights & Biases (the extra `wandb`), in addition to `history.json`.

    `WANDB_PROJECT`, `WANDB_ENTITY` and `WANDB_MODE` in the environment override these keys.
    """

    project: str = Field(min_length=1, max_length=128, pattern=in_words(r"^[^/\\#?%:\s]+$", "a name without blanks or /\\#?%:"))
    """Name of the project."""
    entity: str | None = Field(default=None, pattern=in_words("^[A-Za-z0-9_-]+$", "a name of letters, digits, _ and -"))
    """Team or account of the project; default: the account that is logged in."""
    mode: Literal["online", "offline"] = "online"
    """`offline` needs no account; `wandb sync` uploads later."""


class Assumption(Part):
    """Assumption of a forecast."""

    text: str = Field(min_length=1)
    """Assumption, in a sentence."""
    if_false: str = ""
    """Consequence for the forecast if the assumption is false."""


class Promise(Part):
    """Statements about the target's forecast that only a person can make; all are copied into the signed statement."""

    resolver: str | None = Field(default=None, pattern=PERSON_PATTERN)
    """Person who decides unclear outcomes; default: the signer. Preferably someone else."""
    reviewers: tuple[Annotated[str, Field(pattern=PERSON_PATTERN)], ...] = ()
    """People who are asked to sign too."""
    due: datetime.date | None = None
    """Day by which the run must be recorded, or the forecast counts as missed; default: 180 days after the signature."""
    void_if: tuple[str, ...] = ()
    """Reasons for which the forecast may be declared void; no others are accepted."""
    assumptions: tuple[Assumption, ...] = Field(default=(), max_length=999)
    """Assumptions of the forecast."""
    known_differences: tuple[str, ...] = ()
    """Differences between the ladder's runs and the target other than size and tokens."""
    related_runs_seen: tuple[str, ...] = ()
    """Losses that you have seen of runs near the target; `[none]` if there are none, since an empty list counts as missing."""

    @field_validator("assumptions", mode="before")
    @classmethod
    def _with_keys(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple) or any(isinstance(each, str) for each in value):
            raise ValueError(
                "must be a list of text and if_false, as in [{text: the data mix stays, if_false: the loss is higher}]"
            )
        return value

    @property
    def left_out(self) -> list[str]:
        """Names of empty keys without a default, which a reader will ask for."""
        asked = {
            "void_if": self.void_if,
            "assumptions": self.assumptions,
            "known_differences": self.known_differences,
            "related_runs_seen": self.related_runs_seen,
        }
        return [name for name, value in asked.items() if not value]

    @model_validator(mode="after")
    def _one_line_each(self) -> Promise:
        sentences = [*self.void_if, *self.known_differences, *self.related_runs_seen]
        sentences += [words for each in self.assumptions for words in (each.text, each.if_false)]
        for sentence in sentences:
            if not sentence.isprintable():
                raise ValueError(f"{sentence[:40]!r} must be one line without hidden characters")
        return self


class LadderFile(Part):
    """A ladder: recipe, rungs, target, data and hardware."""

    name: str = Field(pattern=SLUG_PATTERN)
    """Name of the ladder's folder in `runs/`; the file is `ladders/NAME.yaml`."""
    recipe: str
    """Recipe that derives a run from budget and width: a name, a recipe file, or MODULE:CLASS with --trust-recipe."""
    rungs: tuple[RungsAtBudget, ...] = Field(min_length=1)
    """Small runs, by budget."""
    seeds: Seeds = (0,)
    """Seeds; every rung is trained once with each."""
    shared_trunk: bool = Field(default=False, exclude_if=lambda shared: not shared)
    """Rungs of one width share their steps before the decay: each continues from a checkpoint of the next shorter one. They
    then have the batch size, learning rates and constants of the width's largest budget, and the warm-up of its smallest."""
    target: Target
    """Large run to forecast; it must cost more than the largest rung."""
    data: Data = Data()
    """Training and held-out data."""
    evaluation: Evaluation = Evaluation()
    """Metric and protocol."""
    compute: Compute = Compute()
    """Precision and memory use of training steps."""
    hardware: Hardware = Hardware()
    """Training hardware."""
    tracker: WeightsAndBiases | None = Field(default=None, exclude_if=lambda tracker: tracker is None)
    """W&B project for loss curves; default: as in the environment, or none."""
    promise: Promise = Promise()
    """Statements by a person that go into the signed forecast of the target."""

    @model_validator(mode="after")
    def _trunks_stay_here(self) -> LadderFile:
        if self.shared_trunk and self.hardware.storage is not None:
            raise ValueError("shared_trunk needs a common file system for the checkpoints; leave out hardware.storage")
        if self.shared_trunk and (self.data.phases or self.data.horizon):
            raise ValueError("data.phases and data.horizon depend on the length of a run, so no runs can share their steps")
        return self

    @field_validator("target")
    @classmethod
    def _target_is_larger(cls, target: Target, so_far: ValidationInfo) -> Target:
        largest = max((at.budget_flops for at in so_far.data.get("rungs", ())), default=0.0)
        if target.budget_flops <= largest:
            raise ValueError(
                f"its budget_flops {format_number(target.budget_flops)} must exceed that of the largest rung, "
                f"{format_number(largest)}"
            )
        return target


SCHEMA_FILE = "ladder.schema.json"
"""Schema next to the ladder files, whose first line names it, so that editors complete and check keys."""


def ladder_schema() -> str:
    """Return the JSON Schema of ladder files, the content of `SCHEMA_FILE`."""
    return json.dumps(LadderFile.model_json_schema(), indent=1) + "\n"


def read_ladder_file(path: Path) -> LadderFile:
    """Return the ladder in a YAML file; `LadderFileError` gives file, line and key of what is wrong, or what takes the file."""
    try:
        return read_yaml(path, LadderFile, noun="a ladder", refused=_refused)
    except LadderFileError as error:
        keys = set(re.findall(r"^([A-Za-z_][\w-]*):", read_bytes(path).decode("utf-8", errors="replace"), re.MULTILINE))
        kind = next((each for each in _OTHER_KINDS if each.keys <= keys), None)
        if kind is None or "rungs" in keys:
            raise
        raise LadderFileError(
            f"{path} is {kind.what} (it has {', '.join(sorted(kind.keys))}), not a ladder file.", fix=kind.fix
        ) from error


@dataclass(frozen=True)
class _OtherKind:
    """Another kind of YAML file: keys at its top level that show it, what it is, and what takes it."""

    keys: frozenset[str]
    what: str
    fix: str


_OTHER_KINDS = (
    _OtherKind(
        frozenset({"trainer", "model"}),
        "a configuration for Levanter's train_lm",
        "Train it with Levanter: python -m levanter.main.train_lm --config_path FILE. A ladder file is like "
        "ladders/quickstart.yaml; marin-scale emit writes configurations for train_lm from one.",
    ),
    _OtherKind(frozenset({"base"}), "a recipe file", "Name it in a ladder file: recipe: FILE."),
    _OtherKind(
        frozenset({"architectures", "model_type"}),
        "a model's configuration",
        "Write a recipe file; see marin-scale recipe show.",
    ),
    _OtherKind(frozenset({"hypothesis"}), "an experiment file", "Check it: marin-scale experiment validate FILE."),
)


def _refused(what: str | tuple[str, ...]) -> LadderFileError:
    return LadderFileError(
        what,
        fix="Fix the file; ladders/quickstart.yaml is a complete example.",
    )
