"""Bind planned rungs to exact data and evaluation: run specs, ready to train."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeVar

from marin_scaling.canonical_json import sha256_hex
from marin_scaling.data.corpus import BYTES, HELD_OUT, TRAIN, RowFacts, TokenCorpus
from marin_scaling.errors import DataError, Finding, MarinScalingError, RecipeError, UsageError, warning
from marin_scaling.files import read_bytes
from marin_scaling.ladder.config import (
    STANDARD_LIBRARY,
    Compute,
    Data,
    Evaluation,
    Hardware,
    LadderFile,
    read_ladder_file,
)
from marin_scaling.ladder.fit_check import RecordedRun
from marin_scaling.ladder.plan import Ladder, plan_ladder
from marin_scaling.printable import joined
from marin_scaling.recipe.base import RungPlan, swept_plans
from marin_scaling.recipe.find import find_recipe
from marin_scaling.recipe.model_shape import MoeShape, OwnShape, training_flops
from marin_scaling.run.spec import (
    BatchStage,
    DataSpec,
    EvaluationProtocol,
    EvaluationSpec,
    ModelSpec,
    MoeModelSpec,
    NamedTokens,
    OptimizerSpec,
    OwnModelSpec,
    OwnOptimizerSpec,
    RunSpec,
    TokenizerSpec,
    read_spec,
    windows_before,
)
from marin_scaling.run.store import RUNS_DIR, RunRecord, as_moment, own_work_root, read_run, run_folders
from marin_scaling.run.text_needs import (
    data_findings,
    horizon_of,
    mix_findings,
    require_data,
    require_vocabulary,
    target_findings,
)
from marin_scaling.units import counted, format_flops, format_number, parse_flops

if TYPE_CHECKING:
    from marin_scaling.data.tokenizer import Tokenizer

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class PlannedLadder:
    """A ladder, bound to its data."""

    ladder: Ladder
    corpus: TokenCorpus
    specs: list[RunSpec]

    @property
    def runs_dir(self) -> Path:
        """Return the folder of the ladder's runs."""
        return RUNS_DIR / self.ladder.file.name

    def findings(self) -> list[Finding]:
        """Return warnings about the data, repeated or too little for the target, and about recorded runs that are no rungs."""
        file = self.ladder.file
        of_data = [*data_findings(self.specs), *mix_findings(file, self.specs), *target_findings(file, corpus=self.corpus)]
        return [*of_data, *self.other_runs()]

    def other_runs(self) -> list[Finding]:
        """Warn of recorded rungs that the ladder file does not make: it was changed, or the text."""
        known = {spec.digest for spec in self.specs}
        others = [spec for spec in _recorded_rungs(self.runs_dir) if spec.digest not in known]
        if not others:
            return []
        others.sort(key=lambda spec: (spec.budget_flops, spec.model.hidden_dim))
        names = joined(dict.fromkeys(spec.rung_name for spec in others), most=3)
        told = f"{counted(len(others), 'recorded run')} ({names}) with other settings or text than the file's rungs"
        return [warning("other-runs", str(self.runs_dir), f"{told}, which are trained anew; fits use both")]


class Written(Protocol):
    """The sections of a ladder file, or of a speedrun entry's file, that hold for all of its runs."""

    @property
    def data(self) -> Data:
        """Training and validation data."""

    @property
    def evaluation(self) -> Evaluation:
        """Metric and protocol."""

    @property
    def compute(self) -> Compute:
        """Precision and devices of the training steps."""


def rung_specs(ladder: Ladder, *, corpus: TokenCorpus) -> list[RunSpec]:
    """Return the spec of every rung, in the ladder's order; a ladder with recorded runs keeps their order of the data."""
    name, horizon = ladder.file.name, horizon_of(ladder.file)
    specs = [
        run_spec(ladder.file, rung.plan, ladder=name, seed=rung.seed, corpus=corpus, horizon_tokens=horizon)
        for rung in ladder.rungs
    ]
    recorded = {} if ladder.file.data.order else _recorded_orders(RUNS_DIR / name)
    shared_trunk = ladder.file.shared_trunk
    return [
        spec.model_copy(update={"data_order_seed": recorded.get(spec.seed, spec.data_order_seed), "shared_trunk": shared_trunk})
        for spec in specs
    ]


