"""A trained model in Hugging Face format, by Levanter's own converter: `config.json`, `model.safetensors`, a tokenizer's files.

Nothing is fetched from the hub. For dense models: the format has no architecture that is our mixture of experts.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from levanter.compat.hf_checkpoints import HFCheckpointConverter
from levanter.models.qwen import Qwen3Config
from levanter.tracker.tracker import NoopConfig
from levanter.trainer import TrainerConfig
from transformers import AutoTokenizer
from transformers import Qwen3Config as HuggingFaceConfig

from marin_scaling.run.kept_weights import load_weights
from marin_scaling.run.run_spec import RunSpec


def write_hugging_face(spec: RunSpec, *, weights: Path, folder: Path, tokenizer: Path | None) -> None:
    """Write the dense model of `spec`, whose checkpoint is `weights`, into `folder`; `tokenizer` is a folder, too."""
    logging.getLogger("levanter").setLevel(logging.ERROR)  # it warns that there is no checkpoint on the hub to copy from
    trainer = TrainerConfig(tracker=NoopConfig(), require_accelerator=False)  # for its devices only; it writes nothing
    with trainer.use_device_mesh():
        model = load_weights(spec, weights, axis_mapping=trainer.parameter_axis_mapping, mesh=trainer.device_mesh)
        converter(tokenizer).save_pretrained(model, str(folder), save_tokenizer=tokenizer is not None)


def _tokenizer(folder: Path | None) -> Any:
    """Return the tokenizer in a folder; nothing without one, because None would mean one of the hub."""
    return () if folder is None else AutoTokenizer.from_pretrained(folder, trust_remote_code=False)


def converter(tokenizer: Path | None) -> HFCheckpointConverter[Any]:
    """Levanter's converter of our dense models, with the tokenizer in a folder, or without one."""
    return HFCheckpointConverter(
        Qwen3Config,
        HfConfigClass=HuggingFaceConfig,
        tokenizer=_tokenizer(tokenizer),
        config_overrides={"architectures": ["Qwen3ForCausalLM"]},
    )
