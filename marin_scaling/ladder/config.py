"""The ladder file: budgets, target, data, compute, hardware and promise."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from marin_scaling.errors import LadderFileError
from marin_scaling.recipe.base import RungPlan
from marin_scaling.recipe.model_shape import ModelShape
from marin_scaling.strict_model import Part
from marin_scaling.units import TrainedMetric
from marin_scaling.untrusted_text import plain_address, plain_data_set
from marin_scaling.yaml_config import read_yaml


class Compute(Part):
    """How the steps of a run are computed. The defaults are fastest for tiny models on a CPU."""

    precision: Literal["float32", "bfloat16"] = "float32"
    """Of activations and products, in training and evaluation; parameters, the optimizer's state and the loss are float32."""
    attention: Literal["plain", "flash"] = "plain"
    """`flash` keeps no table of positions by positions: a kernel for the device where Levanter has one, else its own in JAX."""
    recompute: bool = False
    """Keep only what goes from layer to layer, and compute the rest of a layer again in the backward pass."""
    sequences_at_a_time: int | None = Field(default=None, gt=0)
    """Sequences that one device computes at once; gradients are added up over the batch. Without it the whole batch."""


BYTES_PER_PARAM = 28
"""In float32: the parameter and two moments of Adam before a step and after it (4 x 3 x 2), and the gradient."""
_FLOAT, _HALF = 4, 2
_PER_HIDDEN, _PER_INTERMEDIATE, _PER_HEAD_AND_POSITION, _PER_VOCABULARY = 17, 6, 2, 2
_FLASH_BLOCK = 1024  # positions; for shorter sequences Levanter's attention in JAX is the plain one


