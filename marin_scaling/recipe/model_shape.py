"""Shapes of models, dense and of experts, their parameters and FLOPs; formulas and constants of recipes with sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass
from typing import Any, NamedTuple, Protocol

from marin_scaling.errors import RecipeError


class Formula(NamedTuple):
    """An expression with its source."""

    text: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Constant:
    """A fixed number of a recipe with its source."""

    name: str
    value: float
    source: str


def constant(
    value: Any, source: str, *, zero: bool = False, most: float | None = None, below: float | None = None, signed: bool = False
) -> Any:
    """Return a dataclass field of a recipe with its value and source.

    A recipe file may set it to any positive number up to `most` or below `below`; to zero if `zero` is set; and to any number
    from -`most` to `most` if `signed` is set.

    >>> @dataclass(frozen=True)
    ... class Small:
    ...     vocab_size: int = constant(256, "bytes")
    >>> constants_of(Small())
    (Constant(name='vocab_size', value=256, source='bytes'),)
    """
    return field(default=value, metadata={"source": source, "zero": zero, "most": most, "below": below, "signed": signed})


def constants_of(recipe: Any) -> tuple[Constant, ...]:
    """Return the constants of a recipe, marked as overridden where they differ from its own; none if not a dataclass."""
    if not is_dataclass(recipe):
        return ()
    return tuple(
        Constant(name=each.name, value=getattr(recipe, each.name), source=_source(each, getattr(recipe, each.name)))
        for each in fields(recipe)
        if "source" in each.metadata
    )


def _source(each: Field[Any], value: Any) -> str:
    return str(each.metadata["source"]) if value == each.default else f"overridden; {each.default} in the recipe itself"


_LEVANTER = "levanter/utils/flop_utils.py: full attention, {} the output head; three forwards a step"
_ATTENTION = "4 * hidden_dim * head_dim * (num_heads + num_kv_heads) + seq_len * (4 * hidden_dim + 3 * num_heads)"
_LM_HEAD = "6 * hidden_dim * vocab_size * trained_tokens"
_STEPS = {
    "planned_tokens": Formula("budget_flops / flops_per_token", "what the budget pays for"),
    "train_steps": Formula("round(planned_tokens / (batch_size * seq_len))", "whole steps nearest to the budget"),
    "trained_tokens": Formula("batch_size * seq_len * train_steps", "whole steps nearest to the budget"),
}

DENSE_COUNTING = {
    "head_dim": Formula("hidden_dim // num_heads", "equal heads"),
    "params_total": Formula(
        "num_layers * (2 * hidden_dim * head_dim * (num_heads + num_kv_heads) + 3 * hidden_dim * intermediate_dim"
        " + 2 * hidden_dim + 2 * head_dim) + hidden_dim + 2 * vocab_size * hidden_dim",
        "Qwen3 in Levanter, counted exactly",
    ),
    "flops_per_token": Formula(
        f"3 * (num_layers * (6 * hidden_dim * intermediate_dim + {_ATTENTION}) + 2 * hidden_dim * vocab_size)",
        _LEVANTER.format("with"),
    ),
    **_STEPS,
    "flops": Formula("flops_per_token * trained_tokens", _LEVANTER.format("with")),
    "flops_without_lm_head": Formula(f"flops - {_LM_HEAD}", "Marin's count of mixtures of experts, for comparison"),
}

_GATED_NORM = "hidden_dim * (1 + 2 * norm_gate_rank)"
_EXPERTS = (
    "num_layers * (hidden_dim * (2 * head_dim * (num_heads + num_kv_heads) + num_heads)"
    " + 3 * hidden_dim * ({} * intermediate_dim + shared_intermediate_dim) + (hidden_dim + 1) * num_experts"
    f" + 2 * {_GATED_NORM}) + 2 * {_GATED_NORM} + 2 * vocab_size * hidden_dim"
)

MOE_COUNTING = {
    "head_dim": DENSE_COUNTING["head_dim"],
    "params_total": Formula(_EXPERTS.format("num_experts"), "marin_scaling.train.moe, counted exactly"),
    "params_active": Formula(_EXPERTS.format("experts_per_token"), "of the experts only the chosen ones"),
    "flops_per_token": Formula(
        "3 * num_layers * (6 * hidden_dim * (experts_per_token * intermediate_dim + shared_intermediate_dim)"
        f" + 2 * hidden_dim * num_experts + {_ATTENTION})",
        _LEVANTER.format("without"),
    ),
    **_STEPS,
    "flops": Formula("flops_per_token * trained_tokens", _LEVANTER.format("without")),
    "flops_with_lm_head": Formula(f"flops + {_LM_HEAD}", "the count of dense models, for comparison"),
}


_HORIZON = "openathena.ai/blog/delphi: without it the 1e22 run missed by 2.5 %"
MARIN = "Marin, experiments/scaling_law_sweeps/completed_adamh.py"


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """Arguments of the optimizer for one run."""

    learning_rate: float
    adam_learning_rate: float
    beta1: float
    beta2: float
    epsilon: float


def rate_doubts(rates: Hyperparameters, *, cap: float) -> tuple[str, ...]:
    """Warn of learning rates at their cap.

    >>> rates = Hyperparameters(learning_rate=0.01, adam_learning_rate=0.002, beta1=0.9, beta2=0.99, epsilon=1e-8)
    >>> rate_doubts(rates, cap=0.01), rate_doubts(rates, cap=0.1)
    (('learning_rate at the cap of 0.01',), ())
    """
    capped = [name for name in ("learning_rate", "adam_learning_rate") if getattr(rates, name) >= cap]
    return (f"{' and '.join(capped)} at the cap of {cap:g}",) if capped else ()


@dataclass(frozen=True, kw_only=True)
class RateLaw:
    """Law of a learning rate: `rate` at a width, number of tokens and batch size (sequences), and the exponents of each.

    `batch_exponent` is None if the batch size did not vary, and `batch_size` too if it is unknown. `is_of_adam` is True for
    the rate of embeddings and norms instead of matrices.
    """

    rate: float
    width: float
    tokens: float
    batch_size: float | None
    width_exponent: float
    token_exponent: float
    batch_exponent: float | None
    is_of_adam: bool = False

    def at(self, *, width: float, tokens: float, batch_size: float, batch_exponent: float) -> float:
        """Return the rate elsewhere; `batch_exponent` is that of a law without one."""
        exponent = batch_exponent if self.batch_exponent is None else self.batch_exponent
        batch = (batch_size / self.batch_size) ** exponent if self.batch_size else 1.0
        return float(
            self.rate * (width / self.width) ** self.width_exponent * (tokens / self.tokens) ** self.token_exponent * batch
        )


@dataclass(frozen=True, kw_only=True)
class TransferRules:
    """Constants of the rules: batch and tokens at which they were tuned, the values there, and the caps."""

    tuned_batch_size: int = constant(64, f"{MARIN}: tuned at 130M parameters")
    tuned_tokens: float = constant(2.5e9, f"{MARIN}: tuned at 130M parameters")
    tuned_learning_rate: float = constant(0.0063, MARIN)
    tuned_adam_learning_rate: float = constant(0.000656, MARIN)
    tuned_epsilon: float = constant(1.85e-8, MARIN)
    tuned_beta2: float = constant(0.9999, MARIN, below=1)
    token_horizon_exponent: float = constant(0.3, _HORIZON, signed=True, most=2)
    rate_batch_exponent: float = constant(0.5, MARIN, signed=True, most=2)
    rate_width_exponent: float = constant(0.0, f"{MARIN}: one rate for all widths", signed=True, most=2)
    max_learning_rate: float = constant(0.01, MARIN)
    beta1: float = constant(0.9, MARIN, below=1)
    min_beta2: float = constant(0.9, MARIN, below=1)
    max_beta2: float = constant(0.9999, MARIN, below=1)

    def transfer(self, *, batch_size: int, tokens: float, width_ratio: float = 1.0) -> Hyperparameters:
        """Return the hyperparameters for `batch_size` sequences, `tokens` training tokens, and a width over the narrowest one.

        >>> round(TransferRules().transfer(batch_size=8, tokens=1_223_393_280).learning_rate, 7)  # Delphi's of 3e18 FLOPs
        0.00276
        """
        scale = ((batch_size / self.tuned_batch_size) / (tokens / self.tuned_tokens)) ** 0.5
        rate = self.uncapped_learning_rate(batch_size=batch_size, tokens=tokens, width_ratio=width_ratio)
        return Hyperparameters(
            learning_rate=min(rate, self.max_learning_rate),
            adam_learning_rate=min(self.tuned_adam_learning_rate * scale, self.max_learning_rate),
            beta1=self.beta1,
            beta2=min(max(self.tuned_beta2 ** (batch_size / self.tuned_batch_size), self.min_beta2), self.max_beta2),
            epsilon=self.tuned_epsilon / scale,
        )

    def uncapped_learning_rate(self, *, batch_size: int, tokens: float, width_ratio: float = 1.0) -> float:
        """Return the matrix learning rate before the cap."""
        horizon = (tokens / self.tuned_tokens) ** -self.token_horizon_exponent
        batch = (batch_size / self.tuned_batch_size) ** self.rate_batch_exponent
        return float(self.tuned_learning_rate * batch * horizon * width_ratio**-self.rate_width_exponent)


def transfer_formulas(tokens: str) -> dict[str, Formula]:
    """Return the rules as text; `tokens` is the recipe's name of the token count."""
    batch, horizon = "batch_size / tuned_batch_size", f"tuned_tokens / {tokens}"
    capped = "min(max_learning_rate, {})"
    rate = f"tuned_learning_rate * ({batch}) ** rate_batch_exponent * ({horizon}) ** token_horizon_exponent"
    rate += " * (hidden_dim / narrowest) ** -rate_width_exponent"
    return {
        "learning_rate": Formula(capped.format(rate), MARIN),
        "adam_learning_rate": Formula(capped.format(f"tuned_adam_learning_rate * ({batch} * {horizon}) ** 0.5"), MARIN),
        "beta2": Formula(f"min(max(tuned_beta2 ** ({batch}), min_beta2), max_beta2)", f"{MARIN}: constant half-life in tokens"),
        "epsilon": Formula(f"tuned_epsilon / ({batch} * {horizon}) ** 0.5", MARIN),
    }


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """Sizes of a dense Qwen3-style transformer, from which all counts are derived.

    >>> delphi_1e23 = ModelShape(hidden_dim=5376, intermediate_dim=4 * 5376, num_layers=51, num_heads=42, num_kv_heads=42,
    ...                          vocab_size=128_256, seq_len=4096)
    >>> delphi_1e23.params_total
    24963098112
    """

    hidden_dim: int
    intermediate_dim: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    vocab_size: int
    seq_len: int

    def __post_init__(self) -> None:
        for name, size in vars(self).items():
            if size < 1:
                raise RecipeError(
                    f"{name} is {size} at width {self.hidden_dim}; it must be at least 1.",
                    fix="Choose a larger width, or other constants in the recipe file.",
                )
        if self.hidden_dim % self.num_heads or self.num_heads % self.num_kv_heads:
            raise RecipeError(
                f"hidden_dim {self.hidden_dim}, {self.num_heads} heads and {self.num_kv_heads} key-value heads do not divide.",
                why="Heads must divide hidden_dim, and key-value heads must divide heads.",
                fix="Choose a hidden_dim that the recipe lists.",
            )

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.hidden_dim // self.num_heads

    @property
    def params_per_layer(self) -> int:
        """Parameters of one layer: attention, gated MLP, two norms, and query and key norms."""
        attention = 2 * self.hidden_dim * self.head_dim * (self.num_heads + self.num_kv_heads)
        mlp = 3 * self.hidden_dim * self.intermediate_dim
        norms = 2 * self.hidden_dim + 2 * self.head_dim
        return attention + mlp + norms

    @property
    def params_non_embedding(self) -> int:
        """All parameters except the input embedding and the output head."""
        return self.num_layers * self.params_per_layer + self.hidden_dim

    @property
    def params_total(self) -> int:
        """All parameters, with the input embedding and the untied output head."""
        return self.params_non_embedding + 2 * self.vocab_size * self.hidden_dim

    @property
    def params_active(self) -> int:
        """Parameters used for each token; all of them in a dense model."""
        return self.params_total

    @property
    def mlp_dim_per_token(self) -> int:
        """Width of the gated MLP."""
        return self.intermediate_dim

    @property
    def mlp_widths(self) -> tuple[int, ...]:
        """Widths of the MLPs of a layer, each once."""
        return (self.intermediate_dim,)

    @property
    def router_outputs(self) -> int:
        """Number of experts that a router chooses from; 0 for a dense model."""
        return 0


