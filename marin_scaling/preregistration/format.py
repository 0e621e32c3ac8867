"""Statement format: fixed texts, quantile levels, metrics, and schemas of the statement and its subjects.

Signatures cover these values: they change only with a new predicate type. `statement` checks relations between fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, StringConstraints

from marin_scaling import units
from marin_scaling.ladder.config import MixPhase
from marin_scaling.preregistration.layout import ID, PRINCIPAL
from marin_scaling.preregistration.outside_format import OUTSIDE, CurveRow, Curves, OutsideTarget, RecordedCurves, TableSource
from marin_scaling.strict_model import (
    SHA256,
    Camel,
    Count,
    FileName,
    Moment,
    One,
    OneOf,
    Open,
    Part,
    Positive,
    Text,
    Whole,
    Zero,
    in_camel_case,
    in_words,
)

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:marin-scaling:preregistration:v1"

LEVELS = (0.01, 0.025, *(n / 20 for n in range(1, 20)), 0.975, 0.99)
"""The 23 quantile levels of the COVID-19 and FluSight forecast hubs (Bracher et al. 2021)."""

HIT_RULE = "observed in the central 90 % interval"
CRPS_RULE = "2 * sum of weight * pinball loss over the levels; a level's weight is the length of [0, 1] nearest to it"
SCORES = (
    "weighted_interval_score",
    "interval_score_90",
    "pit",
    "signed_error",
    "per_cent_of_loss",
    "per_cent_of_reducible_loss",
)
DECLARATION = "No loss of the target run has been seen."
METRICS = {
    each.name: {"unit": each.unit, "direction": each.direction, "support": list(each.support)}
    for each in units.METRICS.values()
}
"""Metrics that a forecast can promise. Bits per byte lie between 0 and 8, the cost of a uniform code over 256 bytes."""

LINEAGE_RULE = (
    "The run whose spec is target.json with this statement's SHA-256 and the data order that follows from it, from step 0; "
    "it may be resumed as often as need be with the same spec."
)
CHECKPOINT_RULE = "the weights after the last step, not averaged"
OUTSIDE_LINEAGE_RULE = (
    "The run that target.json names under outcome, trained by its own trainer from step 0; it may be resumed under that name, "
    "or under another one that a signed notice declares before the run ends."
)
OUTSIDE_CHECKPOINT_RULE = "the last value of the key that target.json names under outcome, in the log of the finished run"
BASELINE_RULE = (
    "log loss = a + b log FLOPs by least squares through the best run of each budget, errors normal with the residual variance "
    "(n - 2 degrees of freedom) and the uncertainty of the line; of two budgets the line alone"
)
IF_OVERDUE = "It counts as missed."
ASSURANCE = {
    "bound": "bound: this tool trains the run, whose spec has the statement's digest",
    "tracked": "tracked: another trainer's run, named in advance; its outcome is read from its log",
}
"""Levels of assurance of a forecast's run."""
MOST_TOLERANCE = 0.01
"""Largest allowed relative difference of a run's FLOPs or tokens from the promise."""
SAMPLE_COUNT = 1000


_RUN = in_words(r"^[^\x00-\x1f\x7f-\x9f]*$", "one line of text")
_ID = in_words(f"^{ID.pattern}$", "a day and a name, like 2026-11-20-tiny")
RegistrationId = Annotated[str, StringConstraints(pattern=_ID)]
Principal = Annotated[str, StringConstraints(pattern=f"^{PRINCIPAL}$")]


def _random(digits: str) -> str:
    """Refuse an identifier with fewer than five different digits: of 10^16 random ones about one has so few."""
    if len(set(digits)) < 5:
        raise ValueError(f"it is not random: it has {len(set(digits))} different digits")
    return digits


