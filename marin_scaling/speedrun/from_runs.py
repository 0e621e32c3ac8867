"""Make a submission from runs of the store, and confirm one by retraining."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import fmean, stdev
from typing import Any

from scipy.special import stdtrit

from marin_scaling.accelerators import accelerator
from marin_scaling.canonical_json import sha256_hex
from marin_scaling.errors import UsageError
from marin_scaling.ladder.config import Compute as ComputeOfSteps
from marin_scaling.printable import FAULTS_NAMED, quoted
from marin_scaling.recipe.model_shape import OWN_COUNT, WITH_LM_HEAD, MoeShape, OwnShape, training_flops
from marin_scaling.run.spec import OptimizerSpec, OwnModelSpec, OwnOptimizerSpec, RunSpec
from marin_scaling.run.store import StoredRun
from marin_scaling.speedrun.submission import (
    EXACT,
    LEVANTER_FLOPS,
    Author,
    Code,
    Compute,
    Data,
    Environment,
    Evaluation,
    Hardware,
    Model,
    SeedResult,
    Shape,
    Submission,
    Training,
    Tuning,
)
from marin_scaling.speedrun.track import same_held_out

_NOT_KEPT: Mapping[str, str] = {
    "code.repository": "records contain the commit, not the address",
    "code.tree_sha256": "records contain no digest of the code",
    "code.path": "trained by marin-scale from the ladder file in code.command",
    "compute.cost_usd": "records contain no price",
    "evaluation.bytes": "records contain bits per byte, not the sum",
    "seeds.nats": "records contain bits per byte, not the sum",
    "seeds.hardware_flops": "computed from time, chips and peak if known",
    "seeds.log": "the curve is in the run's folder; its digest is log_sha256",
    "seeds.curve": "the held-out loss is measured only at the end",
}
_CLOCK_SECONDS = 10.0


def submission_from_runs(
    runs: Sequence[StoredRun],
    *,
    name: str,
    track: str,
    author: Author,
    description: str,
    trials: int | None,
    held_out: str | None = None,
    peak_flops_per_second: float | None = None,
) -> Submission:
    """Return the submission of runs that differ only in their seeds; `UsageError` if one diverged or differs in more."""
    _require_one_recipe(runs)
    spec, absent = runs[0].spec, dict(_NOT_KEPT)
    chosen = held_out_set(spec.data.held_out, asked=held_out)
    if runs[0].record.git_commit is None:
        absent["code.commit"] = "trained outside of a git repository"
    if spec.role == "target":
        absent["code.command"] = f"marin-scale run on the preregistration with digest {spec.statement_sha256}"
    if trials is None:
        absent["tuning"] = "not stated by the author"
    else:
        absent |= {"tuning.budget_flops": "not stated", "tuning.selected_on": "not stated"}
    seeds = tuple(_seed(run, held_out=chosen) for run in runs)
    if any(each.training_seconds is None for each in seeds):
        absent["seeds.training_seconds"] = "the run was interrupted; the record contains the time of the last part only"
    tokenizer = spec.data.tokenizer
    if tokenizer is None:
        absent["evaluation.tokenizer_sha256"] = "every byte is a token"
    hardware = _hardware(runs[0], peak_flops_per_second=peak_flops_per_second)
    if chosen is not None:
        del absent["evaluation.bytes"]
    if hardware.peak_flops_per_second is None:
        absent["compute.hardware.peak_flops_per_second"] = "the hardware table has no such chip"
    shape = _shape(spec)
    flops = spec.flops if shape is None else training_flops(shape, tokens=spec.trained_tokens, convention=WITH_LM_HEAD)
    if shape is None:
        absent["model.shape"] = "the model's class counts its own FLOPs: model.flops_per_token"
    code = None if spec.code is None else sha256_hex(spec.code.encode())
    if code is not None:
        del absent["code.tree_sha256"]
    return Submission(
        name=name,
        track=track,
        description=description,
        authors=(author,),
        code=Code(commit=runs[0].record.git_commit, command=_command(spec), tree_sha256=code),
        environment=_environment(runs[0].record.versions),
        data=_data(spec),
        model=_model(runs[0], shape),
        training=Training(
            batch_size=spec.batch_size,
            batch_schedule=spec.batch_schedule,
            seq_len=spec.model.seq_len,
            steps=spec.train_steps,
            config=settings_of(spec.recipe, spec.optimizer, spec.compute),
        ),
        tuning=None if trials is None else Tuning(trials=trials),
        compute=Compute(model_flops=flops, model_flops_formula=LEVANTER_FLOPS if shape else OWN_COUNT, hardware=hardware),
        evaluation=_evaluation(spec, held_out=chosen),
        seeds=seeds,
        absent=absent,
    )


def held_out_set(names: Iterable[str], *, asked: str | None) -> str | None:
    """Return the held-out set with the name that a track requires; None without one.

    >>> held_out_set(["wiki", "c4_en"], asked="paloma/c4_en")
    'c4_en'
    """
    return None if asked is None else next((name for name in names if same_held_out(name, asked)), None)


def _evaluation(spec: RunSpec, *, held_out: str | None) -> Evaluation:
    """Return text and protocol of the submitted loss: one held-out set, or all of the run's."""
    tokenizer = spec.data.tokenizer.digest if spec.data.tokenizer else None
    if held_out is None:
        name, digest, size = f"{spec.data.source}, {spec.evaluation.protocol}", spec.data.digest, None
    else:
        known = spec.data.held_out[held_out]
        name = f"{held_out}, {spec.evaluation.protocol.removesuffix('-mean-of-sets')}"
        digest, size = known.digest, known.bytes
    return Evaluation(name=name, digest=digest, bytes=size, tokenizer_sha256=tokenizer)


