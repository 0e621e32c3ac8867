"""Mixture-of-experts model, router and expert dispatch, on Levanter."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import haliax as hax
import haliax.nn as hnn
import jax
import jax.numpy as jnp
from haliax import Axis, NamedArray
from haliax.jax_utils import shaped_rng_split
from haliax.nn.ragged_dot import ragged_dot
from haliax.nn.scan import BlockSeq, Stacked
from haliax.partitioning import physical_axis_name
from haliax.state_dict import ModuleWithStateDictSerialization
from jax import Array
from jax.sharding import PartitionSpec
from levanter.layers.attention import Attention, AttentionConfig, AttentionMask
from levanter.models.llama import LlamaConfig, LlamaEmbedding, LlamaLMHeadModel, LlamaMlp, LlamaTransformer
from levanter.utils.activation import ActivationFunctionEnum
from levanter.utils.flop_utils import lm_flops_per_token

ROUTED_WEIGHT_SUM = 2.5
"""Sum of the weights of a token's experts (Marin, experiments/grug/moe/model.py)."""


class Routing(NamedTuple):
    """Experts and weights of each token, both of shape (token, choice), and the bias of the next step (expert,)."""

    experts: Array
    weights: Array
    next_bias: Array


def route(logits: Array, bias: Array, *, experts_per_token: int) -> Routing:
    """Route by logits of shape (token, expert) in float32 and the bias of shape (expert,).

    The bias affects only the choice; weights are the sigmoids of the logits, scaled to sum to 2.5.
    """
    biased = jax.lax.stop_gradient(logits + bias)
    highest, chosen = jax.lax.top_k(biased, experts_per_token + 1)
    experts = chosen[:, :-1]
    gates = jax.nn.sigmoid(jnp.take_along_axis(logits, experts, axis=-1))
    weights = gates * (ROUTED_WEIGHT_SUM / jnp.sum(gates, axis=-1, keepdims=True))
    next_bias = balancing_bias(jax.lax.stop_gradient(logits), threshold=highest[:, -1], experts_per_token=experts_per_token)
    return Routing(experts=experts, weights=weights, next_bias=next_bias)


def balancing_bias(logits: Array, *, threshold: Array, experts_per_token: int) -> Array:
    """Return the bias (expert,) with which experts_per_token / experts of the tokens would exceed their `threshold` (token,).

    `threshold` is the biased logit of the first expert that a token did not choose.
    """
    share = experts_per_token / logits.shape[-1]
    return -jnp.quantile(logits - threshold[:, None], 1 - share, axis=0)


def routing_entropy(logits: Array) -> Array:
    """Return the entropy in nats of the mean routing probabilities, from logits of shape (token, expert).

    Probabilities are the softmax of the logits without the bias: the router's own preference, before balancing. The entropy is
    ln(experts) if all experts are preferred equally, and 0 if one expert has all the probability.

    >>> round(float(routing_entropy(jnp.zeros((5, 8)))), 4), round(float(routing_entropy(jnp.array([[90.0, 0.0]]))), 4)
    (2.0794, 0.0)
    """
    mean = jnp.mean(jax.nn.softmax(logits, axis=-1), axis=0)
    return jnp.sum(jax.scipy.special.entr(mean))


@jax.custom_vjp  # type: ignore[untyped-decorator]
def with_auxiliary_loss(value: Array, auxiliary_loss: Array) -> Array:  # noqa: ARG001
    """Return `value` unchanged, and add the gradient of the scalar `auxiliary_loss` to that of the training loss.

    A layer can thus add to the loss without passing it through the model; the reported loss does not include it.
    """
    return value


def _forward(value: Array, _auxiliary_loss: Array) -> tuple[Array, None]:
    return value, None


def _backward(_: None, gradient: Array) -> tuple[Array, Array]:
    return gradient, jnp.ones((), jnp.float32)


with_auxiliary_loss.defvjp(_forward, _backward)


