"""Small real texts, tokenizers and caches on disk, made when a test asks for them."""

import json
from pathlib import Path
from typing import Any

from marin_scaling.ladder.config import Data

WORDS = ["the loss falls", "with compute", "né à Zürich", "日本語のテキスト", "x = y ** 2\n", "scaling laws hold", "🙂 emoji"]


def texts(number: int, *, start: int = 0) -> list[str]:
    """Distinct documents of a few lines, with characters of one to four bytes."""
    return [
        " ".join(WORDS[(place * 7 + step * 3 + place // 5) % len(WORDS)] for step in range(30)) + f" {place}"
        for place in range(start, start + number)
    ]


def write_jsonl(path: Path, documents: list[str], *, key: str = "text") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"id": number, key: text}) + "\n" for number, text in enumerate(documents)))
    return path


def write_tokenizer(folder: Path, *, vocab_size: int = 512) -> Path:
    """A byte-level BPE tokenizer trained on the texts, as a hub has it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<|end|>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts(200), trainer)
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def data(**changes: Any) -> Data:
    """The `data` part of a ladder file."""
    return Data.model_validate({"source": "test-texts", **changes})
