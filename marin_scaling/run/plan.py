"""Bind planned rungs to exact data and evaluation: run specs, ready to train."""

from __future__ import annotations

import contextlib
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, Self, TypeVar

from marin_scaling.canonical_json import sha256_hex
from marin_scaling.data.corpus import BYTES, HELD_OUT, TRAIN, RowFacts, TokenCorpus, TokenizerIdentity, require_windows
from marin_scaling.errors import DataError, Finding, MarinScalingError, RecipeError, UsageError, note, warning
from marin_scaling.files import read_bytes
from marin_scaling.ladder.config import (
    STANDARD_LIBRARY,
    Compute,
    Data,
    Evaluation,
    Hardware,
    LadderFile,
    MixPhase,
    read_ladder_file,
)
from marin_scaling.ladder.plan import Ladder, plan_ladder
from marin_scaling.ladder.speed import RecordedRun
from marin_scaling.printable import joined
from marin_scaling.recipe.base import RungPlan, swept_plans
from marin_scaling.recipe.find import find_recipe, usual_plan
from marin_scaling.recipe.model_shape import MoeShape
from marin_scaling.run.spec import (
    DataSpec,
    EvaluationProtocol,
    EvaluationSpec,
    ModelSpec,
    MoeModelSpec,
    NamedTokens,
    OptimizerSpec,
    RunSpec,
    TokenizerSpec,
    read_spec,
)
from marin_scaling.run.store import RUNS_DIR, RunRecord, as_moment, own_work_root, read_run, run_folders
from marin_scaling.units import counted, format_count, format_flops, format_number, parse_flops

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


_MOST_PADDING = 128  # a model may have so many more tokens in its vocabulary than the tokenizer, for efficiency on hardware


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
    plan: RungPlan,
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


def horizon_of(file: LadderFile) -> int | None:
    """Return the tokens of the run whose repeats the ladder's runs simulate: given, or the target's at its usual width."""
    horizon, target = file.data.horizon, file.target
    if horizon is None:
        return None
    if isinstance(horizon, float):
        return round(horizon)
    plan = _usual_target(file)
    if plan is None:
        raise RecipeError(
            f"data.horizon is target, and the recipe {file.recipe!r} has no usual width at {format_flops(target.budget_flops)} "
            "FLOPs.",
            fix="Give the tokens of the target: data.horizon: 1e11.",
        )
    return plan.trained_tokens