@dataclass(frozen=True, kw_only=True)
class MoeShape(ModelShape):
    """Sizes of a grug MoE; `intermediate_dim` is that of one expert.

    >>> marin_1e23 = MoeShape(hidden_dim=5120, intermediate_dim=2560, num_layers=48, num_heads=40, num_kv_heads=10,
    ...                       vocab_size=128_256, seq_len=4096, num_experts=64, experts_per_token=4,
    ...                       shared_intermediate_dim=5120, norm_gate_rank=128)
    >>> f"{marin_1e23.params_total / 1e9:.1f}B, {marin_1e23.params_active / 1e9:.1f}B active"
    '129.2B, 15.9B active'
    """

    num_experts: int
    experts_per_token: int
    shared_intermediate_dim: int
    norm_gate_rank: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.experts_per_token >= self.num_experts:
            raise RecipeError(
                f"{self.experts_per_token} of {self.num_experts} experts are chosen for each token; at least one must remain.",
                why="The router balances by the first expert that is not chosen.",
                fix="Raise num_experts or lower experts_per_token.",
            )

    @property
    def params_per_layer(self) -> int:
        """Parameters of one layer: attention with its gates, all experts, the shared one, router and its bias, gated norms."""
        return self._layer(experts=self.num_experts)

    @property
    def params_non_embedding(self) -> int:
        """All parameters except the input embedding and the output head; includes the gated norms next to these."""
        return self._outside_embedding(experts=self.num_experts)

    @property
    def params_active(self) -> int:
        """Parameters used for each token, with only the chosen experts."""
        return self._outside_embedding(experts=self.experts_per_token) + 2 * self.vocab_size * self.hidden_dim

    @property
    def mlp_dim_per_token(self) -> int:
        """Width of the chosen experts and the shared one together."""
        return self.experts_per_token * self.intermediate_dim + self.shared_intermediate_dim

    @property
    def mlp_widths(self) -> tuple[int, ...]:
        """Widths of an expert and of the shared one, each once."""
        return tuple(dict.fromkeys((self.intermediate_dim, self.shared_intermediate_dim)))

    @property
    def router_outputs(self) -> int:
        """Number of experts."""
        return self.num_experts

    @property
    def _gated_norm(self) -> int:
        return self.hidden_dim + 2 * self.hidden_dim * self.norm_gate_rank

    def _outside_embedding(self, *, experts: int) -> int:
        return self.num_layers * self._layer(experts=experts) + 2 * self._gated_norm

    def _layer(self, *, experts: int) -> int:
        projections = 2 * self.head_dim * (self.num_heads + self.num_kv_heads)
        attention = self.hidden_dim * (projections + self.num_heads)
        mlps = 3 * self.hidden_dim * (experts * self.intermediate_dim + self.shared_intermediate_dim)
        router = (self.hidden_dim + 1) * self.num_experts
        return attention + mlps + router + 2 * self._gated_norm