def as_in_statement(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of `forecast.json` with the statement's key names.

    >>> as_in_statement({"inside_90": 0.75, "median_absolute_error": 0.01})
    {'inside90': 0.75, 'medianAbsoluteError': 0.01}
    """
    return {in_camel_case(name): value for name, value in row.items()}


class Tool(Part):
    """The tool that made the statement."""

    name: Literal["marin-scaling"]
    version: Text
    """version of the tool that fitted"""
    versions: dict[str, Text]
    """Python and the libraries on which the fit depends"""


class Tolerance(Part):
    """Allowed differences of the run from its plan."""

    flops: Annotated[float, Field(ge=0, le=MOST_TOLERANCE)]
    """largest relative difference of the run's FLOPs; 0 allows none"""
    tokens: Annotated[float, Field(ge=0, le=MOST_TOLERANCE)]
    """largest relative difference of its tokens"""


class TargetRun(Camel):
    """Target run of the forecast."""

    uid: Annotated[str, StringConstraints(pattern=in_words("^[0-9a-f]{32}$", "32 hexadecimal digits")), AfterValidator(_random)]
    """128 random bits, the name of the promise before it is signed"""
    assurance: Literal["bound", "tracked"] = "bound"
    """`bound`: this tool trains the run, whose spec has the statement's digest; `tracked`: an outside run, named in advance"""
    lineage_rule: Annotated[str, OneOf((LINEAGE_RULE, OUTSIDE_LINEAGE_RULE))]
    """the run in question, with its restarts"""
    ladder: FileName
    """folder in `runs/` in which the run will be stored"""
    recipe: Text
    """recipe that turns a budget and a width into a run"""
    budget_flops: Positive
    """training FLOPs for which the run was planned"""
    flops: Positive
    """training FLOPs of exactly this shape and these tokens"""
    flops_convention: Text
    """convention for counting FLOPs"""
    params_total: Count
    """all parameters"""
    params_active: Count
    """parameters used for each token"""
    tokens: Count
    """trained tokens"""
    shape: dict[str, Any]
    """sizes of the model; empty for an outside run"""
    tolerance: Tolerance


class RecipeOfTarget(Camel):
    """Constants of the target's training, and how it differs from the ladder."""

    data: dict[str, Any]
    """source and digest of the training data"""
    optimizer: dict[str, Any]
    """every constant of the optimizer"""
    batch_size: Count = 1
    """sequences per step; missing for an outside run"""
    train_steps: Count = 1
    """training steps; missing for an outside run"""
    described: dict[str, Text] = Field(default_factory=dict)
    """trainer, schedule and planned start of an outside run, as its registrant describes them"""
    epochs: Count = 1
    """passes over the training tokens, the last perhaps partial; 1 if missing"""
    mix: list[MixPhase] = Field(default_factory=list)
    """weights of the corpora that the target is trained on; missing for a single text"""
    horizon_tokens: Count | None = None
    """tokens of the run whose repeats of each corpus the runs simulate; missing if none are simulated"""
    compute: dict[str, Any] = Field(default_factory=dict)
    """precision and kernels; the defaults of the ladder file if missing"""
    beyond_ladder: dict[str, Positive]
    """`flops`, `params` and `tokens` of the target divided by the largest among the runs of the ladder"""
    known_differences_from_ladder: list[Text]
    """other differences between the runs of the ladder and the target"""


class MetricOfTarget(Camel):
    """Forecast metric, with its measurement."""

    name: Annotated[str, OneOf(tuple(METRICS))]
    unit: Text
    direction: Literal["min"]
    support: list[float]
    """the values between which the metric lies"""
    protocol: dict[str, Any]
    """measurement, as in `evaluation.json`"""
    checkpoint_rule: Annotated[str, OneOf((CHECKPOINT_RULE, OUTSIDE_CHECKPOINT_RULE))]
    """evaluated weights"""


class SensitivityRow(Part):
    """The forecast under one other choice."""

    choice: Text
    median: float | None
    why_none: Text


class SensitivityInStatement(SensitivityRow, Camel):
    """A row of sensitivity with the keys of a statement."""


class BacktestRow(Part):
    """Errors of forecasts of held-out budgets over one range of distances."""

    nearest: Positive
    farthest: Positive | None
    count: Count
    median_absolute_error: float
    bias: float
    inside_50: float
    inside_90: float
    crps: float


class BacktestInStatement(BacktestRow, Camel):
    """A row of the back-test with the keys of a statement."""


class Forecast(Camel):
    """The forecast of the target's metric."""

    point: float
    """the median"""
    point_is: Literal["median"]
    quantiles: dict[str, float]
    """23 quantiles by level"""
    bands: dict[str, float | None]
    """half-widths of 90 % intervals by cause"""
    extrapolation: Annotated[float, Field(gt=1)]
    """FLOPs of the target divided by those of the largest fitted run"""
    samples: Literal["samples.json"]
    """file with equally likely losses"""
    sensitivity: list[SensitivityInStatement]
    """the median under other reasonable choices"""


class Excluded(Part):
    """A run that was not fitted."""

    run: Text
    why: Text


class Fit(Camel):
    """The fit behind the forecast."""

    law: Text
    """name and formula of the law"""
    parameters: dict[str, float]
    """fitted parameters of the law"""
    fixed: dict[str, Any]
    """parameters that were set by hand"""
    seed: Whole | None
    """seed of the draws"""
    ladder_rule: Text
    """rule that selects the fitted runs"""
    excluded: list[Excluded]
    """runs that were not fitted, with reasons"""
    backtest: list[BacktestInStatement]
    """each budget of the ladder forecast from the smaller ones, by distance; shares of the loss"""
    warnings: list[Text]
    """warnings of the fit"""


class Assumption(Camel):
    """One assumption of the forecast."""

    id: Annotated[str, StringConstraints(pattern=in_words("^A[0-9]{1,3}$", "A and a number, like A1"))]
    text: Text
    if_false: Text


class Baseline(Part):
    """The simple forecast against which skill is measured."""

    rule: Annotated[str, OneOf((BASELINE_RULE,))]
    """rule of the simple forecast against which skill is measured"""
    point: float
    quantiles: dict[str, float]


class Scoring(Camel):
    """Scoring rules."""

    primary: Literal["crps"]
    crps_rule: Annotated[str, OneOf((CRPS_RULE,))]
    secondary: list[Annotated[str, OneOf(SCORES)]]
    hit: Annotated[str, OneOf((HIT_RULE,))]
    reducible_e: float | None = Field(alias="reducibleE")
    """fitted asymptote, for the error as a share of the reducible loss"""
    baseline: Baseline


class Knowledge(Camel):
    """Knowledge of the registrant at registration."""

    target_run_steps_seen: Zero
    related_runs_seen: list[Text]
    """runs near the target in size or kind whose losses the registrant knew"""
    declaration: Annotated[str, OneOf((DECLARATION,))]


class Resolution(Camel):
    """Date and person of the resolution."""

    resolver: Principal
    """the person who decides unclear outcomes"""
    due: Moment
    """deadline of the run"""
    if_overdue: Annotated[str, OneOf((IF_OVERDUE,))]
    void_if: list[Text]
    """conditions that make the forecast void, so that it counts neither as held nor as missed"""


class Predicate(Camel):
    """Content of the promise."""

    id: RegistrationId
    """name of the folder: the day (UTC) and a word"""
    kind: Literal["register"]
    """kind: a forecast of a run that has not begun"""
    registrant: Principal
    """the person who signs, as in `allowed_signers`"""
    reviewers: list[Principal]
    """people who are asked to sign, too"""
    created_at: Moment
    """time of creation, by the registrant's clock (UTC)"""
    tool: Tool
    target_run: TargetRun
    recipe: RecipeOfTarget
    metric: MetricOfTarget
    forecast: Forecast
    fit: Fit
    assumptions: list[Assumption]
    """assumptions of the forecast, and what follows if they are false"""
    scoring: Scoring
    knowledge: Knowledge
    resolution: Resolution


class ForecastFile(Open):
    """The content of `forecast.json`."""

    class Prediction(Open):
        """The forecast of one target."""

        flops: Positive
        median: float
        quantiles: dict[str, float]
        bands: dict[str, float | None]
        by_law: dict[str, float] = Field(default_factory=dict)
        curve: list[CurveRow] = Field(default_factory=list)
        sensitivity: list[SensitivityRow]

    law: Text
    parameters: dict[str, float]
    seed: Whole | None
    metric: Text
    excluded: list[Excluded]
    status: Text = ""
    warnings: list[Text]
    backtest: list[BacktestRow]
    predictions: list[Prediction]


class LadderRow(Part):
    """One fitted run."""

    run: Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=_RUN)]
    budget_flops: Positive
    flops: Positive
    params: Positive
    active_params: Positive = 1.0
    tokens: Positive
    epochs: Positive = 1.0
    loss: Positive


