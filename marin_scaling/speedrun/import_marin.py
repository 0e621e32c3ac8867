"""Import Marin's speedrun results."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from marin_scaling.errors import DocumentError
from marin_scaling.printable import joined
from marin_scaling.recipe.flops import WITH_LM_HEAD, training_flops
from marin_scaling.speedrun.hardware import Accelerator, Machine, machine, variants
from marin_scaling.speedrun.submission import (
    EXACT,
    LEVANTER_FLOPS,
    Author,
    Compute,
    Data,
    Evaluation,
    Hardware,
    Model,
    SeedResult,
    Shape,
    Submission,
    Training,
)
from marin_scaling.untrusted_text import LINK_PATTERN

_VOCABULARY = 128_256
"""Llama 3's, which Marin's speedrun counted by whatever the data set was."""
_SUBSET_TOKENS = 10_000_000_000
_EVALUATION, _BPB = "paloma/c4_en", "eval/paloma/c4_en/bpb"
_NEVER_SAID = {
    "code": "Marin's results name no commit, and the code has moved since",
    "environment": "Marin's results name no software",
    "data.digest": "only the address of a bucket",
    "tuning": "Marin's results do not say how many settings were tried",
    "compute.cost_usd": "Marin's results name no cost",
    "evaluation.digest": "Marin's results name the evaluation only",
    "evaluation.bytes": "Marin's results name the evaluation only",
    "evaluation.tokenizer_sha256": "Marin's results name no digest of it",
    "seeds.seed": "data_seed is null in the file, and Marin's code trained with 42",
    "seeds.nats": "Marin's results give bits per byte only",
    "seeds.started_at": "Marin's results give the end only",
    "seeds.log_sha256": "the log is on W&B",
    "seeds.curve": "Marin's results give the last value only",
    "model.params_non_embedding": "Marin's results give all parameters together",
}


@dataclass(frozen=True, kw_only=True)
class Keys:
    """One table of a file, `where` it stands, and the list that its problems go to."""

    part: Mapping[str, Any]
    where: str
    problems: list[str]

    def problem(self, key: str, said: str) -> None:
        """Add a problem of one key."""
        self.problems.append(f"{self.where}{key}: {said}")

    def table(self, key: str, *, needed: bool = True) -> Keys:
        """Return the table at a key; an empty one if it is missing, a problem if it is needed."""
        found = self.part.get(key)
        if not isinstance(found, Mapping) and (needed or found is not None):
            self.problem(key, "no such key" if found is None else "it is no table of keys")
        return Keys(part=found if isinstance(found, Mapping) else {}, where=f"{self.where}{key}.", problems=self.problems)

    def number(self, key: str) -> float | None:
        """Return the positive number at a key; None if it is missing or null, a problem if it is anything else."""
        found = self.part.get(key)
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found) or found <= 0:
            self.problem(key, f"{str(found)[:60]!r} is no positive number")
            return None
        return float(found)

    def count(self, key: str) -> int | None:
        """Return the positive whole number at a key, else as `number`."""
        found = self.number(key)
        if found is not None and not found.is_integer():
            self.problem(key, f"{found} is no whole number")
            return None
        return None if found is None else int(self.part[key])

    def required(self, key: str, *, why: str = "it is needed") -> float:
        """Return the positive number at a key; a problem if there is none."""
        before, found = len(self.problems), self.number(key)
        if found is None and len(self.problems) == before:
            self.problem(key, f"{'it is null' if key in self.part else 'no such key'}: {why}")
        return found or 1.0

    def required_count(self, key: str) -> int:
        """Return the positive whole number at a key; a problem if there is none."""
        self.required(key)
        return self.count(key) or 1


def marin_shape(run: Mapping[str, Any]) -> str:
    """Which of the six shapes one entry of `runs` has: V0, V1, V1b, V2, V3 or V4."""
    if "run_related_info" in run:
        return "V0"
    info = _table(run.get("run_info"))
    if "device" in _table(info.get("resources")):
        return "V4"
    if "model_flops_per_token" in info:
        return "V3"
    if "num_chips" in info:
        return "V2"
    return "V1" if "use_flash_attention" in _table(info.get("model_config")) else "V1b"


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def import_marin_results(document: Any, *, name: str, source: str) -> list[Submission]:
    """Return the submissions in the document of a `speedrun_results.json`; `name` is its folder below `experiments/speedrun`.

    Runs of one configuration are the seeds of one submission. `DocumentError` names every key that is missing or no such value.
    """
    problems: list[str] = []
    runs = document.get("runs") if isinstance(document, Mapping) else None
    if not isinstance(runs, list) or not runs:
        raise refusal(source, ["runs: no run"])
    made = [
        _read(run, name=name, source=source, where=f"runs[{number}].", problems=problems) for number, run in enumerate(runs)
    ]
    if problems:
        raise refusal(source, problems)
    sound = [each for each in made if each is not None]
    if len(sound) > 1 and len({_recipe(each) for each in sound}) == 1:
        seeds = [seed.model_dump() for each in sound for seed in each.seeds]
        return [Submission.model_validate(sound[0].model_dump(exclude_none=True) | {"seeds": seeds})]
    if len(sound) > 1:
        return [each.model_copy(update={"name": f"{name}/{number}"}) for number, each in enumerate(sound, start=1)]
    return sound


def _recipe(each: Submission) -> str:
    """All of a submission but its results, to compare."""
    parts = each.model_dump(mode="json", include={"data", "model", "training", "compute", "evaluation", "absent"})
    settings = (parts["training"] or {}).get("config", {})
    for key in ("seed", "data_seed"):
        settings.pop(key, None)
    return json.dumps(parts, sort_keys=True)


def _read(run: Any, *, name: str, source: str, where: str, problems: list[str]) -> Submission | None:
    """The submission of one run; None where `problems` got a new line."""
    known = len(problems)
    if not isinstance(run, Mapping):
        problems.append(f"{where[:-1]}: no table of keys")
        return None
    shape = marin_shape(run)
    keys = Keys(part=run, where=where, problems=problems)
    try:
        facts = _v0_facts(keys) if shape == "V0" else _facts(keys.table("run_info"))
        if len(problems) > known:
            return None
        return _submission(facts, name=name, source=f"{Path(source).name} (Marin's shape {shape})")
    except ValidationError as error:
        for each in error.errors(include_url=False):
            key = ".".join(map(str, each["loc"]))
            problems.append(f"{where}{_KEY_OF.get(str(each['loc'][-1]), key)}: {each['msg'].removeprefix('Value error, ')}")
        return None


_KEY_OF = {
    "bits_per_byte": _BPB,
    "hardware_flops": "training_hardware_flops",
    "log": "wandb_run_link",
    "params_total": "model_size",
    "trained_tokens": "total_tokens",
    "training_seconds": "training_time",
}
"""Marin's keys by those of a submission."""


