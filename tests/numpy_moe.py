"""The grug MoE in plain NumPy, token by token: what `marin_scaling.train.moe` must compute. Forward only, float64."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


def weights_of(model: Any) -> dict[str, Any]:
    """The model's arrays by name, with axes in the order that this module uses."""

    def array(named: Any, *order: str) -> Matrix:
        return np.asarray(named.rearrange(order).array if order else named.array, np.float64)

    def gated_norm(module: Any) -> dict[str, Matrix]:
        return {
            "gain": array(module.norm.weight),
            "down": array(module.down.weight, "gate_rank", "embed"),
            "up": array(module.up.weight, "embed", "gate_rank"),
        }

    def mlp(module: Any, *outer: str) -> dict[str, Matrix]:
        return {
            "gate": array(module.gate_proj.weight, *outer, "mlp", "embed"),
            "up": array(module.up_proj.weight, *outer, "mlp", "embed"),
            "down": array(module.down_proj.weight, *outer, "embed", "mlp"),
        }

    layers = []
    for layer in model.transformer.layers.blocks:
        attention = layer.attention.attention
        layers.append(
            {
                "attention_norm": gated_norm(layer.attention_norm),
                "query": array(attention.q_proj.weight, "kv_head", "q_heads_per_group", "head_size", "embed"),
                "key": array(attention.k_proj.weight, "kv_head", "head_size", "embed"),
                "value": array(attention.v_proj.weight, "kv_head", "head_size", "embed"),
                "join": array(attention.o_proj.weight, "embed", "heads", "head_size"),
                "head_gate": array(layer.attention.gate.weight, "heads", "embed"),
                "mlp_norm": gated_norm(layer.mlp_norm),
                "router": array(layer.routed.router.weight, "experts", "embed"),
                "bias": array(layer.routed.router_bias),
                "experts": mlp(layer.routed.experts.stacked, "experts"),
                "shared": mlp(layer.shared),
            }
        )
    return {
        "embedding": array(model.embeddings.token_embeddings.weight, "vocab", "embed"),
        "embedding_norm": gated_norm(model.embeddings.norm),
        "layers": layers,
        "final_norm": gated_norm(model.transformer.norm),
        "head": array(model.lm_head.weight, "vocab", "embed"),
    }