def _recorded_orders(ladder_dir: Path) -> dict[int, int]:
    """Return the seed of the data order for each seed of a ladder's recorded rungs that share one."""
    orders: dict[int, set[int]] = {}
    for spec in _recorded_rungs(ladder_dir):
        orders.setdefault(spec.seed, set()).add(spec.data_order_seed)
    return {seed: found.pop() for seed, found in orders.items() if len(found) == 1}


def _recorded_rungs(ladder_dir: Path) -> Iterator[RunSpec]:
    for path in (folder / "spec.json" for folder in run_folders(ladder_dir)):
        if not path.is_file():
            continue  # not a run; who trains or reads it says so
        spec = read_spec(read_bytes(path), name=str(path))
        if spec.role == "rung":
            yield spec


def _recorded_speeds(ladder_dir: Path) -> tuple[RecordedRun, ...]:
    """Return the speed of each recorded rung; a damaged record is left to those who use its loss."""
    found = []
    for folder in run_folders(ladder_dir):
        with contextlib.suppress(MarinScalingError, OSError):
            run = read_run(folder)
            if run.spec.role == "rung":
                found.append(_speed(run.spec, run.record))
    return tuple(found)


def _speed(spec: RunSpec, record: RunRecord) -> RecordedRun:
    shared = record.trunk.steps / spec.train_steps if record.trunk else 0.0
    return RecordedRun(
        rung=spec.rung_key,
        active_params=record.params_active,
        flops=record.flops * (1 - shared),
        step_seconds=record.step_seconds,
        wall_seconds=record.wall_seconds,
        ended=as_moment(record.finished_at).timestamp(),
        device_kind=record.hardware.device_kind,
        device_count=record.hardware.device_count,
        is_timed=not record.was_interrupted,
    )


def target_spec(file: LadderFile, plan: RungPlan, *, corpus: TokenCorpus) -> RunSpec:
    """Return the spec of the target run, not yet bound to a statement."""
    seed = file.seeds[0] if file.target.seed is None else file.target.seed
    spec = run_spec(file, plan, ladder=file.name, seed=seed, corpus=corpus, role="target", horizon_tokens=horizon_of(file))
    return spec.model_copy(update={"data_order_seed": 0})


def run_spec(
    file: Written,
    plan: RungPlan | OwnPlan,
    *,
    ladder: str,
    seed: int,
    corpus: TokenCorpus,
    role: Literal["rung", "target"] = "rung",
    horizon_tokens: int | None = None,
) -> RunSpec:
    """Return the spec of one planned run from one seed, for the store's folder `ladder`; `DataError` if the data do not fit."""
    spec = spec_on_data(
        file,
        plan,
        ladder=ladder,
        role=role,
        seed=seed,
        data=data_of(corpus),
        data_order_seed=_data_order_seed(file.data.order, seed),
        epochs=1 if corpus.parts else min(file.data.epochs, _epochs_wanted(plan, corpus)),
        horizon_tokens=horizon_tokens,
        protocol=_protocol(corpus),
    )
    require_data(spec, corpus=corpus, epochs=file.data.epochs)
    return spec


def spec_on_data(
    file: Written,
    plan: RungPlan | OwnPlan,
    *,
    ladder: str,
    role: Literal["rung", "target"],
    seed: int,
    data: DataSpec,
    data_order_seed: int = 0,
    epochs: int = 1,
    horizon_tokens: int | None = None,
    protocol: EvaluationProtocol = "disjoint-windows-first-byte-given",
) -> RunSpec:
    """Return the spec of one planned run on described data, which need not be here."""
    return RunSpec(
        ladder=ladder,
        role=role,
        recipe=plan.recipe,
        budget_flops=plan.budget_flops,
        model=model_of(plan),
        optimizer=optimizer_of(plan),
        code=plan.code if isinstance(plan, OwnPlan) else None,
        batch_size=plan.batch_size,
        batch_schedule=plan.batch_schedule if isinstance(plan, OwnPlan) else (),
        train_steps=plan.train_steps,
        seed=seed,
        data_order_seed=data_order_seed,
        data=data,
        epochs=epochs,
        mix=file.data.mixes,
        horizon_tokens=horizon_tokens,
        evaluation=EvaluationSpec(
            metric=file.evaluation.metric,
            seq_len=plan.shape.seq_len,
            windows=file.evaluation.windows,
            protocol=protocol,
        ),
        compute=file.compute,
    )