def moment(text: str) -> datetime:
    """Return a time as Marin writes it, or in ISO 8601.

    >>> moment("2025-12-20 16:05:57 UTC").isoformat()
    '2025-12-20T16:05:57+00:00'
    """
    if text.endswith(" UTC"):
        return datetime.strptime(text, "%Y-%m-%d %H:%M:%S UTC").replace(tzinfo=UTC)
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def author_of(author: Any) -> Author:
    """Return an author as Marin writes one; an address that is no web page is left out."""
    if not isinstance(author, Mapping):
        return Author(name=str(author or "not named in this file"))
    url = str(author.get("url") or "")
    return Author(
        name=author.get("name") or "not named in this file",
        affiliation=author.get("affiliation") or None,
        url=url if re.fullmatch(LINK_PATTERN, url) else None,
    )


def hardware_of(name: str, found: Machine | None, *, chips: int | None = None, peak: float | None = None) -> Hardware:
    """The machine of that name, with the chips and the peak that were stated, else those of the hardware table."""
    known: Accelerator | None = found.accelerator if found else None
    return Hardware(
        kind=known.kind if known else name.lower(),
        name=name,
        chips=chips or (found.chips if found else 1),
        peak_flops_per_second=peak or (known.peak_flops_per_second if known else None),
    )


@dataclass(frozen=True, kw_only=True)
class _Facts:
    """What a file of any of the six shapes says of one run; None where it says nothing."""

    keys: Keys
    """The table with the common keys."""
    authors: tuple[Author, ...]
    description: str
    params_total: int
    model_flops: float | None
    formula: str | None
    hardware: Hardware | None
    bits_per_byte: float
    seconds: float | None
    hardware_flops: float | None


def _facts(keys: Keys) -> _Facts:
    """The facts of V1 to V4."""
    seconds, hardware_flops = keys.number("training_time"), keys.number("training_hardware_flops")
    return _Facts(
        keys=keys,
        authors=(author_of(keys.part.get("author")),),
        description=str(keys.part.get("description") or ""),
        params_total=keys.required_count("model_size"),
        model_flops=keys.number("model_flops"),
        formula=None,
        hardware=_hardware(keys, seconds=seconds, hardware_flops=hardware_flops),
        bits_per_byte=keys.required(_BPB, why="the run has no result"),
        seconds=seconds,
        hardware_flops=hardware_flops,
    )