def _require_one_recipe(runs: Sequence[StoredRun]) -> None:
    first = _but_seeds(runs[0].spec)
    for run in runs:
        if run.record.loss is None:
            raise UsageError(
                f"{run.folder} diverged and has no loss.",
                why="A submission needs the loss of every seed.",
                fix="Submit the finished runs, and state the number of diverged runs in --description.",
            )
        differing = sorted(key for key, value in _but_seeds(run.spec).items() if value != first[key])
        if differing:
            raise UsageError(
                f"{run.folder} differs from {runs[0].folder} in {', '.join(differing)}.",
                why="All runs of a submission have the same settings except for seeds.",
                fix="Submit the runs under two names.",
            )


def _but_seeds(spec: RunSpec) -> dict[str, Any]:
    return spec.model_dump(
        mode="json", exclude={"seed", "data_order_seed", "statement_sha256", "role", "ladder", "budget_flops"}
    )


def _seed(run: StoredRun, *, held_out: str | None) -> SeedResult:
    record = run.record
    assert record.loss is not None  # required by _require_one_recipe
    loss = record.loss if held_out is None else record.losses.get(held_out, record.loss)
    started, finished = datetime.fromisoformat(record.started_at), datetime.fromisoformat(record.finished_at)
    whole = (finished - started).total_seconds() <= record.wall_seconds + _CLOCK_SECONDS
    return SeedResult(
        seed=record.seed,
        bits_per_byte=loss,
        training_seconds=record.step_seconds if whole and record.step_seconds > 0 else None,
        started_at=started,
        finished_at=finished,
        log_sha256=record.history_sha256,
    )


def _hardware(run: StoredRun, *, peak_flops_per_second: float | None) -> Hardware:
    """Return the machine named in the record; a CPU counts its cores."""
    stated = run.record.hardware
    known, named = accelerator(stated.device_kind), stated.device_kind.lower()
    chips = stated.cpu_count if named == "cpu" else stated.device_count
    peak = peak_flops_per_second or (known.peak_flops_per_second if known else None)
    return Hardware(kind=known.kind if known else named, name=stated.platform, chips=chips, peak_flops_per_second=peak)


def _shape(spec: RunSpec) -> Shape | None:
    """Return the sizes of a recipe's model; None for a model whose class counts its own FLOPs."""
    shape = spec.model.shape()
    if isinstance(shape, OwnShape):
        return None
    sparse = {}
    if isinstance(shape, MoeShape):
        sparse = {
            "num_experts": shape.num_experts,
            "experts_per_token": shape.experts_per_token,
            "shared_intermediate_dim": shape.shared_intermediate_dim,
        }
    sizes = ("hidden_dim", "intermediate_dim", "num_layers", "num_heads", "num_kv_heads", "vocab_size", "seq_len")
    return Shape(**{size: getattr(shape, size) for size in sizes}, **sparse)