def router_loss(logits: Array, bias: Array, next_bias: Array, *, z_loss_weight: float) -> Array:
    """Return a router's contribution to the loss: its z-loss, and half the squared distance of its bias to the next one.

    The gradient of the second part is the distance, so that gradient descent with learning rate 1 sets the bias.
    """
    z_loss = jnp.mean(jnp.square(jax.nn.logsumexp(logits, axis=-1))) if z_loss_weight else 0.0
    distance = bias - jax.lax.stop_gradient(next_bias)
    return z_loss_weight * z_loss + 0.5 * jnp.sum(jnp.square(distance))


_BUFFER_SHARES = 2
"""Length of an expert's buffer on a CPU, relative to an even share of the tokens."""

Product = Callable[[Array, Array], Array]
"""Function of tokens and a matrix for each expert, of shape (expert, in, out), that multiplies each token by its expert's."""
ExpertMlp = Callable[[Array, Any, Product], Array]
"""Function of tokens, arrays of all experts and a product that applies the experts to the tokens."""


def through_experts(tokens: Array, experts: Array, weights: Array, matrices: Any, *, mlp: ExpertMlp) -> Array:
    """Return the weighted sum of the outputs of each token's experts: shape (token, embed).

    `tokens` has shape (token, embed), `experts` and `weights` (token, choice); `matrices` are the arrays that `mlp` gets, with
    the experts first. On several devices each sorts its own tokens, and has the matrices of all experts in turn.
    """
    here = partial(_through_experts_here, mlp=mlp)
    if not (axes := _axes_of_batch()):
        return here(tokens, experts, weights, matrices)
    rows, everywhere = PartitionSpec(axes), PartitionSpec()
    on_each = jax.shard_map(here, in_specs=(rows, rows, rows, everywhere), out_specs=rows, check_vma=False)
    spread: Array = on_each(tokens, experts, weights, matrices)
    return spread


def _axes_of_batch() -> tuple[str, ...]:
    """Return the axes of the mesh over which a batch is spread, without those of one device."""
    named = physical_axis_name("batch") or ()
    sizes = dict(jax.sharding.get_abstract_mesh().shape)
    return tuple(axis for axis in ((named,) if isinstance(named, str) else named) if sizes.get(axis, 1) > 1)