def _v0_facts(keys: Keys) -> _Facts:
    """The facts of V0; its time is called minutes, and is taken so."""
    info, stats = keys.table("run_related_info"), keys.table("run_stats")
    stated = info.table("hardware_config")
    name = str(stated.part.get("device_type") or "not named")
    minutes = stats.number("training_time_in_minutes")
    return _Facts(
        keys=info,
        authors=(Author(name="not named in this shape"),),
        description="",
        params_total=info.required_count("num_parameters"),
        model_flops=stats.number("pre_run_flops_estimate"),
        formula="6 N D, as Marin estimated before a run in April 2025",
        hardware=hardware_of(name, machine(name), chips=stated.count("num_devices"), peak=stated.number("device_flops")),
        bits_per_byte=stats.required(_BPB, why="the run has no result"),
        seconds=None if minutes is None else minutes * 60,
        hardware_flops=stats.number("total_training_flops"),
    )


def _hardware(keys: Keys, *, seconds: float | None, hardware_flops: float | None) -> Hardware | None:
    """The machine of V1 to V4; None where no accelerator is named."""
    resources = keys.table("resources", needed=False)
    device = resources.table("device", needed=False)
    name = next(
        (
            str(value)
            for value in (
                device.part.get("variant"),
                device.part.get("type"),
                resources.part.get("tpu_type"),
                resources.part.get("accelerator_type"),
                device.part.get("kind"),
            )
            if value
        ),
        None,
    )
    if name is None:
        return None
    chips, one = keys.count("num_chips"), machine(name)
    peak = keys.number("device_flops") or resources.number("device_flops_override")
    each = peak or (one.accelerator.peak_flops_per_second if one else None)
    used = hardware_flops / seconds / each if hardware_flops and seconds and each else None
    slices = _slices(resources, chips=chips or used, of_one=one.chips if one else 1)
    gpus = device.count("count") or resources.count("gpu_count") or 1
    found = machine(name, count=slices * gpus)
    chips = chips or (found.chips if found else slices * gpus)
    if one and peak is None and hardware_flops and seconds:  # V1 states no peak, and its table was another one
        counted = hardware_flops / seconds / chips
        near = (other.peak_flops_per_second for other in variants(one.accelerator.kind))
        peak = next((value for value in near if math.isclose(value, counted, rel_tol=0.01)), None)
    several = f"{slices} x {name}" if found and found.is_slice and slices > 1 else name
    return hardware_of(several, found, chips=chips, peak=peak)


def _slices(resources: Keys, *, chips: float | None, of_one: int) -> int:
    """The number of slices or machines; of a list of possible ones that with which the chips were counted."""
    for key in ("slice_count", "replicas"):
        possible = resources.part.get(key)
        if not isinstance(possible, list):
            if count := resources.count(key):
                return count
            continue
        counts = [each for each in possible if isinstance(each, int)]
        fitting = [each for each in counts if chips and math.isclose(each * of_one, chips, rel_tol=0.01)]
        if len(fitting) == 1:
            return fitting[0]
        resources.problem(key, f"{possible} lists several, and no number of chips says which was used")
    return 1


def _submission(facts: _Facts, *, name: str, source: str) -> Submission:
    info = facts.keys.part
    absent = dict(_NEVER_SAID)
    config = _table(info.get("model_config"))
    shape, why_no_shape = _shape(config)
    dataset = str(info.get("tokenized_dataset") or "not named").rstrip("/").rpartition("/")[2]
    tokens = facts.keys.count("total_tokens")
    training, why_no_training = _training(facts.keys, shape=shape, tokens=tokens)
    dense = not config.get("n_routed_experts")
    seed = SeedResult(
        bits_per_byte=facts.bits_per_byte,
        training_seconds=facts.seconds,
        hardware_flops=facts.hardware_flops,
        finished_at=_finished(facts.keys),
        log=info.get("wandb_run_link") or None,
    )
    unique = _SUBSET_TOKENS if "10B" in dataset else None
    missing = {
        "data.unique_tokens": (unique, "the file does not say how large its data set is"),
        "data.trained_tokens": (tokens, "the file does not say how many"),
        "model.shape": (shape, why_no_shape),
        "model.params_active": (dense or None, "Marin's results give all parameters together"),
        "training": (training, why_no_training),
        "compute.hardware": (facts.hardware, "the file names no accelerator"),
        "seeds.training_seconds": (seed.training_seconds, "the file has no time"),
        "seeds.hardware_flops": (seed.hardware_flops, "the file has none"),
        "seeds.finished_at": (seed.finished_at, "the file does not say when it ended"),
        "seeds.log": (seed.log, "the file names no run on W&B"),
    }
    absent |= {key: why for key, (value, why) in missing.items() if value is None}
    if facts.hardware is not None and facts.hardware.peak_flops_per_second is None:
        absent["compute.hardware.peak_flops_per_second"] = "this kind of chip is not in the hardware table"
    flops, formula = _counted_by(facts, shape=shape, tokens=tokens)
    return Submission(
        name=name,
        track="fineweb-edu",
        description=facts.description,
        authors=facts.authors,
        data=Data(name=dataset, tokenizer="llama3 (as counted)", unique_tokens=unique, trained_tokens=tokens),
        model=Model(
            params_total=facts.params_total,
            params_active=facts.params_total if dense else None,
            shape=shape,
            config=dict(config),
        ),
        training=training,
        compute=Compute(model_flops=flops, model_flops_formula=formula, hardware=facts.hardware),
        evaluation=Evaluation(name=_EVALUATION),
        seeds=(seed,),
        absent=absent,
        imported_from=source,
    )