def _model(run: StoredRun, shape: Shape | None) -> Model:
    record, own = run.record, run.spec.model
    return Model(
        params_total=record.params_total,
        params_active=record.params_active,
        params_non_embedding=record.params_non_embedding,
        shape=shape,
        flops_per_token=own.flops_per_token if isinstance(own, OwnModelSpec) else None,
        config=run.spec.model.model_dump(mode="json"),
    )


def _data(spec: RunSpec) -> Data:
    return Data(
        name=spec.data.source,
        tokenizer=spec.data.tokenizer.name if spec.data.tokenizer else "bytes",
        digest=spec.data.digest,
        unique_tokens=spec.data.tokens,
        trained_tokens=spec.trained_tokens,
    )


def _environment(versions: Mapping[str, str]) -> Environment:
    packages = {name: version for name, version in versions.items() if name != "python"}
    return Environment(python=versions.get("python", "not recorded"), packages=packages)


def settings_of(recipe: str, optimizer: OptimizerSpec | OwnOptimizerSpec, compute: ComputeOfSteps) -> dict[str, Any]:
    """Return `training.config` of a submission."""
    computed = compute_settings(compute)
    more = {} if computed is None else {"compute": computed}
    return {"recipe": recipe, **optimizer.model_dump(mode="json"), **more}


def compute_settings(compute: ComputeOfSteps) -> dict[str, Any] | None:
    """Return precision and devices of the steps as far as they differ from the default; None if nothing does."""
    return compute.model_dump(mode="json", exclude_defaults=True) or None


def _command(spec: RunSpec) -> str | None:
    """Return the command of a rung; a target is trained from its preregistration."""
    return f"marin-scale ladder ladders/{spec.ladder}.yaml" if spec.role == "rung" else None


_DECIDED = (
    *("track", "data", "model", "training", "evaluation", "code.tree_sha256"),
    *("compute.model_flops", "compute.xla_gradient_flops", "compute.xla_flops"),
)  # fixed by the entry before training


def differing_keys(submission: Submission, made: Submission, *, parts: Iterable[str] = _DECIDED) -> dict[str, tuple[Any, Any]]:
    """Return the keys in which a submission differs from the one made of its runs, with both values; None is a missing value.

    Only these parts are compared: by default those that an entry fixes before training.
    """
    stated, recorded = ({key: value for part in parts for key, value in _values(one, part)} for one in (submission, made))
    pairs = {key: (stated.get(key), recorded.get(key)) for key in sorted(stated.keys() | recorded.keys())}
    return {key: pair for key, pair in pairs.items() if not _agree(*pair)}


def _values(submission: Submission, part: str) -> Iterator[tuple[str, Any]]:
    """Yield every value of a part with its key, such as `training.config.learning_rate`."""
    value = submission.model_dump(mode="json", exclude_none=True)
    for name in part.split("."):
        value = value.get(name, {})
    left = [(part, value)]
    while left:
        key, value = left.pop()
        if isinstance(value, dict):
            left += [(f"{key}.{name}", below) for name, below in value.items()]
        else:
            yield key, value


def _agree(stated: object, recorded: object) -> bool:
    if isinstance(stated, float) and isinstance(recorded, float):
        return math.isclose(stated, recorded, rel_tol=EXACT)
    return stated == recorded


_COVERED = 0.975
"""Quantile of Student's t for the difference of two means: one of twenty honest ones is outside by noise alone."""


MOST_TOLERANCE = 0.05
"""Largest tolerance of the mean of logged runs, as a share of the loss; seeds of the tiniest runs scatter by 1 to 2 %."""


