"""Make a submission from logs of Levanter's runs that were trained elsewhere: W&B, online or offline, or JSON."""

from __future__ import annotations

import os
import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from marin_scaling.accelerators import accelerator
from marin_scaling.canonical_json import sha256_hex
from marin_scaling.data.tokenizer import load_tokenizer
from marin_scaling.errors import DocumentError, UsageError
from marin_scaling.files import read_bytes
from marin_scaling.printable import joined, quoted
from marin_scaling.recipe.model_shape import OWN_COUNT
from marin_scaling.run.audit import name_some
from marin_scaling.run.import_runs import LoggedValues, TrackedRun
from marin_scaling.run.plan import OwnPlan
from marin_scaling.run.spec import BatchStage
from marin_scaling.run.table_io import flat
from marin_scaling.run.trackers import ONLINE, read_tracked_runs
from marin_scaling.speedrun.entry import SUBMIT, Entry, entry_plan, of_entry, read_entry
from marin_scaling.speedrun.from_runs import settings_of
from marin_scaling.speedrun.submission import (
    Author,
    Compute,
    CurvePoint,
    Data,
    Evaluation,
    Hardware,
    Model,
    SeedResult,
    Submission,
    Training,
    Tuning,
    Verification,
)
from marin_scaling.speedrun.track import Track, same_held_out
from marin_scaling.yaml_config import PlainLoader

_SECONDS, _BPB = "throughput/duration", "bpb"
_NO_TOKENIZER = "passthrough"
"""Levanter's name of tokens without a tokenizer."""
_LEAST_SHARE_OF_STEPS = 0.95
"""Share of the steps whose seconds must be logged: the first ones, which compile, are not."""
_NOT_LOGGED: Mapping[str, str] = {
    "code": "the log contains no commit",
    "environment": "the log contains no versions",
    "data.digest": "the log contains no digest of the tokens",
    "data.unique_tokens": "the log does not contain the size of the data",
    "model.shape": "the log contains the count of the model's class: model.flops_per_token",
    "model.params_active": "the log contains only all parameters",
    "model.params_non_embedding": "the log contains only all parameters",
    "compute.cost_usd": "the log contains no cost",
    "evaluation.digest": "the log contains only the name of the held-out text",
    "evaluation.bytes": "the log contains only the name of the held-out text",
    "evaluation.tokenizer_sha256": "the log contains no digest of the tokenizer",
    "seeds.nats": "the log contains bits per byte, not the sum",
    "seeds.hardware_flops": "computed from time, chips and peak if known",
}


_OF_SEEDS: Mapping[str, str] = {
    "training_seconds": "a log lacks the seconds of some steps",
    "seed": "a log contains no seed",
    "started_at": "a log contains no start",
    "finished_at": "a log contains no end",
    "log": "a log is a file; its digest is log_sha256",
    "log_sha256": "a log is on W&B",
    "curve": "a log has the held-out loss only at the end",
}


_OF_ENTRIES = ("code", "model.params_active", "model.params_non_embedding", "data.tokenizer")
"""Keys that logs lack and their entry has."""


def submission_from_logs(
    places: Sequence[str],
    *,
    name: str,
    track: str,
    rules: Track | None,
    author: Author,
    description: str,
    trials: int | None,
    data: str | None = None,
    config: Path | None = None,
    peak_flops_per_second: float | None = None,
) -> Submission:
    """Return the submission of the runs at some places (files, folders or wandb:ENTITY/PROJECT), one run per seed.

    `data` names the training text if the log does not; `config` is Levanter's configuration file, for settings that the log
    lacks. `DocumentError` lists what the logs lack, and `UsageError` in what the runs differ besides their seeds.
    """
    runs = _logged_runs(places, rules=rules, data=data, config=config)
    if data is not None and (named := runs[0].data_name) not in (None, data):
        raise UsageError(f"The logs name the training text {named}, and --data names {data}.", fix="Leave out --data.")
    about: dict[str, Any] = {"name": name, "track": track, "author": author, "description": description, "trials": trials}
    return _submission(runs, **about, data=data, rules=rules, peak_flops_per_second=peak_flops_per_second)