class Ladder(Part):
    """The content of `ladder.json`: the exact runs that were fitted, and for an outside run the table they come from."""

    format_version: One
    ladder: FileName
    metric: Text
    rows: list[LadderRow]
    source: TableSource | None = None
    curves: Curves | RecordedCurves | None = None


class MetricOfEvaluation(Open):
    """Measurement of a metric; further keys are allowed."""

    metric: Text


class EvaluationFile(Part):
    """The content of `evaluation.json`."""

    format_version: One
    evaluation: MetricOfEvaluation
    data: dict[str, Any]


class RecipeNumber(Part):
    """A number of a recipe that follows from the size."""

    name: Text
    value: Any
    formula: Text
    source: Text


class RecipeFile(Open):
    """The content of `recipe.json`."""

    recipe: Text
    numbers: list[RecipeNumber]
    constants: list[dict[str, Any]]


class Samples(Part):
    """The content of `samples.json`: equally likely losses."""

    format_version: One
    metric: Text
    flops: Positive
    losses: list[float]


class _Sizes(Part):
    hidden_dim: Count
    intermediate_dim: Count
    num_layers: Count
    num_heads: Count
    num_kv_heads: Count
    vocab_size: Count
    seq_len: Count


class DenseModel(_Sizes):
    """Sizes of a dense model, as in `ModelShape`."""

    family: Literal["qwen3"]