@dataclass(frozen=True, kw_only=True)
class Confirmation:
    """Claimed and retrained losses of the same seeds, in bits per byte, with the track's tolerance of one seed.

    `differs` has the keys in which the submission differs from its entry, each with the value of both.
    """

    name: str
    differs: Mapping[str, tuple[Any, Any]]
    seeds: Mapping[int | None, tuple[float, float]]
    """Claimed and retrained loss by seed."""
    tolerance: float
    retrained: Submission
    """Submission that the retraining gave."""
    one_order: bool = True
    """False for runs of another trainer, which have other weights and batches from the same seed: only means are compared."""

    @property
    def confirmed(self) -> bool:
        """True if the submission matches its entry, every seed and the mean are reproduced, and seeds do not scatter widely."""
        close = all(abs(claimed - again) <= most for _, claimed, again, most in self._compared)
        return close and not self.differs and not self._is_loose

    @property
    def _is_loose(self) -> bool:
        """True if seeds scatter so much that the comparison of means says little."""
        *_, (_, _, again, most) = self._compared
        return not self.one_order and most > MOST_TOLERANCE * again

    @property
    def _compared(self) -> list[tuple[str, float, float, float]]:
        """Name, claimed and retrained loss, and tolerance of each seed and of their mean, or of the mean alone."""
        claimed, again = map(fmean, zip(*self.seeds.values(), strict=True))
        seeds = [(f"seed {seed}", *losses, self.tolerance) for seed, losses in self.seeds.items()]
        mean = ("mean", claimed, again, self.tolerance / math.sqrt(len(self.seeds)) + self._noise_of_means)
        return [*seeds, mean] if self.one_order else [mean]

    @property
    def _noise_of_means(self) -> float:
        """Largest difference of the means by the scatter of the retrained seeds; zero for runs of one order.

        The claimed losses do not count, because their author could spread them.
        """
        if self.one_order:
            return 0.0
        count, again = len(self.seeds), [retrained for _, retrained in self.seeds.values()]
        return float(stdtrit(count - 1, _COVERED)) * stdev(again) * math.sqrt(2 / count)

    @property
    def sentence(self) -> str:
        """Result, with a line for each key that differs, each seed and the mean; a difference is claimed minus retrained."""
        differs = list(self.differs.items())[:FAULTS_NAMED]
        lines = [
            f"{self.name}  {'confirmed' if self.confirmed else 'NOT confirmed'}, in bits per byte:",
            *(f"{quoted(key)}: claimed {_value(claimed)}, by its entry {_value(entry)}" for key, (claimed, entry) in differs),
            f"{'':<8}{'claimed':>10}{'retrained':>11}{'difference':>12}{'tolerance':>11}",
            *(
                f"{name:<8}{claimed:>10.6f}{again:>11.6f}{claimed - again:>+12.6f}{most:>11.6f}"
                f"{'' if abs(claimed - again) <= most else '  OUTSIDE'}"
                for name, claimed, again, most in self._compared
            ),
        ]
        if not self.one_order:
            *_, (_, _, again, most) = self._compared
            lines.append("Another trainer made these runs, so means are compared, with seed noise.")
            lines.append(f"A difference below {most:.3f} ({most / again:.1%} of the loss) would not be seen.")
        if self._is_loose:
            lines.append(f"The tolerance is above {MOST_TOLERANCE:.0%} of the loss; submit more seeds.")
        return "\n  ".join(lines)


def confirmation(submission: Submission, retrained: Submission, *, tolerance: float, one_order: bool = True) -> Confirmation:
    """Compare a submission with its retrained entry, seed by seed; `UsageError` for other seeds or fewer than two.

    `tolerance` is the largest difference of one seed in bits per byte (`Track.retraining_tolerance`). The means may differ
    by the tolerance over the root of the number of seeds, as errors of independent retrainings average. Runs of another trainer
    are not of `one_order`: their means may also differ by the noise of seeds, and what their logs lack is not compared.
    """
    claimed, losses = ({each.seed: each.bits_per_byte for each in one.seeds} for one in (submission, retrained))
    stated = [each.seed for each in submission.seeds]
    if Counter(stated) != Counter(list(losses)) or len(losses) < 2:
        raise UsageError(
            f"{submission.name} has seeds {_said(stated)}; its entry has {_said(losses)}.",
            why="The comparison needs the same seeds, two or more.",
            fix="Submit all seeds of the entry, two or more.",
        )
    differs = differing_keys(submission, retrained)
    if not one_order:
        differs = {key: pair for key, pair in differs.items() if pair[0] is not None and not key.startswith("evaluation.")}
    return Confirmation(
        name=submission.name,
        differs=differs,
        seeds={seed: (claimed[seed], loss) for seed, loss in losses.items()},
        tolerance=tolerance,
        retrained=retrained,
        one_order=one_order,
    )


def _value(value: object) -> str:
    return "not stated" if value is None else quoted(value)


def _said(seeds: Iterable[int | None]) -> str:
    return ", ".join("not recorded" if seed is None else str(seed) for seed in seeds)