def _submission(
    runs: Sequence[_Logged],
    *,
    name: str,
    track: str,
    author: Author,
    description: str,
    trials: int | None,
    data: str | None,
    rules: Track | None,
    peak_flops_per_second: float | None,
) -> Submission:
    first, absent = runs[0], dict(_NOT_LOGGED)
    key = first.loss_key(rules)
    assert key is not None  # a problem otherwise
    seeds = tuple(run.seed_result(key) for run in runs)
    hardware = first.hardware(peak_flops_per_second)
    flops = first.flops
    for part, why in _OF_SEEDS.items():
        absent |= {} if all(getattr(each, part) not in (None, ()) for each in seeds) else {f"seeds.{part}": why}
    for part, value, why in (
        ("data.tokenizer", first.tokenizer, "the log names no tokenizer"),
        ("compute.hardware.peak_flops_per_second", hardware.peak_flops_per_second, "the hardware table has no such chip"),
        ("compute.hardware.name", hardware.name, "the log names only the chip"),
        ("tuning", trials, "not stated by the author"),
    ):
        absent |= {part: why} if value is None else {}
    if trials is not None:
        absent |= {"tuning.budget_flops": "not stated", "tuning.selected_on": "not stated"}
    return Submission(
        name=name,
        track=track,
        description=description,
        authors=(author,),
        data=Data(name=data or first.data_name or "", tokenizer=first.tokenizer, trained_tokens=first.tokens),
        model=Model(
            params_total=first.count("parameter_count") or 1,
            flops_per_token=flops / first.tokens,
            config=first.section("model"),
        ),
        training=first.training(),
        tuning=None if trials is None else Tuning(trials=trials),
        compute=Compute(model_flops=flops, model_flops_formula=OWN_COUNT, hardware=hardware),
        evaluation=Evaluation(name=key.removeprefix("eval/").removesuffix(f"/{_BPB}")),
        seeds=seeds,
        absent=absent,
        verification=Verification(evidence=f"log of {first.run.kind}, {Path(first.run.source).name}"),
    )


def _logged_runs(places: Sequence[str], *, rules: Track | None, data: str | None, config: Path | None) -> list[_Logged]:
    """Return the runs of logs that have all that a submission needs and differ only in their seeds."""
    given = {} if config is None else _configuration(config)
    held_out = f"{rules.evaluation_name}/" if rules and rules.evaluation_name else ""
    curves = [_SECONDS, f"eval/{held_out}{_BPB}"]
    runs = [_Logged(run, given) for run in read_tracked_runs(*places, curves=curves)]
    problems = defaultdict[str, list[str]](list)
    for run in runs:
        for each in run.problems(rules, data=data):
            problems[each].append(run.source)
    if problems:
        raise DocumentError(
            tuple(f"{name_some(sources)}: {each}." for each, sources in problems.items()),
            why="A submission needs the result, settings, parameters, tokens and FLOPs of finished runs.",
            fix="Name logs of finished runs of Levanter; add --data NAME or --config FILE for what they lack.",
        )
    _require_one_recipe(runs)
    return runs


def submission_of_logged_entry(
    places: Sequence[str],
    *,
    path: Path,
    tracks: Mapping[str, Track],
    config: Path | None = None,
    peak_flops_per_second: float | None = None,
) -> Submission:
    """Return the submission of logs of an entry whose file is `path`, so that it can be trained again.

    The entry names the classes of model and optimizer with their settings; they are counted here, which runs its code.
    `DocumentError` lists every setting in which the logs differ from the entry.
    """
    entry = read_entry(path)
    rules, plan = tracks.get(entry.track), entry_plan(entry, path=path)
    if not isinstance(plan, OwnPlan):
        raise UsageError(
            f"{path} names the recipe {entry.recipe}.",
            why="Logs are of Levanter's classes.",
            fix="Name model and optimizer by Levanter's names, with the settings of the logged runs.",
        )
    runs = _logged_runs(places, rules=rules, data=entry.data.source, config=config)
    about: dict[str, Any] = {"name": entry.name, "track": entry.track, "description": entry.description}
    about |= {"author": entry.author, "trials": entry.trials, "data": entry.data.source, "rules": rules}
    made = _submission(runs, **about, peak_flops_per_second=peak_flops_per_second)
    if differing := [*_differing(made, entry, plan), *runs[0].differing(entry, evaluation=made.evaluation.name)]:
        text = "" if "data" in entry.model_fields_set else " Name the text of the logs under data: source, tokenizer, train, "
        raise DocumentError(
            tuple(f"{key}: the logs have {quoted(logged)}, {path} has {quoted(own)}." for key, logged, own in differing),
            why="The entry must give the logged runs if it is trained again.",
            fix=f"Correct the entry.{text and text + 'validation.'}",
        )
    return _confirmable(made, entry, plan, path=Path(os.path.relpath(path)))


