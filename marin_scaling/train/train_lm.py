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
from marin_scaling.train.optimizer import SparseLabels, built_for_layers

MODEL = "grug_moe"
OPTIMIZERS = {"adamH": "grug_moe_adamH", "muonH": "grug_moe_muonH"}
"""Registered names, by those of dense models."""

LmConfig.register_subclass(MODEL, GrugMoeConfig)


class _Mixture(SparseLabels):
    """Adam for routers and gates of heads, and routers' biases that are set in each step."""

    constant_norm: str

    def build(self, num_train_steps: int) -> Any:
        """Return the optimizer with its schedule."""
        config: Any = self
        return built_for_layers(config, num_train_steps, constant_norm=self.constant_norm, is_sparse=True)


@OptimizerConfig.register_subclass(OPTIMIZERS["adamH"])
@dataclass(frozen=True)
class MixtureAdamH(_Mixture, AdamHConfig):  # type: ignore[misc]  # Levanter is untyped here
    """AdamH for a mixture of experts."""

    constant_norm: str = "matrix"


@OptimizerConfig.register_subclass(OPTIMIZERS["muonH"])
@dataclass(frozen=True)
class MixtureMuonH(_Mixture, MuonHConfig):  # type: ignore[misc]
    """MuonH for a mixture of experts."""

    constant_norm: str = "matrix"


if __name__ == "__main__":
    levanter.config.main(train_lm.main)()