@dataclass(frozen=True, kw_only=True)
class OwnShape:
    """Counts of a model whose class counts its own FLOPs, because formulas from sizes are not known for it.

    `flops_per_token` is of training: forward and backward, with the output head.
    """

    hidden_dim: int
    vocab_size: int
    seq_len: int
    params_total: int
    params_non_embedding: int
    flops_per_token: float

    @property
    def params_active(self) -> int:
        """All parameters, since the class does not say which ones a token uses."""
        return self.params_total


FAMILIES: dict[str, type[ModelShape]] = {"qwen3": ModelShape, "grug-moe": MoeShape}


def shape_of(model: Mapping[str, Any]) -> ModelShape:
    """Return the shape in the `model` section of a spec.

    >>> sizes = dict(hidden_dim=16, intermediate_dim=64, num_layers=2, num_heads=2, num_kv_heads=2, vocab_size=256, seq_len=128)
    >>> shape_of({"family": "qwen3", **sizes}).params_total
    16496
    """
    return FAMILIES[model["family"]](**{key: value for key, value in model.items() if key != "family"})


WITH_LM_HEAD = "levanter-full-attention-with-lm-head"
WITHOUT_LM_HEAD = "levanter-full-attention-without-lm-head"
OWN_COUNT, XLA_COUNT = "levanter-count-of-the-model-class", "xla-count-of-the-gradients"