def read_exported(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The configuration of an exported mixture, and its arrays as `weights_of` returns them, from the files alone."""
    from safetensors.numpy import load_file

    arrays = {name: array for path in folder.glob("*.safetensors") for name, array in load_file(path).items()}
    config = json.loads((folder / "config.json").read_text())
    heads, groups, size = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]

    def array(name: str) -> Matrix:
        return arrays[f"{name}.weight"].astype(np.float64)

    def gated_norm(name: str) -> dict[str, Matrix]:
        return {"gain": array(name), "down": array(f"{name}.down_proj"), "up": array(f"{name}.up_proj")}

    def mlp(name: str) -> dict[str, Matrix]:
        return {part: array(f"{name}.{part}_proj") for part in ("gate", "up", "down")}

    def experts(name: str) -> dict[str, Matrix]:
        each = [mlp(f"{name}.{number}") for number in range(config["num_experts"])]
        return {part: np.stack([one[part] for one in each]) for part in each[0]}

    def layer(name: str) -> dict[str, Any]:
        return {
            "attention_norm": gated_norm(f"{name}.input_layernorm"),
            "query": array(f"{name}.self_attn.q_proj").reshape(groups, heads // groups, size, -1),
            "key": array(f"{name}.self_attn.k_proj").reshape(groups, size, -1),
            "value": array(f"{name}.self_attn.v_proj").reshape(groups, size, -1),
            "join": array(f"{name}.self_attn.o_proj").reshape(-1, heads, size),
            "head_gate": array(f"{name}.self_attn.attn_gate"),
            "mlp_norm": gated_norm(f"{name}.post_attention_layernorm"),
            "router": array(f"{name}.mlp.router"),
            "bias": arrays[f"{name}.mlp.router.bias"].astype(np.float64),
            "experts": experts(f"{name}.mlp.experts"),
            "shared": mlp(f"{name}.mlp.shared_expert"),
        }

    return config, {
        "embedding": array("model.embed_tokens"),
        "embedding_norm": gated_norm("model.embed_norm"),
        "layers": [layer(f"model.layers.{number}") for number in range(config["num_hidden_layers"])],
        "final_norm": gated_norm("model.norm"),
        "head": array("lm_head"),
    }


def sequence_logits(
    weights: dict[str, Any], tokens: NDArray[np.int_], *, experts_per_token: int
) -> tuple[Matrix, list[Matrix]]:
    """Logits of shape (position, vocab) for one sequence, and each layer's router logits of shape (position, expert)."""
    stream = gated_norm(weights["embedding"][tokens], weights["embedding_norm"])
    routed = []
    for layer in weights["layers"]:
        stream = stream + attention(gated_norm(stream, layer["attention_norm"]), layer)
        normed = gated_norm(stream, layer["mlp_norm"])
        routed.append(normed @ layer["router"].T)
        chosen = [token_through_experts(row, layer, experts_per_token) + mlp(row, layer["shared"]) for row in normed]
        stream = stream + np.stack(chosen)
    return gated_norm(stream, weights["final_norm"]) @ weights["head"].T, routed


def token_through_experts(row: Matrix, layer: dict[str, Any], experts_per_token: int) -> Matrix:
    """The experts with the highest logit plus bias; weights are sigmoids of the logits, made to sum to 2.5."""
    logits = layer["router"] @ row
    chosen = np.argsort(logits + layer["bias"])[::-1][:experts_per_token]
    gates = sigmoid(logits[chosen])
    parts = [
        gate * mlp(row, {name: matrices[expert] for name, matrices in layer["experts"].items()})
        for expert, gate in zip(chosen, 2.5 * gates / gates.sum(), strict=True)
    ]
    return np.sum(parts, axis=0)


def next_bias(router_logits: Matrix, bias: Matrix, experts_per_token: int) -> Matrix:
    """Minus the (1 - K/E) quantile over tokens of logit minus the (K+1)-th highest biased logit of the token."""
    num_experts = len(bias)
    threshold = np.sort(router_logits + bias, axis=1)[:, num_experts - 1 - experts_per_token]
    share = 1 - experts_per_token / num_experts
    return np.array([-np.quantile(router_logits[:, expert] - threshold, share) for expert in range(num_experts)])


def attention(x: Matrix, layer: dict[str, Any]) -> Matrix:
    """Causal attention with grouped queries: normed, rotated, scaled by 1.3, and each head gated by 2 sigmoid(x w)."""
    groups, queries, head_size, _ = layer["query"].shape
    heads = []
    for head in range(groups * queries):
        group = head // queries
        query = rotated(unit(x @ layer["query"][group, head % queries].T))
        key = rotated(unit(x @ layer["key"][group].T))
        scores = 1.3 * query @ key.T / np.sqrt(head_size)
        scores[np.triu_indices(len(x), k=1)] = -np.inf
        share = np.exp(scores - scores.max(axis=1, keepdims=True))
        value = (share / share.sum(axis=1, keepdims=True)) @ (x @ layer["value"][group].T)
        gate = 2 * sigmoid(x @ layer["head_gate"][head])
        heads.append(gate[:, None] * value @ layer["join"][:, head].T)
    return np.sum(heads, axis=0)


def rotated(x: Matrix) -> Matrix:
    """Rotary embedding, theta 10,000: numbers i and i + half of each position turned by position / theta^(2i / size)."""
    half = x.shape[1] // 2
    angle = np.arange(len(x))[:, None] * 10_000.0 ** (-2 * np.arange(half) / x.shape[1])
    first, second = x[:, :half], x[:, half:]
    return np.concatenate(
        [first * np.cos(angle) - second * np.sin(angle), second * np.cos(angle) + first * np.sin(angle)], axis=1
    )


def gated_norm(x: Matrix, module: dict[str, Matrix]) -> Matrix:
    """y sigmoid(up silu(down y)) with y the RMS-normed x times a gain."""
    y = unit(x) * module["gain"]
    return y * sigmoid(silu(y @ module["down"].T) @ module["up"].T)


def mlp(x: Matrix, module: dict[str, Matrix]) -> Matrix:
    """down (silu(gate x) * up x)."""
    return (silu(x @ module["gate"].T) * (x @ module["up"].T)) @ module["down"].T


def unit(x: Matrix) -> Matrix:
    """Divided by its root mean square."""
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + 1e-5)


def sigmoid(x: Matrix) -> Matrix:
    """1 / (1 + exp(-x))."""
    return 1 / (1 + np.exp(-x))


def silu(x: Matrix) -> Matrix:
    """x sigmoid(x)."""
    return x * sigmoid(x)