def _counted_by(facts: _Facts, *, shape: Shape | None, tokens: int | None) -> tuple[float, str]:
    """Model FLOPs as the file states them, and their formula: the common one, or that of the model's own class."""
    counted = training_flops(shape, tokens=tokens, convention=WITH_LM_HEAD) if shape and tokens else None
    stated = facts.model_flops or counted
    if stated is None:
        facts.keys.problem("model_flops", "it is missing, and sizes or tokens to count it by are, too")
        return 1.0, LEVANTER_FLOPS
    if facts.formula is not None:
        return stated, facts.formula
    is_common = counted is None or math.isclose(stated, counted, rel_tol=EXACT)
    return stated, LEVANTER_FLOPS if is_common else "the model's own class in Marin"


def _training(keys: Keys, *, shape: Shape | None, tokens: int | None) -> tuple[Training | None, str]:
    """How it was trained, or why that is not known: of a batch schedule the steps are checked against the tokens here."""
    settings = keys.table("train_config", needed=False)
    length = settings.count("train_seq_len") or (shape.seq_len if shape else None)
    batch, steps = settings.part.get("train_batch_size"), settings.count("num_train_steps")
    if isinstance(batch, list):
        return None, _schedule(settings, batch, steps=steps, length=length, tokens=tokens)
    size = settings.count("train_batch_size")
    if size is None or steps is None or length is None:
        return None, "the file's train_config has no batch size, steps or sequence length"
    return Training(batch_size=size, seq_len=length, steps=steps, config=dict(settings.part)), ""


def _schedule(settings: Keys, stages: list[Any], *, steps: int | None, length: int | None, tokens: int | None) -> str:
    """A batch schedule in words; a problem where it does not give the tokens that the file states."""
    try:
        starts = [(int(each["start"]), int(each["value"])) for each in stages]
    except (KeyError, TypeError, ValueError):
        settings.problem("train_batch_size", "it is no list of start and value")
        return ""
    words = ", ".join(f"{value} sequences from step {start}" for start, value in starts)
    if steps and length and tokens:
        ends = [*(start for start, _ in starts[1:]), steps]
        counted = length * sum(value * (end - start) for (start, value), end in zip(starts, ends, strict=True))
        if counted != tokens:
            settings.problem("train_batch_size", f"{words} of {steps} are {counted} tokens, and total_tokens is {tokens}")
    return f"a batch schedule: {words}"


def _finished(keys: Keys) -> datetime | None:
    text = keys.part.get("run_completion_timestamp")
    if text is None:
        return None
    try:
        return moment(str(text))
    except ValueError:
        keys.problem("run_completion_timestamp", f"{str(text)[:60]!r} is no time")
        return None


def _shape(config: Mapping[str, Any]) -> tuple[Shape | None, str]:
    """The sizes by which FLOPs are counted, or which of them is missing."""
    heads = config.get("num_heads")
    sizes = {
        "hidden_dim": config.get("hidden_dim"),
        "intermediate_dim": config.get("intermediate_dim"),
        "num_layers": config.get("num_layers"),
        "num_heads": heads,
        "num_kv_heads": config.get("num_kv_heads") or heads,
        "seq_len": config.get("max_seq_len") or config.get("seq_len"),
    }
    known = {key: value for key, value in sizes.items() if isinstance(value, int) and value > 0}
    if len(known) < len(sizes):
        return None, f"the file's model_config has no {joined(sorted(set(sizes) - set(known)))}"
    experts = {
        "num_experts": config.get("n_routed_experts") or 0,
        "experts_per_token": config.get("num_experts_per_tok") or 0,
        "shared_intermediate_dim": (config.get("n_shared_experts") or 0) * config["intermediate_dim"],
    }
    return Shape(**known, vocab_size=_VOCABULARY, **experts), ""


def refusal(source: str, problems: Sequence[str]) -> DocumentError:
    """Return the error that lists every problem of a file."""
    return DocumentError(
        tuple(f"{source}: {each}." for each in problems),
        why="A figure that is no positive number cannot be compared.",
        fix="Correct the file, or leave it out; all keys are in the reference of submission files.",
    )