class CountedShape(Protocol):
    """Sizes that determine FLOPs, of a recipe's model or a submission's."""

    @property
    def hidden_dim(self) -> int:
        """Width."""

    @property
    def num_layers(self) -> int:
        """Depth."""

    @property
    def num_heads(self) -> int:
        """Number of query heads."""

    @property
    def num_kv_heads(self) -> int:
        """Number of key and value heads."""

    @property
    def head_dim(self) -> int:
        """Width of one head."""

    @property
    def vocab_size(self) -> int:
        """Rows of the output head."""

    @property
    def seq_len(self) -> int:
        """Tokens of a sequence."""

    @property
    def mlp_dim_per_token(self) -> int:
        """Width of the MLP, or of the experts together, that a token passes through."""

    @property
    def router_outputs(self) -> int:
        """Number of experts that a layer's router chooses from; 0 for a dense model."""


def flops_convention(shape: CountedShape | OwnShape) -> str:
    """Return the name of the FLOP convention for a model of this kind."""
    if isinstance(shape, OwnShape):
        return OWN_COUNT
    return WITHOUT_LM_HEAD if shape.router_outputs else WITH_LM_HEAD


def forward_flops_per_token(shape: CountedShape, *, convention: str | None = None) -> int:
    """Return forward FLOPs for one token of a full sequence, by the model's own convention or the given one.

    >>> delphi_smallest = ModelShape(hidden_dim=512, intermediate_dim=2048, num_layers=6, num_heads=4, num_kv_heads=4,
    ...                              vocab_size=128_256, seq_len=4096)
    >>> forward_flops_per_token(delphi_smallest)
    232292352
    >>> forward_flops_per_token(delphi_smallest, convention=WITHOUT_LM_HEAD)
    100958208
    """
    mlp = 6 * shape.hidden_dim * shape.mlp_dim_per_token
    router = 2 * shape.hidden_dim * shape.router_outputs
    projections = 4 * shape.hidden_dim * shape.head_dim * (shape.num_heads + shape.num_kv_heads)
    attention = shape.seq_len * (4 * shape.hidden_dim + 3 * shape.num_heads)  # logits and values, mask
    counts_head = (convention or flops_convention(shape)) == WITH_LM_HEAD
    lm_head = 2 * shape.hidden_dim * shape.vocab_size if counts_head else 0
    return shape.num_layers * (mlp + router + projections + attention) + lm_head


def training_flops(shape: CountedShape | OwnShape, *, tokens: int, convention: str | None = None) -> float:
    """Return FLOPs of training on `tokens` tokens: three forward passes per token, or the model class's own count.

    >>> delphi_smallest = ModelShape(hidden_dim=512, intermediate_dim=2048, num_layers=6, num_heads=4, num_kv_heads=4,
    ...                              vocab_size=128_256, seq_len=4096)
    >>> training_flops(delphi_smallest, tokens=4_304_928_768)
    3.000006086133547e+18
    """
    if isinstance(shape, OwnShape):
        head = 6.0 * shape.hidden_dim * shape.vocab_size if convention == WITHOUT_LM_HEAD else 0.0
        return (shape.flops_per_token - head) * tokens
    return 3.0 * forward_flops_per_token(shape, convention=convention) * tokens