@dataclass(frozen=True, kw_only=True)
class OwnPlan:
    """Plan of a run whose model and optimizer are classes that Levanter knows by name, instead of a recipe's."""

    model: OwnModelSpec
    optimizer: OwnOptimizerSpec
    code: str | None
    batch_size: int
    """Sequences per step; the largest of a schedule."""
    batch_schedule: tuple[BatchStage, ...]
    train_steps: int
    xla_flops: float
    """FLOPs of all steps as XLA counts them, with the optimizer."""
    xla_gradient_flops: float
    """FLOPs of all gradients as XLA counts them."""
    whole_settings: Mapping[str, Mapping[str, Any]]
    """All settings of `model` and `optimizer`, with the defaults of their classes."""
    recipe: str = "levanter"
    doubts: tuple[str, ...] = ()

    @property
    def shape(self) -> OwnShape:
        """Counts of the model."""
        return self.model.shape()

    @property
    def trained_tokens(self) -> int:
        """Tokens of all steps."""
        return self.shape.seq_len * windows_before(self.train_steps, self.batch_schedule, batch_size=self.batch_size)

    @property
    def budget_flops(self) -> float:
        """Training FLOPs as the model's class counts them."""
        return training_flops(self.shape, tokens=self.trained_tokens)


def model_of(plan: RungPlan | OwnPlan) -> ModelSpec | MoeModelSpec | OwnModelSpec:
    """Return the plan's model shape as in a spec."""
    if isinstance(plan, OwnPlan):
        return plan.model
    kind = MoeModelSpec if isinstance(plan.shape, MoeShape) else ModelSpec
    return kind(**asdict(plan.shape))


def optimizer_of(plan: RungPlan | OwnPlan) -> OptimizerSpec | OwnOptimizerSpec:
    """Return the plan's optimizer, learning rates and schedule as in a spec."""
    if isinstance(plan, OwnPlan):
        return plan.optimizer
    return OptimizerSpec(
        name=plan.optimizer, constant_norm=plan.constant_norm, **asdict(plan.hyperparameters), **asdict(plan.schedule)
    )