def _confirmable(made: Submission, entry: Entry, plan: OwnPlan, *, path: Path) -> Submission:
    """Return a submission with what its entry, at `path` from the repository's root, states instead of the logs."""
    document = made.model_dump(exclude_none=True)
    code = {"path": path.as_posix(), "command": f"{SUBMIT} LOG --entry {shlex.quote(path.as_posix())}"}
    document["code"] = code | ({} if plan.code is None else {"tree_sha256": sha256_hex(plan.code.encode())})
    document["model"] |= {
        "params_active": plan.shape.params_active,
        "params_non_embedding": plan.shape.params_non_embedding,
        "flops_per_token": plan.model.flops_per_token,
        "config": plan.model.model_dump(mode="json"),
    }
    document["training"]["config"] = settings_of(plan.recipe, plan.optimizer, entry.compute)
    document["data"]["tokenizer"] = load_tokenizer(entry.data.tokenizer, end_token=entry.data.end_token).identity.name
    absent = {key: why for key, why in made.absent.items() if key not in _OF_ENTRIES}
    absent |= {"code.repository": "the log contains no address", "code.commit": _NOT_LOGGED["code"]}
    document["absent"] = absent | ({} if plan.code is not None else {"code.tree_sha256": "the entry has no code of its own"})
    return Submission.model_validate(document | of_entry(document, entry, plan=plan))


def _differing(made: Submission, entry: Entry, plan: OwnPlan) -> Iterator[tuple[str, object, object]]:
    """Yield each setting in which logs differ from their entry, with the values of both; settings of classes have defaults."""
    assert made.training is not None  # as _submission makes it
    seeds = sorted(each.seed for each in made.seeds if each.seed is not None)
    pairs: dict[str, tuple[object, object]] = {
        "seeds": (seeds, sorted(entry.seeds)),
        "steps": (made.training.steps, plan.train_steps),
        "batch_size": (_plain(made.training.stages), _plain(entry.batch_stages)),
        "model.max_seq_len": (made.training.seq_len, plan.shape.seq_len),
        "parameters": (made.model.params_total, plan.shape.params_total),
        "FLOPs per token": (_digits(made.model.flops_per_token), _digits(plan.model.flops_per_token)),
    }
    for name, logged in (("model", made.model.config), ("optimizer", made.training.config)):
        whole = flat(plan.whole_settings[name])
        pairs |= {f"{name}.{key}": (logged[key], whole[key]) for key in sorted(logged.keys() & whole.keys() - _NOT_TRAINED)}
    return ((key, *pair) for key, pair in pairs.items() if pair[0] != pair[1])


_NOT_TRAINED = {"tokenizer", "reference_checkpoint"}
"""Settings of models for conversion only, which Levanter's `train_lm` needs."""


def _digits(value: float | None) -> str:
    return f"{value:.4g}"


def _plain(stages: Sequence[BatchStage]) -> int | list[dict[str, Any]]:
    return stages[0].value if len(stages) == 1 else [each.model_dump() for each in stages]


def _configuration(path: Path) -> dict[str, Any]:
    """Return the flat settings of Levanter's configuration file."""
    try:
        document = yaml.load(read_bytes(path), PlainLoader)
    except (yaml.YAMLError, ValueError) as error:
        raise DocumentError(f"{path} is not YAML.", fix="Give the file with which Levanter was started.") from error
    if not isinstance(document, dict):
        raise DocumentError(f"{path} has no settings.", fix="Give the file with which Levanter was started.")
    return flat(document)


def _loss_keys(run: TrackedRun, rules: Track | None) -> list[str]:
    """Return the keys of bits per byte: those of the track's held-out text, or of the only one."""
    wanted = rules.evaluation_name if rules else None
    named = [key for key in run.metrics if key.rpartition("/")[2] == _BPB]
    sets = [key for key in named if key.count("/") > 1] or named
    return [key for key in sets if wanted is None or same_held_out(key, wanted)]