def training_memory_bytes(plan: RungPlan, compute: Compute | None = None, *, devices: int = 1) -> float:
    """What a step holds at once on each device, beside the program itself; `Compute()` where nothing else is said.

    Several devices have an even part of the batch, of the parameters and of the optimizer's state each; that is arithmetic.

    Numbers kept for the backward pass, for each token: in each layer 17 for each of hidden_dim, 6 for each of the MLP's width
    that a token passes and, with plain attention, 2 for each head and position; and 2 for each of vocab_size. Of layers that
    are recomputed, hidden_dim for each and the whole of one. Tests hold it against what XLA reserves on a CPU: for dense
    models in float32 up to a quarter above, and with other choices from a twentieth below to a third above. There, XLA undoes
    recomputation, of which only what JAX keeps is tested. For mixtures it is what a ragged product needs; on a CPU, where a
    step that overflows its buffers goes another way (`run.expert_dispatch`), XLA reserves one and a half to two and a half
    times as much. For bfloat16 it is arithmetic: a CPU's XLA keeps much of it in float32.

    >>> from marin_scaling.recipe.quickstart import QuickstartRecipe
    >>> plan = QuickstartRecipe().plan(budget_flops=2.5e12, hidden_dim=64)
    >>> [round(training_memory_bytes(plan, Compute(recompute=again)) / 1e6) for again in (False, True)]
    [60, 38]
    """
    compute = compute or Compute()
    part = -(-plan.batch_size // devices)
    at_once = min(part, compute.sequences_at_a_time or part)
    number = _FLOAT if compute.precision == "float32" else _HALF
    of_loss = _FLOAT * _PER_VOCABULARY * plan.shape.vocab_size  # always float32
    kept = number * _kept_of_layers(plan.shape, compute) + of_loss
    params = _bytes_per_param(compute, in_parts=at_once < part) * plan.shape.params_total
    return float(params / devices + at_once * plan.shape.seq_len * kept)


def _kept_of_layers(shape: ModelShape, compute: Compute) -> int:
    """Numbers for each token."""
    is_plain = compute.attention == "plain" or shape.seq_len < _FLASH_BLOCK
    square = shape.num_heads * (shape.seq_len if is_plain else _FLASH_BLOCK)  # of positions by positions, or of a block of them
    layer = _PER_HIDDEN * shape.hidden_dim + _PER_INTERMEDIATE * shape.mlp_dim_per_token
    layer += _PER_HEAD_AND_POSITION * square if is_plain else 0
    if compute.recompute:
        return shape.num_layers * shape.hidden_dim + layer + square
    return shape.num_layers * layer + (0 if is_plain else square)


def _bytes_per_param(compute: Compute, *, in_parts: bool) -> int:
    """With a copy in half precision, and the sum of gradients so far."""
    copy = _HALF if compute.precision == "bfloat16" else 0
    return BYTES_PER_PARAM + copy + (_FLOAT if in_parts else 0)


_SIGNER = r"^[A-Za-z0-9._+-]+@[A-Za-z0-9._-]+$"


class RungsAtBudget(Part):
    """One budget and the widths that are trained at it: those named, or so many of the recipe's."""

    budget_flops: float = Field(gt=0)
    """Training FLOPs of each of these runs."""
    hidden_dims: tuple[int, ...] | None = Field(default=None, min_length=1)
    """Widths; the recipe makes the rest of the shape. Without them all that the recipe finds sensible at this budget."""
    sizes: int | None = Field(default=None, gt=0)
    """Instead of widths: so many of the recipe's, evenly spread from the narrowest to the widest."""

    @model_validator(mode="after")
    def _one_choice(self) -> RungsAtBudget:
        if self.hidden_dims is not None and self.sizes is not None:
            raise ValueError("hidden_dims and sizes both choose the widths; leave one of them out")
        return self


class Target(Part):
    """The large run that the ladder is to forecast."""

    budget_flops: float = Field(gt=0)
    """Its training FLOPs, more than those of the largest rung; its width follows from the fit."""
    batch_size: int | None = Field(default=None, gt=0)
    """Sequences a step where the hardware decides it; else the recipe's."""
    seed: int | None = Field(default=None, ge=0)
    """Seed of its weights; else the ladder's first one."""


class Texts(Part):
    """Where text lies: files, a data set of the Hugging Face hub, or a cache of tokens; one of the three."""

    files: tuple[str, ...] | None = Field(default=None, min_length=1)
    """Addresses of files of JSON lines (`.jsonl`), Parquet or text (`.txt`, `.md`, `.py`), also compressed; `*` for many."""
    dataset: str | None = None
    """Name of a data set on the Hugging Face hub, or a folder of that layout."""
    config: str | None = None
    """Of the data set, where it has several."""
    revision: str | None = None
    """Of the data set: a branch, tag or commit."""
    split: str = "train"
    """Of the data set."""
    cache: str | None = None
    """A cache of tokens that Levanter built with `data.tokenizer`."""

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
            raise ValueError(f"one of files, dataset and cache says where the text lies; given: {', '.join(given) or 'none'}")
        if self.dataset is None and (self.config or self.revision or self.split != "train"):
            raise ValueError("config, revision and split belong to a dataset")
        return self

    @property
    def said(self) -> str:
        """Where it lies, in a word."""
        return self.cache or self.dataset or ", ".join(self.files or ())


SetName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$")]
STANDARD_LIBRARY = "python-standard-library"


class Data(Part):
    """What is trained on: the sources of the Python that trains, or text of your own with text held out from it."""

    source: str = Field(default=STANDARD_LIBRARY, pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")
    """Name of the text, as records and pages show it."""
    train: Texts | None = None
    """The text to train on."""
    validation: dict[SetName, Texts] = Field(default_factory=dict)
    """Held-out text by name; the loss is the mean over these sets, each weighing the same."""
    tokenizer: str = "bytes"
    """`bytes`, a folder with a tokenizer, or its name on the Hugging Face hub."""
    text_key: str = "text"
    """Where the text stands in a line of JSON or a row."""
    epochs: int = Field(default=1, ge=1)
    """How many times a run may see the training text; a run that needs more is refused."""
    overlap: Literal["refuse", "leave-out"] = "refuse"
    """What becomes of training documents that are held out, too."""

    @field_validator("tokenizer")
    @classmethod
    def _is_plain(cls, tokenizer: str) -> str:
        return plain_address(tokenizer)

    @field_validator("validation")
    @classmethod
    def _names_are_free(cls, validation: dict[str, Texts]) -> dict[str, Texts]:
        for taken in ("train", "validation"):
            if taken in validation:
                raise ValueError(f"{taken!r} is taken; give held-out text another name")
        return validation

    @model_validator(mode="after")
    def _all_or_nothing(self) -> Data:
        if (self.train is None) != (self.source == STANDARD_LIBRARY):
            raise ValueError(f"text of your own has train, validation and a source other than {STANDARD_LIBRARY!r}")
        if (self.train is None) != (not self.validation):
            raise ValueError("train and validation go together: what is trained on is measured on text held out from it")
        if self.train is None and (self.tokenizer, self.epochs) != ("bytes", 1):
            raise ValueError("the standard library is read as bytes, and once")
        return self


class Evaluation(Part):
    """What is measured, on how many held-out windows."""

    metric: TrainedMetric = "bits_per_byte"
    """Cross entropy in bits, by byte of text."""
    windows: int = Field(default=1024, gt=0, multiple_of=64)
    """Held-out windows that are evaluated, of each named set at most; of a shorter one all."""


_HAVE_KEYS_OF_THEIR_OWN = ("cpu", "gpu", "memory", "object_store_memory")


class TpuSlice(Part):
    """A whole slice, as Ray's cluster has it: `{version: v5p, topology: 2x2x4}`."""

    version: str = Field(pattern=r"^v[0-9][a-z0-9]*$")
    """Of the chips, by Ray's name (`v5p`, `v5litepod`, `v6e`)."""
    topology: str = Field(pattern=r"^\d+x\d+(x\d+)?$")
    """How many chips in each direction."""


class PerRun(Part):
    """What one run is given: its GPUs here and on a cluster (`--on ray`), the rest on a cluster only."""

    cpus: int = Field(default=1, gt=0)
    """Processor cores; here, runs share the cores evenly."""
    gpus: float = Field(default=0, ge=0)
    """GPUs: a whole number, or less than one for a share of one. A batch is spread evenly over several."""
    resources: dict[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """Resources by the names that the cluster gives them, beside cores and GPUs; in steps of 0.0001."""
    processes: int = Field(default=1, gt=0)
    """How many processes train a run together, each with these cores, GPUs and resources; on several nodes where there are."""
    tpu_slice: TpuSlice | None = None
    """A slice of a TPU for each run: a process on every host of it."""

    @field_validator("gpus")
    @classmethod
    def _whole_or_a_share(cls, gpus: float) -> float:
        if gpus > 1 and gpus != int(gpus):
            raise ValueError(f"{gpus:g} GPUs: above 1 it is a whole number")
        return gpus

    @model_validator(mode="after")
    def _hosts_are_the_slices(self) -> PerRun:
        if self.tpu_slice is not None and (self.processes > 1 or self.gpus or self.resources):
            raise ValueError("tpu_slice decides processes, gpus and resources; leave them out")
        if self.processes > 1 and self.gpus != int(self.gpus):
            raise ValueError(f"{self.gpus:g} GPUs: processes that train a run together do not share one")
        return self

    @property
    def is_group(self) -> bool:
        """Whether several processes train a run."""
        return self.processes > 1 or self.tpu_slice is not None

    @field_validator("resources")
    @classmethod
    def _that_ray_takes(cls, resources: dict[str, float]) -> dict[str, float]:
        for name, amount in resources.items():
            if name.lower() in _HAVE_KEYS_OF_THEIR_OWN:
                raise ValueError(f"{name} is no resource by name; use cpus and gpus")
            if round(amount, 4) != amount or (amount > 1 and amount != int(amount)):
                raise ValueError(f"{amount:g} of {name}: above 1 it is a whole number, below it has four decimals at most")
        return resources


class Hardware(Part):
    """What trains."""

    runs_at_a_time: Annotated[int, Field(gt=0)] | Literal["cores"] = "cores"
    """Training processes; `cores` is one for each core or, where a run is given GPUs, as many as these are enough for."""
    sustained_flops_per_second: float | None = Field(default=None, ge=1)
    """What the machine sustains with all of them; only for the estimate of time."""
    cost_per_hour: float | None = Field(default=None, gt=0)
    """What an hour of it costs, in any currency; only for the estimate of cost, which needs sustained_flops_per_second."""

    storage: str | None = Field(default=None, pattern=r"^[a-z][a-z0-9+.-]*://.+$")
    """An address where machines share runs: finished ones, the state of those under way, tokens; `gs://BUCKET/FOLDER`, `s3://…`,
    or `file:///…` for a folder that all of them see. Without one they need a common file system."""
    per_run: PerRun = PerRun()
    """What one run is given."""

    @field_validator("storage")
    @classmethod
    def _is_one_place(cls, storage: str | None) -> str | None:
        if storage is not None and storage.startswith("file://") and not storage.startswith("file:///"):
            raise ValueError(f"{storage} would be another folder on each machine; an address of a folder begins with file:///")
        if storage is not None and storage.startswith("memory://"):
            raise ValueError(f"{storage} is the memory of one process, where no other finds what is there")
        return storage and plain_address(storage)

    @model_validator(mode="after")
    def _groups_share_folders(self) -> Hardware:
        if self.storage is not None and self.per_run.is_group:
            raise ValueError("the processes of one run save its state in a folder that all see: per_run does without storage")
        return self

    @model_validator(mode="after")
    def _time_before_cost(self) -> Hardware:
        if self.cost_per_hour is not None and self.sustained_flops_per_second is None:
            raise ValueError("cost_per_hour says nothing without sustained_flops_per_second")
        return self


class WeightsAndBiases(Part):
    """Where loss curves are mirrored on Weights & Biases (the extra `wandb`), beside `history.json`, which is never left out.

    `WANDB_PROJECT`, `WANDB_ENTITY` and `WANDB_MODE` in the environment go before what stands here.
    """

    project: str = Field(min_length=1, max_length=128, pattern=r"^[^/\\#?%:\s]+$")
    """Name of the project."""
    entity: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_-]+$")
    """The team or account that it belongs to; default: that of whoever is logged in."""
    mode: Literal["online", "offline"] = "online"
    """`offline` needs no account; `wandb sync` uploads it later."""


class Assumption(Part):
    """What a forecast rests on."""

    text: str = Field(min_length=1)
    """The assumption, in a sentence."""
    if_false: str = ""
    """What becomes of the forecast where it does not hold."""


class Promise(Part):
    """What only a person can say of the target's forecast; all of it goes into the signed statement as it stands here."""

    resolver: str | None = Field(default=None, pattern=_SIGNER)
    """Who says how it came out where that is not plain; default: who signs. Better someone else."""
    reviewers: tuple[Annotated[str, Field(pattern=_SIGNER)], ...] = ()
    """Who are asked to sign it, too."""
    due: datetime.date | None = None
    """Until when the run must be there, or it counts as missed; default: 180 days after it is signed."""
    void_if: tuple[str, ...] = ()
    """What makes the forecast void: the only reasons for which it may be."""
    assumptions: tuple[Assumption, ...] = Field(default=(), max_length=999)
    """What the forecast rests on."""
    known_differences: tuple[str, ...] = ()
    """What differs between the ladder's runs and the target beside size and tokens."""
    related_runs_seen: tuple[str, ...] = ()
    """Losses that you have seen of runs near the target; `[none]` where there are none: an empty list says nothing."""

    @property
    def left_out(self) -> list[str]:
        """What says nothing, though a reader will ask for it; who resolves and until when has a default."""
        asked = {
            "void_if": self.void_if,
            "assumptions": self.assumptions,
            "known_differences": self.known_differences,
            "related_runs_seen": self.related_runs_seen,
        }
        return [name for name, said in asked.items() if not said]

    @model_validator(mode="after")
    def _one_line_each(self) -> Promise:
        sentences = [*self.void_if, *self.known_differences, *self.related_runs_seen]
        sentences += [words for each in self.assumptions for words in (each.text, each.if_false)]
        for sentence in sentences:
            if not sentence.isprintable():
                raise ValueError(f"{sentence[:40]!r} is more than one line, or holds a sign that is not shown")
        return self


class LadderFile(Part):
    """A ladder as written down."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")
    """The ladder's folder in `runs/`; the file is `ladders/NAME.yaml`."""
    recipe: str
    """What turns a budget and a width into a run: a name, a recipe file, or MODULE:CLASS with --trust-recipe."""
    rungs: tuple[RungsAtBudget, ...] = Field(min_length=1)
    """The small runs, by budget."""
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field(default=(0,), min_length=1)
    """Every rung is trained once with each."""
    target: Target
    """The large run that is forecast; it must cost more than the largest rung."""
    data: Data = Data()
    """What is trained on."""
    evaluation: Evaluation = Evaluation()
    """What is measured."""
    compute: Compute = Compute()
    """How the steps are computed."""
    hardware: Hardware = Hardware()
    """What trains."""
    tracker: WeightsAndBiases | None = Field(default=None, exclude_if=lambda tracker: tracker is None)
    """Where loss curves are mirrored; without it where the environment says, or nowhere."""
    promise: Promise = Promise()
    """What the signed forecast of the target says in words."""

    @field_validator("seeds")
    @classmethod
    def _no_seed_twice(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(seeds)) < len(seeds):
            raise ValueError(f"a seed stands twice in {', '.join(map(str, seeds))}")
        return seeds

    @field_validator("target")
    @classmethod
    def _target_is_larger(cls, target: Target, so_far: ValidationInfo) -> Target:
        largest = max((at.budget_flops for at in so_far.data.get("rungs", ())), default=0.0)
        if target.budget_flops <= largest:
            raise ValueError(f"its budget_flops {target.budget_flops:g} is not larger than the largest rung's {largest:g}")
        return target


SCHEMA_FILE = "ladder.schema.json"
"""Beside the ladder files, whose first line names it, so that editors complete and check keys."""


def ladder_schema() -> str:
    """The JSON Schema of ladder files, as `SCHEMA_FILE` holds it."""
    return json.dumps(LadderFile.model_json_schema(), indent=1) + "\n"


def read_ladder_file(path: Path) -> LadderFile:
    """The ladder in a YAML file; `LadderFileError` says file, line and key of what is wrong."""
    return read_yaml(path, LadderFile, noun="a ladder", refused=_refused)


def _refused(what: str | tuple[str, ...]) -> LadderFileError:
    return LadderFileError(
        what,
        why="Every choice of a ladder is written down and checked before anything is trained.",
        fix="Correct the file; ladders/quickstart.yaml is a complete example.",
    )
