"""Levanter's `train_lm` for mixtures of experts too: `python -P -m marin_scaling.train.train_lm --config_path FILE`.

Registers the model and its optimizers by the names that `marin-scale emit` writes; all else is Levanter's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import levanter.config
from levanter.main import train_lm
from levanter.models.lm_model import LmConfig
from levanter.optim.adamh import AdamHConfig
from levanter.optim.config import OptimizerConfig
from levanter.optim.muonh import MuonHConfig

from marin_scaling.train.moe import GrugMoeConfig
from marin_scaling.train.optimizer import SparseLabels, for_layers

MODEL = "grug_moe"
OPTIMIZERS = {"adamH": "grug_moe_adamH", "muonH": "grug_moe_muonH"}
"""Registered names, by those of dense models."""

LmConfig.register_subclass(MODEL, GrugMoeConfig)


@OptimizerConfig.register_subclass(OPTIMIZERS["adamH"])
@dataclass(frozen=True)
class MixtureAdamH(SparseLabels, AdamHConfig):  # type: ignore[misc]  # Levanter is untyped here
    """AdamH, with Adam for routers and the gates of heads, and with routers' biases set in each step."""

    constant_norm: str = "matrix"

    def build(self, num_train_steps: int) -> Any:
        """Return the optimizer with its schedule."""
        return for_layers(super().build(num_train_steps), "adamH", constant_norm=self.constant_norm, is_sparse=True)


@OptimizerConfig.register_subclass(OPTIMIZERS["muonH"])
@dataclass(frozen=True)
class MixtureMuonH(SparseLabels, MuonHConfig):  # type: ignore[misc]
    """MuonH, with the same additions."""

    constant_norm: str = "matrix"

    def build(self, num_train_steps: int) -> Any:
        """Return the optimizer with its schedule."""
        return for_layers(super().build(num_train_steps), "muonH", constant_norm=self.constant_norm, is_sparse=True)


if __name__ == "__main__":
    levanter.config.main(train_lm.main)()