class _Logged:
    """A run of Levanter with its settings, those of a configuration file where the log has none."""

    def __init__(self, run: TrackedRun, given: Mapping[str, Any]) -> None:
        self.run, self.source = run, run.source
        self.config = {**given, **{key: value for key, value in run.config.items() if value is not None}}
        self.values = LoggedValues(run)

    def count(self, key: str) -> int | None:
        """Return a whole number above zero of settings or metrics; None for anything else."""
        found = self.values.number(key) if key in self.run.metrics else self.config.get(key)
        return int(found) if isinstance(found, int | float) and not isinstance(found, bool) and found >= 1 else None

    def problems(self, rules: Track | None, *, data: str | None) -> list[str]:
        """Return what the log lacks."""
        steps, last = self.count("trainer/num_train_steps"), self.values.number("global_step")
        if steps is not None and last is not None and last + 1 < steps:
            return [f"it ends at step {last + 1:g} of {steps}"]
        found, keys = list[str](), _loss_keys(self.run, rules)
        if self.tokenizer == _NO_TOKENIZER:
            found.append(
                "its tokenizer is passthrough, with which Levanter does not know the bytes, so its bits per byte are wrong"
            )
        wanted = f" of {rules.evaluation_name}" if rules and rules.evaluation_name else ""
        if len(keys) != 1 or self.values.number(keys[0]) is None:
            found.append(f"it has {joined(keys) if keys else 'no key'} for the bits per byte{wanted}; one number is needed")
        counts = ("parameter_count", "throughput/total_tokens", "trainer/num_train_steps")
        missing = [key for key in counts if self.count(key) is None]
        if missing == list(counts):
            return [f"it is no whole log of Levanter: {joined(counts)} are missing"]
        found += [f"it has no {key}" for key in missing]
        if self.values.number("throughput/total_gflops") is None:
            found.append("it has no throughput/total_gflops")
        if not self.stages:
            found.append("it has no trainer/train_batch_size")
        if self.seq_len is None:
            found.append("it has no train_seq_len and no model/max_seq_len")
        if data is None and self.data_name is None:
            found.append("it does not name one training text")
        return found

    def differing(self, entry: Entry, *, evaluation: str) -> Iterator[tuple[str, object, object]]:
        """Yield settings beside the classes in which the log differs from an entry, with the values of both."""
        begun = self.config.get("initialize_from_checkpoint_path") or self.config.get("initialize_from_hf") or "new weights"
        own = entry.data.tokenizer
        pairs = {
            "first weights": (begun, "new weights"),
            "data.source": (self.data_name or entry.data.source, entry.data.source),
            "data.tokenizer": (Path(self.tokenizer or own).name, Path(own).name),
            "z_loss_weight": (self.config.get("z_loss_weight", entry.z_loss_weight), entry.z_loss_weight),
            "compute.precision": (self._precision or entry.compute.precision, entry.compute.precision),
        }
        yield from ((key, *pair) for key, pair in pairs.items() if pair[0] != pair[1])
        held_out = list(entry.data.validation or entry.data.corpora) or [entry.data.source]
        if not any(same_held_out(name, evaluation) for name in held_out):
            yield "data.validation", evaluation, joined(held_out)

    @property
    def _precision(self) -> str | None:
        """The type of activations and products; None if the log does not name it."""
        named = self.config.get("trainer/mp/compute_dtype")
        return named.rpartition(".")[2] if isinstance(named, str) else None

    @property
    def tokens(self) -> int:
        return self.count("throughput/total_tokens") or 1

    @property
    def flops(self) -> float:
        return 1e9 * (self.values.number("throughput/total_gflops") or 0.0)

    @property
    def trainer(self) -> dict[str, Any]:
        """Settings of the trainer that runs of one submission share."""
        stated = {"z_loss_weight": self.config.get("z_loss_weight"), "mp": self._precision}
        return {"train_batch_size": self.stages, "total_tokens": self.tokens, "total_gflops": self.flops / 1e9, **stated}

    @property
    def data(self) -> dict[str, Any]:
        """Text that runs of one submission share."""
        return {"train_weights": self.data_name, "tokenizer": self.tokenizer and Path(self.tokenizer).name}

    @property
    def seq_len(self) -> int | None:
        return self.count("train_seq_len") or self.count("model/max_seq_len")

    @property
    def tokenizer(self) -> str | None:
        found = self.config.get("data/tokenizer")
        return str(found) if found else None

    @property
    def stages(self) -> tuple[BatchStage, ...]:
        """Stages of the batch size; none if the log has none."""
        stated = self.config.get("trainer/train_batch_size")
        if isinstance(stated, list) and all(isinstance(each, dict) for each in stated):
            return tuple(BatchStage.model_validate(each) for each in stated)
        size = self.count("trainer/train_batch_size")
        return () if size is None else (BatchStage(start=0, value=size),)

    @property
    def data_name(self) -> str | None:
        """The training text with a weight, if it is one."""
        prefix = "data/train_weights/"
        named = [key.removeprefix(prefix) for key, weight in self.config.items() if key.startswith(prefix) and weight]
        return named[0] if len(named) == 1 else None

    def section(self, name: str) -> dict[str, Any]:
        """Return the settings of a section, without empty ones."""
        found = {key.removeprefix(f"{name}/"): value for key, value in self.config.items() if key.startswith(f"{name}/")}
        return {key: value for key, value in found.items() if isinstance(value, bool | int | float | str)}

    def training(self) -> Training:
        stages = self.stages
        return Training(
            batch_size=max(stage.value for stage in stages),
            batch_schedule=stages if len(stages) > 1 else (),
            seq_len=self.seq_len or 1,
            steps=self.count("trainer/num_train_steps") or 1,
            config=self.section("optimizer"),
        )

    def loss_key(self, rules: Track | None) -> str | None:
        """Return the key of the submitted loss."""
        return next(iter(_loss_keys(self.run, rules)), None)

    def hardware(self, peak: float | None) -> Hardware:
        """Return the machine named in the log."""
        kind = str(self.run.metrics.get("throughput/device_kind") or self.run.metrics.get("backend") or "not named")
        known = accelerator(kind)
        return Hardware(
            kind=known.kind if known else kind.lower(),
            chips=self.count("num_devices") or 1,
            peak_flops_per_second=peak or (known.peak_flops_per_second if known else None),
        )

    def seed_result(self, key: str) -> SeedResult:
        """Return the result of this run, with its curve if the loss was logged more than once."""
        steps = self.count("trainer/num_train_steps") or 1
        seconds = [float(row[_SECONDS]) for _, row in self.run.history if _SECONDS in row]
        losses = [(int(step), float(row[key])) for step, row in self.run.history if isinstance(row.get(key), int | float)]
        seed = self.config.get("trainer/seed")
        is_online = self.run.source.startswith("http")
        return SeedResult(
            seed=seed if isinstance(seed, int) else None,
            bits_per_byte=self.values.number(key) or 0.0,
            training_seconds=sum(seconds) if len(seconds) >= _LEAST_SHARE_OF_STEPS * steps else None,
            started_at=self.run.started_at,
            finished_at=self.run.ended_at,
            log=self.run.source if is_online else None,
            log_sha256=None if is_online else sha256_hex(read_bytes(Path(self.run.source))),
            curve=tuple(CurvePoint(step=step, bits_per_byte=loss) for step, loss in losses) if len(losses) > 1 else (),
        )


def _require_one_recipe(runs: Sequence[_Logged]) -> None:
    """Raise `UsageError` if the runs differ in more than their seeds."""
    for run in runs[1:]:
        for name, before, after in [
            *((name, runs[0].section(name), run.section(name)) for name in ("model", "optimizer")),
            *((name, getattr(runs[0], name), getattr(run, name)) for name in ("trainer", "data")),
        ]:
            if differing := sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key)):
                values = f"{quoted(before.get(differing[0]))} and {quoted(after.get(differing[0]))}"
                raise UsageError(
                    f"{runs[0].source} and {run.source} differ in {name}/{differing[0]}: {values}.",
                    why="All runs of a submission have the same settings except for seeds.",
                    fix="Submit the runs under two names.",
                )


def is_log(place: str) -> bool:
    """Return True for the place of a log, False for a run of the store or a preregistration."""
    path = Path(place)
    return place.startswith(ONLINE) or (
        path.exists() and not any((path / name).exists() for name in ("spec.json", "statement.json"))
    )