def _epochs_wanted(plan: RungPlan | OwnPlan, corpus: TokenCorpus) -> int:
    windows = len(corpus.train) // plan.shape.seq_len
    return max(1, math.ceil(plan.trained_tokens // plan.shape.seq_len / max(1, windows)))


def data_of(corpus: TokenCorpus) -> DataSpec:
    """Return the corpus as in a spec."""
    is_bytes = corpus.tokenizer == BYTES
    tokenizer = None if is_bytes else TokenizerSpec(**asdict(corpus.tokenizer))
    held_out = _named_tokens({name: known for name, known in corpus.facts.items() if name != TRAIN})
    return DataSpec(
        source=corpus.source,
        digest=corpus.digest,
        train_bytes=corpus.facts[TRAIN].text_bytes,
        validation_bytes=sum(each.bytes for each in held_out.values()),
        tokenizer=tokenizer,
        train_tokens=None if is_bytes else len(corpus.train),
        parts=_named_tokens(corpus.parts),
        held_out={} if list(held_out) == [HELD_OUT] else held_out,
    )


def _named_tokens(rows: Mapping[str, RowFacts]) -> dict[str, NamedTokens]:
    return {name: NamedTokens(tokens=known.tokens, bytes=known.text_bytes, digest=known.sha256) for name, known in rows.items()}


def _protocol(corpus: TokenCorpus) -> EvaluationProtocol:
    if list(corpus.validation) == [HELD_OUT]:
        return "disjoint-windows-first-byte-given"
    return "disjoint-windows-first-token-given-mean-of-sets"


def _data_order_seed(order: str | None, seed: int) -> int:
    """Derive 64 bits from the name of an order and the run's seed: runs with one name and seed read the data in one order."""
    return int(sha256_hex(f"{order or 'default'}/{seed}".encode())[:16], 16)


class NotTokenized(DataError):
    """The text of a ladder is not tokenized yet."""


LEAST_SWEPT = 3
"""Values of a hyperparameter that locate an optimum."""
SWEPT = ("learning_rate", "batch_size")
SWEEP_LIKE = "Write it like --sweep learning_rate=0.5,0.7,1,1.4,2 or --sweep batch_size=8,16,32."


@dataclass(frozen=True, kw_only=True)
class LoadedLadder:
    """A ladder file, read and expanded with its recipe; its data are not read yet."""

    path: Path
    ladder: Ladder

    def plan(self, only: Sequence[str] = ()) -> Ladder:
        """Return the rungs, all or those of the budgets in `only` (BUDGET or BUDGET/WIDTH). Reads no data.

        `plan().frame` has one row per rung with its size, tokens and FLOPs, and times at the speed of recorded runs.
        """
        rungs = _chosen(self.ladder.rungs, only, place=lambda rung: (rung.plan.budget_flops, rung.plan.shape.hidden_dim))
        return replace(self.ladder, rungs=tuple(rungs), recorded=_recorded_speeds(RUNS_DIR / self.ladder.file.name))

    def swept(self, *, learning_rate: Sequence[float] = (), batch_size: Sequence[float] = ()) -> Self:
        """Return the ladder NAME-sweep: each rung at multiples of its learning rate, in batches of several sizes.

        `UsageError` for fewer than three values, or for a ladder whose rungs share their steps.

        >>> load_ladder("ladders/quickstart.yaml").swept(learning_rate=[0.5, 1, 2]).ladder.file.name
        'quickstart-sweep'
        """
        file, recipe = self.ladder.file, find_recipe(self.ladder.file.recipe)
        for name, values in (("learning_rate", learning_rate), ("batch_size", batch_size)):
            different = sorted(set(values))
            if values and (len(different) < LEAST_SWEPT or different[0] <= 0 or any(each % 1 for each in batch_size)):
                raise UsageError(
                    f"The sweep of {name} has {counted(len(different), 'value')}, {joined(map(format_number, different))}.",
                    why=f"An optimum needs {LEAST_SWEPT} different values above zero; batches have whole sequences.",
                    fix=SWEEP_LIKE,
                )
        if file.shared_trunk:
            raise UsageError(
                f"The rungs of {file.name} share their steps before the decay.",
                why="Their learning rates are those of the largest budget, so a sweep would not tune each rung.",
                fix="Sweep a copy of the file without shared_trunk.",
            )
        rungs = [
            replace(rung, plan=plan)
            for rung in self.ladder.rungs
            for plan in swept_plans(
                recipe, rung.plan, rate_factors=learning_rate or (1.0,), batch_sizes=[round(size) for size in batch_size]
            )
        ]
        file = file.model_copy(update={"name": f"{file.name}-sweep"})
        return replace(self, ladder=replace(self.ladder, file=file, rungs=tuple(rungs)))

    def bind(self) -> PlannedLadder:
        """Read and tokenize the ladder's data; `DataError` if the rungs cannot be trained on them."""
        from marin_scaling.data.prepare import prepare

        with _naming(self.path):
            tokenizer = self._tokenizer()
            return self._bound(prepare(self.ladder.file.data, work_root=own_work_root(), tokenizer=tokenizer, on_row=_log_row))

    def bind_prepared(self) -> PlannedLadder:
        """Bind cached data, or raise `NotTokenized` if the data are not tokenized already; for commands that only read."""
        from marin_scaling.data.prepare import prepared

        with _naming(self.path):
            corpus = prepared(self.ladder.file.data, work_root=own_work_root(), tokenizer=self._tokenizer())
            if corpus is None:
                raise NotTokenized(
                    f"the text of {self.ladder.file.data.source} is not tokenized yet.",
                    fix=f"Start training, which tokenizes it: marin-scale ladder {self.path}",
                )
            return self._bound(corpus)

    def data_findings(self) -> list[Finding]:
        """Return warnings about the data, including those that prevent training."""
        try:
            return self.bind_prepared().findings()
        except NotTokenized as error:
            return [warning("not-tokenized", "data", f"{error.what} Its amount is checked before training begins.")]
        except DataError as error:
            told = " ".join(line.strip() for line in error.lines)
            return [warning("unusable-data", "data", f"the ladder cannot be trained. {told}")]

    def _tokenizer(self) -> Tokenizer:
        """Return the data's tokenizer; `DataError` if the recipe's models have other tokens, before hours of reading."""
        from marin_scaling.data.tokenizer import load_tokenizer

        tokenizer = load_tokenizer(self.ladder.file.data.tokenizer, end_token=self.ladder.file.data.end_token)
        for rung in self.ladder.rungs:
            require_vocabulary(rung.plan.recipe, rung.plan.shape.vocab_size, tokenizer.identity)
        return tokenizer

    def _bound(self, corpus: TokenCorpus) -> PlannedLadder:
        return PlannedLadder(ladder=self.ladder, corpus=corpus, specs=rung_specs(self.ladder, corpus=corpus))


def load_ladder(path: Path | str) -> LoadedLadder:
    """Read a ladder file and expand it with its recipe; `LadderFileError` or `RecipeError` if it cannot be planned."""
    path = Path(path)
    file = read_ladder_file(path)
    with _naming(path):
        return LoadedLadder(path=path, ladder=plan_ladder(file))


def _log_row(name: str) -> None:
    print(f"reading and tokenizing {name} (once) ...", file=sys.stderr)


@contextlib.contextmanager
def _naming(ladder_path: Path) -> Iterator[None]:
    """Add the ladder file's path to errors about its rungs."""
    try:
        yield
    except (RecipeError, DataError) as error:
        raise error.at(str(ladder_path)) from error


def file_of(ladder: str) -> LadderFile | None:
    """Return the ladder file of this name, or None if it is not in this repository."""
    path = Path("ladders") / f"{ladder}.yaml"
    return read_ladder_file(path) if path.exists() else None


def hardware_of(ladder: str) -> Hardware:
    """Return the hardware section of the ladder file of this name; the defaults if there is no such file."""
    file = file_of(ladder)
    return file.hardware if file is not None else Hardware()


def corpus_of(target: RunSpec) -> TokenCorpus:
    """Return a target's data: the standard library, the tokens kept from its ladder, or those that its ladder file names."""
    from marin_scaling.data.corpus import data_folder, find_corpus
    from marin_scaling.data.documents import standard_library_corpus
    from marin_scaling.data.prepare import prepare

    if target.data.source == STANDARD_LIBRARY:
        return standard_library_corpus()
    work_root = own_work_root()
    kept = find_corpus(data_folder(target.data.digest, work_root=work_root))
    if kept is not None:
        return replace(kept, source=target.data.source)
    return prepare(read_ladder_file(Path("ladders") / f"{target.ladder}.yaml").data, work_root=work_root)


def chosen(specs: Sequence[RunSpec], only: Sequence[str]) -> list[RunSpec]:
    """Return the runs of the budgets in `only` (BUDGET or BUDGET/WIDTH), all if it is empty; `UsageError` for unknown ones."""
    return _chosen(specs, only, place=lambda spec: (spec.budget_flops, spec.model.hidden_dim))


def as_list(only: Sequence[str]) -> Sequence[str]:
    """Return the budgets in `only`; `UsageError` for a text, whose letters Python would take for budgets."""
    if isinstance(only, str):
        raise UsageError(f"only is the text {only!r}; it must be a list of budgets.", fix=f"Write only=[{only!r}].")
    return only


def _chosen(runs: Sequence[T], only: Sequence[str], *, place: Callable[[T], tuple[float, int]]) -> list[T]:
    """Return the runs whose `place`, budget and width, is in `only`."""
    wanted: list[T] = []
    for text in as_list(only):
        budget, _, width = text.partition("/")
        flops = parse_flops(budget)
        of_it = [run for run in runs if place(run)[0] == flops and width in ("", str(place(run)[1]))]
        if not of_it:
            there = sorted({place(run)[0] for run in runs})
            raise UsageError(
                f"--only {text}: the ladder has no such run.",
                fix=f"Name one of its budgets, or BUDGET/WIDTH: {', '.join(map(format_flops, there))}.",
            )
        wanted += of_it
    return [run for run in runs if run in wanted] if only else list(runs)
