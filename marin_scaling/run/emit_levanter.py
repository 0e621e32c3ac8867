"""A folder from which Levanter's own command `train_lm` trains the rungs of a dense ladder: YAML files and the tokens for them.

The tokens are Levanter caches of windows in the order in which `train` reads them, so that nothing is left to shuffle. What the
files say is in `train_lm_yaml`. Nothing is trained here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from levanter.data.text.formats import PrebuiltCacheProcessor
from levanter.store.cache import CacheMetadata, SerialCacheWriter
from numpy.typing import NDArray

from marin_scaling.data.token_corpus import TokenCorpus
from marin_scaling.data.windows import training_window_starts
from marin_scaling.durable_files import new_folder, read_own_bytes, replace_file
from marin_scaling.errors import StorageError
from marin_scaling.run.run_spec import RunSpec
from marin_scaling.run.train import evaluation_windows
from marin_scaling.run.train_lm_yaml import TOKENIZER_FOLDER, TRAIN, file_name, tokens_folder, train_lm_yaml

_WINDOWS_AT_A_TIME = 4096
_NO_TOKENIZER = {
    "tokenizer.json": {
        "version": "1.0",
        "added_tokens": [],
        "model": {"type": "WordLevel", "vocab": {"?": 0}, "unk_token": "?"},
    },
    "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast"},
}


def emit_levanter(specs: Sequence[RunSpec], *, corpus: TokenCorpus, folder: Path) -> bool:
    """Make `folder` with a YAML file for each of these dense runs and the tokens that they read; it appears whole.

    False where it is there already with the same files, and is left as it is; `StorageError` where it is there with others.
    """
    files = {file_name(spec): _yaml(spec, corpus) for spec in specs}
    if folder.exists():
        _require_same(folder, files)
        return False
    with new_folder(folder) as inside:
        for alike in _by_tokens(specs).values():
            _write_tokens(inside / tokens_folder(alike[0]), alike, corpus)
        for name, content in _NO_TOKENIZER.items():
            replace_file(inside / TOKENIZER_FOLDER / name, json.dumps(content).encode())
        for name, text in files.items():
            replace_file(inside / name, text)
    return True


def _yaml(spec: RunSpec, corpus: TokenCorpus) -> bytes:
    bits = {
        name: windows[:, 1:].size / (math.log(2) * int(corpus.token_bytes[windows[:, 1:]].sum(dtype=np.int64)))
        for name, windows in evaluation_windows(spec, corpus).items()
    }
    return train_lm_yaml(spec, bits_per_byte_of_nat=bits)


def _require_same(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        if not path.exists() or read_own_bytes(path) != content:
            raise StorageError(
                f"{folder} is there already, and {name} in it is {'another' if path.exists() else 'missing'}.",
                why="It may be in use, or was changed by hand; nothing in it is overwritten.",
                fix=f"Move {folder} away or remove it, and type the command again.",
            )


def _by_tokens(specs: Iterable[RunSpec]) -> dict[str, list[RunSpec]]:
    """The runs that read the same windows in the same order, each as many as it wants."""
    found: dict[str, list[RunSpec]] = {}
    for spec in specs:
        found.setdefault(tokens_folder(spec), []).append(spec)
    return found


def _write_tokens(folder: Path, alike: Sequence[RunSpec], corpus: TokenCorpus) -> None:
    longest = max(alike, key=lambda spec: spec.batch_size * spec.train_steps)
    _write_cache(folder / TRAIN, _training_windows(longest, corpus))
    for name, windows in evaluation_windows(longest, corpus).items():
        _write_cache(folder / name / "validation", [windows])


def _training_windows(spec: RunSpec, corpus: TokenCorpus) -> Iterator[NDArray[np.int32]]:
    """All windows that the run reads, in its order, some thousands at a time: (window, position)."""
    seq_len, wanted = spec.model.seq_len, spec.batch_size * spec.train_steps
    starts = training_window_starts(len(corpus.train), seq_len=seq_len, seed=spec.data_order_seed, epochs=spec.epochs)[:wanted]
    for first in range(0, wanted, _WINDOWS_AT_A_TIME):
        some = starts[first : first + _WINDOWS_AT_A_TIME]
        yield corpus.train[some[:, None] + np.arange(seq_len)].astype(np.int32)


def _write_cache(folder: Path, parts: Iterable[NDArray[np.int32]]) -> None:
    rows = PrebuiltCacheProcessor("input_ids", None)
    metadata = CacheMetadata(preprocessor_metadata=rows.metadata)
    with SerialCacheWriter(str(folder), rows.output_exemplar, metadata=metadata) as writer:
        for windows in parts:
            writer.write_batch([{"input_ids": window} for window in windows])