class MoeModel(_Sizes):
    """Sizes of a mixture of experts, as in `MoeShape`."""

    family: Literal["grug-moe"]
    num_experts: Count
    experts_per_token: Count
    shared_intermediate_dim: Count
    norm_gate_rank: Count


class Target(Part):
    """The content of `target.json`: a spec that is not yet bound to its statement."""

    format_version: One
    ladder: FileName
    role: Literal["target"]
    recipe: Text
    budget_flops: Positive
    model: Annotated[DenseModel | MoeModel, Discriminator("family")]
    optimizer: dict[str, Any]
    batch_size: Count
    train_steps: Count
    seed: Whole
    data_order_seed: Zero
    data: dict[str, Any]
    epochs: Count = 1
    mix: list[MixPhase] = Field(default_factory=list)
    horizon_tokens: Count | None = None
    compute: dict[str, Any] = Field(default_factory=dict)
    evaluation: MetricOfEvaluation
    statement_sha256: None


SUBJECTS: dict[str, type[Part]] = {
    "evaluation.json": EvaluationFile,
    "forecast.json": ForecastFile,
    "ladder.json": Ladder,
    "recipe.json": RecipeFile,
    "samples.json": Samples,
    "target.json": Target,
}


def is_outside(target: Mapping[str, Any]) -> bool:
    """Return True if the content of `target.json` is a run that another trainer trains."""
    return bool(target["role"] == OUTSIDE)


def model_of_subject(name: str, document: Any) -> type[Part]:
    """Return the model of a subject; that of `target.json` depends on who trains the run."""
    is_outside = name == "target.json" and isinstance(document, dict) and document.get("role") == OUTSIDE
    return OutsideTarget if is_outside else SUBJECTS[name]


SUBJECT_FILES = tuple(sorted(SUBJECTS))
"""Files beside the statement, by name."""


class Digest(Part):
    """Digest of a file."""

    sha256: SHA256


class Subject(Part):
    """A file beside the statement, by digest."""

    name: Annotated[str, OneOf(SUBJECT_FILES)]
    digest: Digest


class StatementFile(Part):
    """The content of `statement.json`."""

    type: Annotated[str, OneOf((STATEMENT_TYPE,))] = Field(alias="_type")
    subject: list[Subject]
    predicate_type: Annotated[str, OneOf((PREDICATE_TYPE,))] = Field(alias="predicateType")
    predicate: Predicate
