"""Learning rates, betas and epsilon from batch size and token horizon.

Transfer rules of Marin's `completed_adamh` recipe (Delphi; experiments/scaling_law_sweeps/completed_adamh.py), with B the
batch in sequences, T the training tokens and index 0 the reference at which the constants were tuned:

    matrix learning rate   eta = eta_0 sqrt(B / B_0) (T_0 / T)^0.3        capped
    Adam learning rate     eta' = eta'_0 sqrt(B T_0 / (B_0 T))
    epsilon                eps = eps_0 sqrt(B_0 T / (B T_0))
    beta2                  beta2_0^(B / B_0), kept within [0.9, 0.9999]
"""

from __future__ import annotations

from dataclasses import dataclass

TOKEN_HORIZON_EXPONENT = 0.3  # Delphi; without it the 1e22 run missed its forecast by 2.5 % (openathena.ai/blog/delphi)
_BETA2_RANGE = (0.9, 0.9999)


@dataclass(frozen=True, kw_only=True)
class TunedAt:
    """The one point at which the constants were tuned, and their values there."""

    batch_size: int
    tokens: int
    learning_rate: float
    adam_learning_rate: float
    beta2: float
    epsilon: float
    max_learning_rate: float


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """What the optimizer is given for one run."""

    learning_rate: float
    adam_learning_rate: float
    beta1: float
    beta2: float
    epsilon: float


def transfer(tuned: TunedAt, *, batch_size: int, tokens: int) -> Hyperparameters:
    """The hyperparameters for `batch_size` sequences and `tokens` training tokens.

    >>> tuned = TunedAt(batch_size=64, tokens=2_500_000_000, learning_rate=0.0063, adam_learning_rate=0.000656,
    ...                 beta2=0.9999, epsilon=1.85e-8, max_learning_rate=0.01)  # Delphi
    >>> round(transfer(tuned, batch_size=8, tokens=1_223_393_280).learning_rate, 7)
    0.00276
    """
    batch_ratio, horizon_ratio = batch_size / tuned.batch_size, tokens / tuned.tokens
    scale = (batch_ratio / horizon_ratio) ** 0.5
    learning_rate = tuned.learning_rate * batch_ratio**0.5 * horizon_ratio**-TOKEN_HORIZON_EXPONENT
    low, high = _BETA2_RANGE
    return Hyperparameters(
        learning_rate=min(learning_rate, tuned.max_learning_rate),
        adam_learning_rate=min(tuned.adam_learning_rate * scale, tuned.max_learning_rate),
        beta1=0.9,
        beta2=min(max(tuned.beta2**batch_ratio, low), high),
        epsilon=tuned.epsilon / scale,
    )