def _through_experts_here(tokens: Array, experts: Array, weights: Array, matrices: Any, *, mlp: ExpertMlp) -> Array:
    if jax.default_backend() != "cpu":
        return _ragged(tokens, experts, weights, matrices, mlp)
    room = min(-(-_BUFFER_SHARES * experts.size // _count(matrices)), len(tokens))
    fullest = jnp.max(jnp.bincount(experts.reshape(-1), length=_count(matrices)))
    return jax.lax.cond(
        fullest <= room,
        lambda: _packed(tokens, experts, weights, matrices, mlp, room=room),
        lambda: _ragged(tokens, experts, weights, matrices, mlp),
    )


def _count(matrices: Any) -> int:
    return len(jax.tree.leaves(matrices)[0])


def _ragged(tokens: Array, experts: Array, weights: Array, matrices: Any, mlp: ExpertMlp) -> Array:
    flat = experts.reshape(-1)
    order = jnp.argsort(flat)
    loads = jnp.bincount(flat, length=_count(matrices))
    kernel = jax.lax.ragged_dot if jax.default_backend() == "cpu" else ragged_dot
    made = mlp(tokens[order // experts.shape[1]], matrices, lambda each, every: kernel(each, every, loads))
    return _weighted_sum(made[jnp.argsort(order)], weights)


def _packed(tokens: Array, experts: Array, weights: Array, matrices: Any, mlp: ExpertMlp, *, room: int) -> Array:
    flat, num_experts = experts.reshape(-1), _count(matrices)
    is_its = jax.nn.one_hot(flat, num_experts, dtype=jnp.int32)  # (token and choice, expert)
    place = jnp.sum(jnp.cumsum(is_its, axis=0) * is_its, axis=1) - 1  # position among its expert's tokens
    slot = flat * room + place
    source = jnp.full(num_experts * room, len(tokens)).at[slot].set(jnp.arange(flat.size) // experts.shape[1])
    padded = jnp.concatenate([tokens, jnp.zeros_like(tokens[:1])])  # empty slots hold zeros
    in_buffers = padded[source].reshape(num_experts, room, -1)
    made = mlp(in_buffers, matrices, lambda each, every: jnp.einsum("eti,eio->eto", each, every))
    return _weighted_sum(made.reshape(num_experts * room, -1)[slot], weights)


def _weighted_sum(made: Array, weights: Array) -> Array:
    return jnp.einsum("tke,tk->te", made.reshape(*weights.shape, -1), weights.astype(made.dtype))


QUERY_SCALE = 1.3
"""Scale of normalized queries (Marin, experiments/grug/moe/heuristic.py)."""
INITIAL_SCALE = 0.5
"""Standard deviation of initial matrices times the root of the width (same source)."""


@dataclass(frozen=True)
class GrugMoeConfig(LlamaConfig):  # type: ignore[misc]  # Levanter is untyped here
    """Sizes and switches; `intermediate_dim` is that of one expert."""

    num_experts: int = 8
    experts_per_token: int = 2
    shared_intermediate_dim: int = 128
    norm_gate_rank: int = 128
    router_z_loss_weight: float = 0.0

    @property
    def model_type(self) -> type[GrugMoeModel]:
        """Class that `build` creates."""
        return GrugMoeModel

    def flops_per_token(self, vocab_size: int, context_length: int) -> float:
        """Return FLOPs of a token's forward pass by Levanter's count, for the throughput that its `train_lm` logs."""
        flops: float = lm_flops_per_token(
            hidden_dim=self.hidden_dim,
            intermediate_dim=self.intermediate_dim,
            num_layers=self.num_layers,
            num_kv_heads=self.num_kv_heads,
            num_heads=self.num_heads,
            seq_len=context_length,
            vocab_size=vocab_size,
            glu=True,
            num_experts=self.num_experts,
            num_shared_experts=1,
            num_experts_per_tok=self.experts_per_token,
            shared_intermediate_dim=self.shared_intermediate_dim,
        )
        return flops

    def attention_config(self) -> AttentionConfig:
        """Return Levanter's attention with queries and keys normalized without weights, and queries scaled."""
        return dataclasses.replace(
            super().attention_config(),
            qk_norm=dataclasses.replace(self.norm_config, use_weight=False),
            scaling_factor=QUERY_SCALE / math.sqrt(self.hidden_dim // self.num_heads),
        )


class GatedNorm(ModuleWithStateDictSerialization):  # type: ignore[misc]
    """RMSNorm with a gate of low rank: y sigmoid(up silu(down y)) (arXiv 2601.22966)."""

    norm: hnn.RmsNorm
    down: hnn.Linear
    up: hnn.Linear

    @staticmethod
    def init(config: GrugMoeConfig, *, key: Any) -> GatedNorm:
        """Initialize; `GrugMoeModel` redraws matrices."""
        key_down, key_up = jax.random.split(key)
        rank = Axis("gate_rank", config.norm_gate_rank)
        down = hnn.Linear.init(In=config.Embed, Out=rank, key=key_down, use_bias=False, out_first=True)
        up = hnn.Linear.init(In=rank, Out=config.Embed, key=key_up, use_bias=False, out_first=True)
        return GatedNorm(config.mk_LayerNorm(config.Embed), down, up)

    def __call__(self, x: NamedArray) -> NamedArray:
        """Return `x` normalized and gated, with the same axes."""
        normed = self.norm(x)
        return normed * hnn.sigmoid(self.up(hnn.silu(self.down(normed)))).astype(normed.dtype)

    def _state_dict_key_map(self) -> dict[str, str | None]:
        return {"norm": None, "down": "down_proj", "up": "up_proj"}


class HeadGatedAttention(ModuleWithStateDictSerialization):  # type: ignore[misc]
    """Levanter's attention, with each head's output multiplied by 2 sigmoid(x w) before heads are joined.

    Levanter's own gate per head cannot be used: its shapes do not fit in either version.
    """

    attention: Attention
    gate: hnn.Linear

    @staticmethod
    def init(config: GrugMoeConfig, *, key: Any) -> HeadGatedAttention:
        """Initialize; `GrugMoeModel` redraws matrices."""
        key_attention, key_gate = jax.random.split(key)
        attention = config.attention_config()
        gate = hnn.Linear.init(In=config.Embed, Out=attention.Heads, key=key_gate, use_bias=False, out_first=True)
        return HeadGatedAttention(Attention.init(attention, key=key_attention), gate)

    def __call__(self, x: NamedArray, mask: Any, *, key: Any = None, pos_ids: NamedArray | None = None) -> NamedArray:
        """Return the heads' output for `x`, gated and joined."""
        join, gates = self.attention.o_proj, 2.0 * hnn.sigmoid(self.gate(x))
        gated = eqx.tree_at(lambda module: module.o_proj, self.attention, lambda heads, key=None: join(heads * gates, key=key))
        return gated(x, mask, key=key, pos_ids=pos_ids)

    def _state_dict_key_map(self) -> dict[str, str | None]:
        return {"attention": None, "gate": "attn_gate"}


class RoutedExperts(ModuleWithStateDictSerialization):  # type: ignore[misc]
    """Router with its bias, and one of Levanter's gated MLPs per expert.

    The MLPs are stacked as Haliax stacks layers, so that Levanter's optimizers treat each expert's matrix separately.
    """

    config: GrugMoeConfig = eqx.field(static=True)
    router: hnn.Linear
    router_bias: NamedArray
    experts: Stacked

    @staticmethod
    def init(config: GrugMoeConfig, *, key: Any) -> RoutedExperts:
        """Initialize, with a bias of 0; `GrugMoeModel` redraws matrices."""
        key_router, key_experts = jax.random.split(key)
        axis = Axis("experts", config.num_experts)
        router = hnn.Linear.init(In=config.Embed, Out=axis, key=key_router, use_bias=False, out_first=True)
        experts = Stacked.init(axis, LlamaMlp, gradient_checkpointing=False)(
            config.Embed,
            config.Mlp,
            ActivationFunctionEnum.silu,
            key=shaped_rng_split(key_experts, config.num_experts),
        )
        return RoutedExperts(config, router, hax.zeros(axis), experts)

    def __call__(self, x: NamedArray) -> NamedArray:
        """Return the experts' output for each token, with the same axes."""
        others, rows = _as_rows(x)
        logits, bias = self._logits(rows), self.router_bias.array
        routing = route(logits, bias, experts_per_token=self.config.experts_per_token)
        made = through_experts(rows.array, routing.experts, routing.weights, self._matrices(), mlp=_gated_mlp)
        weight = self.config.router_z_loss_weight / self.config.num_layers  # the z-loss is the mean over layers
        loss = router_loss(logits, bias, routing.next_bias, z_loss_weight=weight)
        made = with_auxiliary_loss(made, loss)
        return hax.named(made, rows.axes).unflatten_axis("token", others).rearrange(x.axes)

    def routing(self, x: NamedArray) -> tuple[Any, Any]:
        """Return the routing entropy of these tokens, and each expert's share of their choices, of shape (expert,)."""
        _, rows = _as_rows(x)
        logits = self._logits(rows)
        chosen = route(logits, self.router_bias.array, experts_per_token=self.config.experts_per_token).experts
        return routing_entropy(logits), jnp.bincount(chosen.reshape(-1), length=self.config.num_experts) / chosen.size

    def _logits(self, rows: NamedArray) -> Any:
        return self.router(rows).rearrange(("token", "experts")).array.astype(jnp.float32)

    def _matrices(self) -> tuple[Array, ...]:
        """Return gate, up and down of the experts, of shape (expert, in, out)."""
        mlp = self.experts.stacked
        return tuple(
            linear.weight.rearrange(("experts", linear.In, linear.Out)).array
            for linear in (mlp.gate_proj, mlp.up_proj, mlp.down_proj)
        )

    def _state_dict_key_map(self) -> dict[str, str | None]:
        return {"router_bias": "router.bias"}


def _gated_mlp(tokens: Array, matrices: tuple[Array, Array, Array], product: Product) -> Array:
    gate, up, down = matrices
    return product(jax.nn.silu(product(tokens, gate)) * product(tokens, up), down)


def _as_rows(x: NamedArray) -> tuple[list[Axis], NamedArray]:
    """Return the axes of tokens, and one row per token."""
    others = [axis for axis in x.axes if axis.name != "embed"]
    return others, x.flatten_axes(others, "token").rearrange(("token", "embed"))


class GrugMoeLayer(ModuleWithStateDictSerialization):  # type: ignore[misc]
    """Gated attention, then routed experts parallel to the shared one, each after a gated norm."""

    attention_norm: GatedNorm
    attention: HeadGatedAttention
    mlp_norm: GatedNorm
    routed: RoutedExperts
    shared: LlamaMlp

    @staticmethod
    def init(config: GrugMoeConfig, *, key: Any) -> GrugMoeLayer:
        """Initialize; `GrugMoeModel` redraws matrices."""
        keys = jax.random.split(key, 5)
        shared_axis = Axis("mlp", config.shared_intermediate_dim)
        return GrugMoeLayer(
            attention_norm=GatedNorm.init(config, key=keys[1]),
            attention=HeadGatedAttention.init(config, key=keys[0]),
            mlp_norm=GatedNorm.init(config, key=keys[2]),
            routed=RoutedExperts.init(config, key=keys[3]),
            shared=LlamaMlp.init(config.Embed, shared_axis, ActivationFunctionEnum.silu, key=keys[4]),
        )

    def __call__(self, x: NamedArray, mask: Any, *, key: Any = None, pos_ids: NamedArray | None = None) -> NamedArray:
        """Return the residual stream after this layer."""
        x = x + self.attention(self.attention_norm(x), mask, key=key, pos_ids=pos_ids)
        normed = self.mlp_norm(x)
        return x + self.routed(normed) + self.shared(normed)

    def routing(self, x: NamedArray, mask: Any) -> tuple[Any, Any]:
        """Return `RoutedExperts.routing` of the tokens in the residual stream `x`."""
        return self.routed.routing(self.mlp_norm(x + self.attention(self.attention_norm(x), mask)))

    def _state_dict_key_map(self) -> dict[str, str | None]:
        return {
            "attention_norm": "input_layernorm",
            "attention": "self_attn",
            "mlp_norm": "post_attention_layernorm",
            "routed": "mlp",
            "shared": "mlp.shared_expert",
        }


class GrugMoeEmbedding(LlamaEmbedding):  # type: ignore[misc]
    """Levanter's embedding, with a norm that has a name of its own in exported files."""

    def _state_dict_key_map(self) -> dict[str, str | None]:
        return {"token_embeddings": "model.embed_tokens", "norm": "model.embed_norm"}


class GrugMoeModel(LlamaLMHeadModel):  # type: ignore[misc]
    """Levanter's language model with these layers, and gated norms after the embedding and before the head."""

    @classmethod
    def init(cls, Vocab: Axis, config: GrugMoeConfig, *, key: Any) -> GrugMoeModel:
        """Draw all matrices and the embedding from one truncated normal; heads' gates start at 0, which passes everything."""
        keys = jax.random.split(key, 6)
        kind = Stacked if config.scan_layers else BlockSeq
        layers = kind.init(config.Layers, GrugMoeLayer, gradient_checkpointing=config.gradient_checkpointing)(
            config, key=shaped_rng_split(keys[0], config.num_layers)
        )
        transformer = LlamaTransformer(config, layers, GatedNorm.init(config, key=keys[1]))
        tokens = hnn.Embedding.init(Vocab, config.Embed, key=keys[2])
        head = hnn.Linear.init(In=config.Embed, Out=Vocab, key=keys[3], use_bias=False, out_first=True)
        model = cls(transformer, GrugMoeEmbedding(tokens, GatedNorm.init(config, key=keys[4])), head)
        drawn = _drawn(model, scale=INITIAL_SCALE / math.sqrt(config.hidden_dim), key=keys[5])
        shut: GrugMoeModel = eqx.tree_at(head_gates, drawn, replace_fn=lambda gate: jax.tree.map(jnp.zeros_like, gate))
        return shut

    def routing(self, tokens: NamedArray) -> tuple[Any, Any]:
        """Return the routing entropy (layer,) and the experts' shares of choices (layer, expert) of tokens (batch, position).

        No token is dropped: buffers that are too short are replaced by ragged products.
        """
        mask = AttentionMask.causal()

        def advance(layer: GrugMoeLayer, x: NamedArray) -> tuple[NamedArray, Any]:
            entropy, shares = layer.routing(x, mask)
            return layer(x, mask), (hax.named(entropy, ()), hax.named(shares, layer.routed.router.Out))

        _, (entropy, shares) = self.transformer.layers.scan_via(advance)(self.embeddings.embed(tokens))
        return entropy.array, shares.array


def _layers(model: Any) -> list[Any]:
    """Return the layers; of scanned ones, a single layer whose arrays have an axis of layers in front."""
    layers = model.transformer.layers
    return [layers.stacked] if isinstance(layers, Stacked) else list(layers.blocks)


def head_gates(model: Any) -> list[Any]:
    """Return the gates of heads, one per layer or all in one."""
    return [layer.attention.gate for layer in _layers(model)]


def routers(model: Any) -> list[Any]:
    """Return the routers without their biases, one per layer or all in one."""
    return [layer.routed.router for layer in _layers(model)]


def router_biases(model: Any) -> list[Any]:
    """Return the routers' biases, one per layer or all in one."""
    return [layer.routed.router_bias for layer in _layers(model)]


def _is_matrix(node: Any) -> bool:
    return isinstance(node, (hnn.Linear, hnn.Embedding))


def _drawn(model: GrugMoeModel, *, scale: float, key: Any) -> GrugMoeModel:
    """Return `model` with every matrix drawn from a normal distribution truncated at 3, times `scale`.

    Each matrix of each layer has its own key, the same whether layers are scanned or not.
    """
    nodes, structure = jax.tree.flatten(model, is_leaf=_is_matrix)
    layers, is_scanned = model.config.num_layers, model.config.scan_layers
    in_layers = len(jax.tree.leaves(model.transformer.layers, is_leaf=_is_matrix))  # the first nodes of the model
    each = in_layers if is_scanned else in_layers // layers
    keys = jax.random.split(key, len(nodes) - in_layers + each * layers)

    def drawn(node: Any, number: int) -> Any:
        if not is_scanned or number >= in_layers:
            own = keys[number + (each * layers - in_layers)]
            weight = hax.random.truncated_normal(own, node.weight.axes, -3, 3)
        else:
            axes = node.weight.axes
            own = keys[number : each * layers : each]  # (layer,)
            rows = jax.vmap(lambda own: hax.random.truncated_normal(own, axes[1:], -3, 3).array)(own)
            weight = hax.named(rows, axes)
        return dataclasses.replace(node, weight=scale * weight)

    changed = [drawn(node, number) if _is_matrix(node) else node for number, node in enumerate(nodes)]
    whole: GrugMoeModel = jax.tree.unflatten(structure, changed)
    return whole
