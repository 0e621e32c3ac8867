"""Qwen3 in plain NumPy, from the names and shapes of a Hugging Face folder: what an exported model must compute. float64."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


def read_model(folder: Path) -> tuple[dict[str, Any], dict[str, Matrix]]:
    """The configuration, and the arrays by name."""
    from safetensors.numpy import load_file

    arrays = {name: array.astype(np.float64) for name, array in load_file(folder / "model.safetensors").items()}
    return json.loads((folder / "config.json").read_text()), arrays


def logits(config: dict[str, Any], arrays: dict[str, Matrix], tokens: NDArray[np.int_]) -> Matrix:
    """Of shape (position, vocab) for one sequence."""
    epsilon = config["rms_norm_eps"]
    stream = arrays["model.embed_tokens.weight"][tokens]
    for number in range(config["num_hidden_layers"]):
        layer = {
            name.removeprefix(f"model.layers.{number}."): array
            for name, array in arrays.items()
            if name.startswith(f"model.layers.{number}.")
        }
        stream = stream + attention(normed(stream, layer["input_layernorm.weight"], epsilon), layer, config)
        stream = stream + mlp(normed(stream, layer["post_attention_layernorm.weight"], epsilon), layer)
    return normed(stream, arrays["model.norm.weight"], epsilon) @ arrays["lm_head.weight"].T


def attention(x: Matrix, layer: dict[str, Matrix], config: dict[str, Any]) -> Matrix:
    """Causal; each query head uses the keys and values of its group; queries and keys normed by head, then rotated."""
    size, heads, groups = config["head_dim"], config["num_attention_heads"], config["num_key_value_heads"]
    query_gain, key_gain, epsilon = layer["self_attn.q_norm.weight"], layer["self_attn.k_norm.weight"], config["rms_norm_eps"]
    values = []
    for head in range(heads):
        group = head * groups // heads
        query = rotated(normed(part(x, layer, "q", head, size), query_gain, epsilon), config)
        key = rotated(normed(part(x, layer, "k", group, size), key_gain, epsilon), config)
        scores = query @ key.T / np.sqrt(size)
        scores[np.triu_indices(len(x), k=1)] = -np.inf
        share = np.exp(scores - scores.max(axis=1, keepdims=True))
        values.append((share / share.sum(axis=1, keepdims=True)) @ part(x, layer, "v", group, size))
    return np.concatenate(values, axis=1) @ layer["self_attn.o_proj.weight"].T


def part(x: Matrix, layer: dict[str, Matrix], kind: str, head: int, size: int) -> Matrix:
    """Queries, keys or values of one head: (position, size)."""
    return x @ layer[f"self_attn.{kind}_proj.weight"][head * size : (head + 1) * size].T


def rotated(x: Matrix, config: dict[str, Any]) -> Matrix:
    """Rotary embedding: numbers i and i + half of each position turned by position / theta^(2i / size)."""
    half = x.shape[1] // 2
    angle = np.arange(len(x))[:, None] * float(config["rope_theta"]) ** (-2 * np.arange(half) / x.shape[1])
    first, second = x[:, :half], x[:, half:]
    return np.concatenate(
        [first * np.cos(angle) - second * np.sin(angle), second * np.cos(angle) + first * np.sin(angle)], axis=1
    )


def normed(x: Matrix, gain: Matrix, epsilon: float) -> Matrix:
    """Divided by its root mean square, times a gain."""
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + epsilon) * gain


def mlp(x: Matrix, layer: dict[str, Matrix]) -> Matrix:
    """down (silu(gate x) * up x)."""
    gate = x @ layer["mlp.gate_proj.weight"].T
    return (gate / (1 + np.exp(-gate)) * (x @ layer["mlp.up_proj.weight"].T)) @ layer["mlp.down_proj.weight"].T


def bits_per_byte(folder: Path, windows: NDArray[np.int_], token_bytes: NDArray[np.int_]) -> float:
    """Loss of an exported model over every token but the first of each window, by the bytes that they stand for."""
    config, arrays = read_model(folder)
    nats = sum(-log_shares(logits(config, arrays, tokens[:-1]))[range(len(tokens) - 1), tokens[1:]].sum() for tokens in windows)
    return float(nats / math.log(2) / token_bytes[windows[:, 1:]].sum())


def log_shares(x: Matrix) -> Matrix:
    """Logarithms of the softmax over the last axis."""
    shifted = x - x.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
