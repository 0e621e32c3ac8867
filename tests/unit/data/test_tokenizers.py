"""Tokenizers as people have them: the end token may be named anywhere, and the export encodes as training did."""

import json
from pathlib import Path
from typing import Any

import pytest
from text_factory import texts, write_tokenizer

from marin_scaling.data.tokenizer import load_tokenizer
from marin_scaling.errors import DataError

pytest.importorskip("levanter", reason="the train extra is not installed")
pytestmark = pytest.mark.train


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tokenizer whose configuration names no end token, like GPT-2's, with two special tokens of unusual names."""
    made = write_tokenizer(tmp_path / "tokenizer")
    tokenizer = json.loads((made / "tokenizer.json").read_text())
    tokenizer["added_tokens"][0]["content"] = "<stop>"
    tokenizer["model"]["vocab"]["<stop>"] = tokenizer["model"]["vocab"].pop("<|end|>")
    tokenizer["added_tokens"].append({**tokenizer["added_tokens"][0], "id": 512, "content": "<other>"})
    (made / "tokenizer.json").write_text(json.dumps(tokenizer))
    (made / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 1024}))
    return made


@pytest.mark.parametrize(
    ("file", "document"),
    [
        ("special_tokens_map.json", {"eos_token": "<stop>"}),
        ("special_tokens_map.json", {"eos_token": {"content": "<stop>", "special": True}}),
        ("generation_config.json", {"eos_token_id": [0, 512]}),
        ("config.json", {"eos_token_id": 0}),
        ("tokenizer_config.json", {"eos_token": "<stop>"}),
    ],
)
def test_the_end_token_is_found_where_hugging_face_keeps_it(folder: Path, file: str, document: dict[str, Any]) -> None:
    """By word or number; special tokens stand for no bytes of text."""
    (folder / file).write_text(json.dumps(document))
    found = load_tokenizer(str(folder))
    assert (found.separator, found.end_word) == (0, "<stop>")
    assert found.token_bytes[[0, 512]].tolist() == [0, 0]


def test_a_tokenizer_without_an_end_token_is_refused_until_one_is_named(folder: Path) -> None:
    """The error lists the files that were read, and the key of the ladder file."""
    with pytest.raises(DataError) as caught:
        load_tokenizer(str(folder))
    for file in ("tokenizer_config.json", "special_tokens_map.json", "generation_config.json", "config.json"):
        assert file in caught.value.what
    assert "data.end_token" in caught.value.fix
    assert load_tokenizer(str(folder), end_token="<other>").separator == 512
    with pytest.raises(DataError, match="'<gone>'"):
        load_tokenizer(str(folder), end_token="<gone>")


def test_a_sentencepiece_model_is_converted(tmp_path: Path) -> None:
    """As AutoTokenizer does; bytes add up with byte fallback."""
    sentencepiece = pytest.importorskip("sentencepiece")
    folder = tmp_path / "pieces"
    folder.mkdir()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts(200)),
        model_prefix=str(folder / "tokenizer"),
        vocab_size=400,
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        minloglevel=2,
    )
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "LlamaTokenizer", "eos_token": "</s>"}))
    found = load_tokenizer(str(folder))
    documents = texts(20, start=500)
    encoded = found.encode(documents)
    assert found.end_word == "</s>"
    counted = sum(int(found.token_bytes[tokens].sum()) for tokens in encoded)
    assert counted == pytest.approx(sum(len(text.encode()) for text in documents), rel=0.005)
    assert found.separator not in encoded[0]


def test_the_exported_tokenizer_encodes_a_text_as_training_did(tmp_path: Path) -> None:
    """Without the token that its template puts before a text, also after it was saved and loaded."""
    from tokenizers import Tokenizer, processors
    from transformers import AutoTokenizer

    from marin_scaling.train.weights import tokenizer_to_export

    folder = write_tokenizer(tmp_path / "tokenizer")
    rust = Tokenizer.from_file(str(folder / "tokenizer.json"))
    rust.add_special_tokens(["<begin>"])
    rust.post_processor = processors.TemplateProcessing(single="<begin> $A", special_tokens=[("<begin>", 512)])
    rust.save(str(folder / "tokenizer.json"))
    trained = load_tokenizer(str(folder))
    (expected,) = trained.encode(["scaling laws hold"])
    assert AutoTokenizer.from_pretrained(folder)("scaling laws hold")["input_ids"] == [512, *expected.tolist()]
    tokenizer_to_export(folder, end_token=trained.end_word).save_pretrained(tmp_path / "out")
    loaded = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert loaded("scaling laws hold")["input_ids"] == expected.tolist()
    assert loaded.eos_token == "<|end|>"