def spec_on_data(
    file: Written,
    plan: RungPlan,
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
        batch_size=plan.batch_size,
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


def model_of(plan: RungPlan) -> ModelSpec | MoeModelSpec:
    """Return the plan's model shape as in a spec."""
    kind = MoeModelSpec if isinstance(plan.shape, MoeShape) else ModelSpec
    return kind(**asdict(plan.shape))


def optimizer_of(plan: RungPlan) -> OptimizerSpec:
    """Return the plan's optimizer, learning rates and schedule as in a spec."""
    return OptimizerSpec(
        name=plan.optimizer, constant_norm=plan.constant_norm, **asdict(plan.hyperparameters), **asdict(plan.schedule)
    )


def _epochs_wanted(plan: RungPlan, corpus: TokenCorpus) -> int:
    windows = len(corpus.train) // plan.shape.seq_len
    return max(1, math.ceil(plan.batch_size * plan.train_steps / max(1, windows)))


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


def require_data(spec: RunSpec, *, corpus: TokenCorpus, epochs: int | None = None) -> None:
    """Raise `DataError` for another vocabulary than the data's, more tokens than there are, or too little held-out text.

    A part of a mix may be read `epochs` times; None for any number.
    """
    require_vocabulary(spec.recipe, spec.model.vocab_size, corpus.tokenizer)
    windows = spec.epochs * (len(corpus.train) // spec.model.seq_len)
    if spec.mix:
        _require_parts(spec, epochs=epochs)
    elif spec.batch_size * spec.train_steps > windows:
        raise DataError(
            f"The run of {format_flops(spec.budget_flops)} FLOPs at width {spec.model.hidden_dim} needs "
            f"{spec.trained_tokens} tokens; the training data have {len(corpus.train)}, seen {_times(spec.epochs)}.",
            why="Repeated text is worth less than new text, which biases a law.",
            fix="Lower the budget or raise the model size in the ladder file, add text, or allow repeats: data.epochs.",
        )
    for name, tokens in corpus.validation.items():
        least = spec.evaluation.windows if name == HELD_OUT else 1
        require_windows(len(tokens), seq_len=spec.evaluation.seq_len, windows=least)


def _require_parts(spec: RunSpec, *, epochs: int | None) -> None:
    """Raise `DataError` with all parts of the mix that the run would read more often than `epochs` times."""
    length = spec.model.seq_len
    short = [
        f"{each.share:.3g} of {spec.trained_tokens} tokens are of {each.name}: {each.passes:.3g} passes over "
        f"{each.read * length} of its {spec.data.parts[each.name].tokens} tokens"
        for each in spec.exposures
        if each.share and (not each.available or (epochs is not None and each.passes > epochs))
    ]
    if short:
        run = f"The run of {format_flops(spec.budget_flops)} FLOPs at width {spec.model.hidden_dim}"
        raise DataError(
            (f"{run} has too little text:", *short),
            why=f"It is allowed {_times(epochs or 1)}.",
            fix="Lower the weight of the part, add text to it, or allow repeats: data.epochs, and data.horizon for a forecast.",
        )


def data_findings(specs: Sequence[RunSpec]) -> list[Finding]:
    """Warn of repeated text: the number of runs that repeat it, and how often."""
    repeated = [spec.times_seen for spec in specs if spec.times_seen > 1]
    if not repeated:
        return []
    times = f"{max(repeated):.3g} times{' on average' if specs[0].mix else ''}"
    return [warning("repeated-text", "data", f"{len(repeated)} of {len(specs)} runs see text more than once, up to {times}")]


def mix_findings(file: LadderFile, specs: Sequence[RunSpec]) -> list[Finding]:
    """Say for each part of a mix how much of it there is, and how often the longest run and the target see it."""
    if not specs or not specs[0].mix:
        return []
    longest, of_target = max(specs, key=lambda spec: spec.trained_tokens), _usual_target(file)
    found, length = [], longest.model.seq_len
    for each in longest.exposures:
        told = f"{each.share:.3g} of the tokens, of {format_count(each.available * length)}; the longest run sees "
        told += f"{format_count(each.read * length)} of them {each.passes:.3g} times"
        if of_target is not None:
            passes = each.share * of_target.trained_tokens / max(1, each.available * length)
            told += f", a target of {format_count(of_target.trained_tokens)} tokens {passes:.3g} times"
        found.append(note("mix", f"data.{each.name}", told))
    return [*found, *_beyond_horizon(specs), *_not_simulated(specs, of_target)]


def _not_simulated(specs: Sequence[RunSpec], target: RungPlan | None) -> Iterator[Finding]:
    """Warn of repeats that the rungs do not simulate, since no forecast of their target can be signed."""
    length = specs[0].model.seq_len
    tokens = target.trained_tokens if target else 0
    repeated = [
        each.name for each in specs[0].exposures if each.share * tokens > max(1, each.available) * length and each.share > 0
    ]
    if specs[0].horizon_tokens is None and (repeated or any(spec.is_repeating for spec in specs)):
        told = f"the target repeats {joined(repeated)}" if repeated else "some rungs repeat a part"
        yield warning("not-simulated", "data", f"{told}; its forecast can be signed only with data.horizon: target")


def _beyond_horizon(specs: Sequence[RunSpec]) -> Iterator[Finding]:
    """Warn of runs that are longer than the run whose repeats they simulate, and so repeat a part more often."""
    longer = [spec for spec in specs if spec.horizon_tokens and spec.trained_tokens > spec.horizon_tokens]
    repeated = [max(each.passes for each in spec.exposures) for spec in longer]
    if max(repeated, default=0) > 1:
        horizon = format_count(longer[0].horizon_tokens or 0)
        told = f"{len(longer)} of {len(specs)} runs have more tokens than the horizon, {horizon},"
        yield warning("beyond-horizon", "data.horizon", f"{told} and see a part up to {max(repeated):.3g} times")


def target_findings(file: LadderFile, *, corpus: TokenCorpus) -> list[Finding]:
    """Warn if the target needs more text than there is, at the recipe's usual width; the fit may choose another width."""
    plan = _usual_target(file)
    if plan is None:
        return []
    found = []
    for name, share in _shares(file.data.mixes).items():
        available = corpus.parts[name].tokens if name in corpus.parts else len(corpus.train)
        wanted = share * plan.trained_tokens
        if wanted > file.data.epochs * available:
            message = (
                f"needs {format_count(wanted)} tokens{f' of {name}' if name else ''} at width {plan.shape.hidden_dim}; "
                f"the text has {format_count(available)}, seen {_times(file.data.epochs)}. Add text or raise data.epochs "
                "before training, since rungs trained on other text do not count"
            )
            found.append(warning("too-little-text", "target", message))
    return found


def _usual_target(file: LadderFile) -> RungPlan | None:
    """Return the target at the recipe's usual width, None if there is none; the fit may choose another one."""
    target = file.target
    try:
        return usual_plan(find_recipe(file.recipe), budget_flops=target.budget_flops, batch_size=target.batch_size)
    except RecipeError:
        return None


def _shares(phases: Sequence[MixPhase]) -> dict[str, float]:
    """Return the share of each part in the tokens of a run; all of the text, "", without a mix."""
    begins = [0.0, *(phase.until for phase in phases)]
    found = Counter[str]()
    for begin, phase in zip(begins, phases, strict=False):
        found.update({name: (phase.until - begin) * weight for name, weight in phase.mix.items()})
    return dict(found) or {"": 1.0}


def require_vocabulary(recipe: str, vocab_size: int, tokenizer: TokenizerIdentity) -> None:
    """Raise `DataError` if a recipe's models have another vocabulary than the data."""
    if tokenizer.size <= vocab_size < tokenizer.size + _MOST_PADDING:
        return
    raise DataError(
        f"The recipe {recipe!r} has a vocabulary of {vocab_size}; the data have {tokenizer.size} tokens "
        f"(tokenizer: {tokenizer.name}).",
        fix=f"Set vocab_size to {tokenizer.size} in a recipe file, or name the recipe's own tokenizer in data.tokenizer.",
    )


def _times(epochs: int) -> str:
    return "once" if epochs == 1 else f"{epochs} times"


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
