"""From files, data sets and caches to tokens: every byte counted, nothing passed over, nothing both trained on and held out."""

import bz2
import gzip
import importlib.util
import json
import lzma
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import zstandard
from fsspec.implementations.memory import MemoryFileSystem
from pydantic import ValidationError
from text_factory import data, texts, write_jsonl, write_tokenizer

from marin_scaling.data.corpus import TokenCorpus, data_folder
from marin_scaling.data.documents import documents_in
from marin_scaling.data.prepare import prepare, prepared
from marin_scaling.errors import DataError
from marin_scaling.ladder.config import Data

needs_levanter = pytest.mark.skipif(importlib.util.find_spec("levanter") is None, reason="the train extra is not installed")


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    return {
        "train": write_jsonl(tmp_path / "train.jsonl", texts(100)),
        "wiki": write_jsonl(tmp_path / "wiki.jsonl", texts(20, start=1_000)),
    }


def of_files(files: dict[str, Path], **changes: object) -> Data:
    validation = {name: {"files": str(path)} for name, path in files.items() if name != "train"}
    return data(**({"train": {"files": str(files["train"])}, "validation": validation} | changes))


def made(asked: Data, tmp_path: Path) -> TokenCorpus:
    return prepare(asked, work_root=tmp_path / "work")


def test_bytes_are_the_text_and_a_line_feed_after_each_document(tmp_path: Path, files: dict[str, Path]) -> None:
    """In the files' order; the counts of bytes are those of the text in UTF-8."""
    corpus = made(of_files(files), tmp_path)
    assert corpus.train.tobytes().decode() == "".join(text + "\n" for text in texts(100))
    assert corpus.validation["wiki"].tobytes().decode() == "".join(text + "\n" for text in texts(20, start=1_000))
    assert {name: known.text_bytes for name, known in corpus.facts.items()} == {
        "train": len(corpus.train),
        "wiki": len(corpus.validation["wiki"]),
    }


def test_one_text_in_four_kinds_of_files_is_one_corpus(tmp_path: Path, files: dict[str, Path]) -> None:
    """JSON lines, packed JSON lines, Parquet and text files, the last by a pattern, have one digest."""
    rows = pa.table({"text": texts(100), "id": list(range(100))})
    parquet.write_table(rows, tmp_path / "train.parquet")
    (tmp_path / "train.jsonl.gz").write_bytes(gzip.compress(files["train"].read_bytes()))
    (tmp_path / "many").mkdir()
    for number, text in enumerate(texts(100)):
        (tmp_path / "many" / f"{number:03}.txt").write_text(text)
    places = [files["train"], tmp_path / "train.parquet", tmp_path / "train.jsonl.gz", tmp_path / "many" / "*.txt"]
    digests = {made(of_files(files, train={"files": [str(place)]}), tmp_path).digest for place in places}
    assert len(digests) == 1


@pytest.mark.train
def test_a_store_behind_an_address_is_read_as_a_file_is(tmp_path: Path, files: dict[str, Path]) -> None:
    """`memory://` stands for any file system of fsspec."""
    import fsspec

    with fsspec.open("memory://texts/a.jsonl", "wb") as stream:
        stream.write(files["train"].read_bytes())
    away = made(of_files(files, train={"files": "memory://texts/*.jsonl"}), tmp_path)
    assert away.digest == made(of_files(files), tmp_path).digest


@needs_levanter
@pytest.mark.train
def test_a_data_set_in_the_hubs_layout_is_read_by_its_splits(
    tmp_path: Path, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two splits of a folder that `datasets` loads, equal to the same text from files."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    for split, documents in (("train", texts(100)), ("validation", texts(20, start=1_000))):
        (tmp_path / "hub").mkdir(exist_ok=True)
        parquet.write_table(pa.table({"text": documents}), tmp_path / "hub" / f"{split}.parquet")
    hub = {"dataset": str(tmp_path / "hub")}
    asked = data(train=hub, validation={"wiki": hub | {"split": "validation"}})
    assert made(asked, tmp_path).digest == made(of_files(files), tmp_path).digest


@needs_levanter
@pytest.mark.train
def test_tokens_of_a_real_tokenizer_give_the_text_back_and_its_bytes(tmp_path: Path, files: dict[str, Path]) -> None:
    """Decoded, the tokens are the documents with the end of text between; their bytes are exactly those of the text."""
    from tokenizers import Tokenizer

    folder = write_tokenizer(tmp_path / "tokenizer")
    corpus = made(of_files(files, tokenizer=str(folder)), tmp_path)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert tokenizer.decode(corpus.train.tolist(), skip_special_tokens=False) == "".join(t + "<|end|>" for t in texts(100))
    assert corpus.facts["train"].text_bytes == sum(len(text.encode()) for text in texts(100))
    assert corpus.tokenizer.size == 512
    assert corpus.train.dtype == np.uint16
    assert len(corpus.train) < corpus.facts["train"].text_bytes


@needs_levanter
@pytest.mark.train
def test_a_cache_that_levanter_built_is_read_as_it_is(tmp_path: Path, files: dict[str, Path]) -> None:
    """Its tokens, in its order, with nothing between."""
    from levanter.store.cache import SerialCacheWriter

    folder = write_tokenizer(tmp_path / "tokenizer")
    rows = [{"input_ids": np.arange(number, number + 9, dtype=np.int32)} for number in range(0, 90, 10)]
    with SerialCacheWriter(str(tmp_path / "cache"), rows[0]) as writer:
        writer.write_batch(rows)
    corpus = made(of_files(files, train={"cache": str(tmp_path / "cache")}, tokenizer=str(folder)), tmp_path)
    assert corpus.train.tolist() == [token for row in rows for token in row["input_ids"]]
    with SerialCacheWriter(str(tmp_path / "large"), rows[0]) as writer:
        writer.write_batch([{"input_ids": np.array([5, 257], np.int32)}])
    with pytest.raises(DataError, match=r"token 257 .* 256"):
        made(of_files(files, train={"cache": str(tmp_path / "large")}), tmp_path)


def test_what_was_made_is_kept_until_a_file_changes(tmp_path: Path, files: dict[str, Path]) -> None:
    """Asked again, nothing is read; after a change it is made anew, with another digest."""
    asked, rows = of_files(files), list[str]()
    assert prepared(asked, work_root=tmp_path / "work") is None
    first = prepare(asked, work_root=tmp_path / "work", on_row=rows.append)
    again = prepare(asked, work_root=tmp_path / "work", on_row=rows.append)
    assert rows == ["wiki", "train"]
    assert again.digest == first.digest
    write_jsonl(files["train"], texts(101))
    assert prepared(asked, work_root=tmp_path / "work") is None
    assert made(asked, tmp_path).digest != first.digest


def test_a_document_that_is_trained_on_and_held_out_is_refused_with_both_places(tmp_path: Path, files: dict[str, Path]) -> None:
    """And left out of training, not of what is held out, where the file says so."""
    write_jsonl(files["train"], [*texts(3), texts(1, start=1_002)[0], *texts(2, start=50)])
    with pytest.raises(DataError, match=r"train\.jsonl, line 4: .* held out too \(wiki: .*wiki\.jsonl, line 3\)"):
        made(of_files(files), tmp_path)
    assert not list((tmp_path / "work" / "data").glob("being-made-*"))
    left = made(of_files(files, overlap="leave-out"), tmp_path)
    assert left.train.tobytes().decode() == "".join(text + "\n" for text in [*texts(3), *texts(2, start=50)])
    assert left.validation["wiki"].tobytes().decode() == "".join(text + "\n" for text in texts(20, start=1_000))


@pytest.mark.train
@pytest.mark.parametrize("around", ["{}\n", "{} ", "  {}", "{}\r\n", "\ufeff{}", "\ufeff\n{}\u3000\n", "\t{}\xa0"])
@pytest.mark.parametrize("where", ["train", "wiki"])
def test_a_document_with_white_space_around_it_is_the_same_document(
    tmp_path: Path, files: dict[str, Path], around: str, where: str
) -> None:
    """Also a mark of byte order, and on either side."""
    write_jsonl(files["train"], texts(3))
    write_jsonl(files["wiki"], [*texts(2, start=1_000), texts(3)[1]])
    rows = {"train": texts(3), "wiki": [*texts(2, start=1_000), texts(3)[1]]}
    write_jsonl(files[where], [around.format(text) for text in rows[where]])
    with pytest.raises(DataError, match=r"train\.jsonl, line 2: .* held out too \(wiki: .*, line 3\)"):
        made(of_files(files), tmp_path)


@needs_levanter
@pytest.mark.train
def test_white_space_around_a_document_makes_no_other_of_it_with_any_tokenizer(tmp_path: Path, files: dict[str, Path]) -> None:
    """In text, where it changes the tokens, and in a cache, whose rows are decoded."""
    from levanter.store.cache import SerialCacheWriter
    from tokenizers import Tokenizer

    folder = write_tokenizer(tmp_path / "tokenizer")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    spaced = [f"\ufeff {text}\n" for text in texts(3, start=999)]
    rows = [{"input_ids": np.array(tokenizer.encode(text).ids, np.int32)} for text in spaced]
    with SerialCacheWriter(str(tmp_path / "cache"), rows[0]) as writer:
        writer.write_batch(rows)
    write_jsonl(files["train"], spaced)
    for train, said in (({"files": str(files["train"])}, "line 2"), ({"cache": str(tmp_path / "cache")}, "cache, row 1")):
        with pytest.raises(DataError, match=rf"{said}: this training document is held out too"):
            made(of_files(files, train=train, tokenizer=str(folder)), tmp_path)


def test_a_document_that_differs_inside_is_another_one(tmp_path: Path, files: dict[str, Path]) -> None:
    """A second blank, another case, another line end; and blank documents are no text that could be held out."""
    held_out = ["One text\nof two lines.", " "]
    write_jsonl(files["wiki"], held_out)
    others = ["One  text\nof two lines.", "one text\nof two lines.", "One text\r\nof two lines.", "\n"]
    write_jsonl(files["train"], others)
    assert made(of_files(files), tmp_path).train.tobytes().decode() == "".join(text + "\n" for text in others)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"text": "a"}\nnot json\n', "line 2: it is not JSON"),
        (b'{"text": "a"}\n{"body": "b"}\n', "line 2: text: no such key"),
        (b'{"text": 5}\n', "line 1: text: int, not text"),
        (b"[1, 2]\n", "line 1: text: no such key"),
        (b'{"text": ' + b"[" * 100_000 + b"\n", "line 1: it is not JSON"),
        (b'{"text": "\xff"}\n', "line 1: it is not UTF-8 (byte 10)"),
        (b'{"text": "\\ud800"}\n', "line 1: half of a surrogate pair at character 0"),
        (b"", "holds no text"),
    ],
)
def test_a_row_that_is_no_document_is_refused_by_file_and_line(
    tmp_path: Path, files: dict[str, Path], content: bytes, said: str
) -> None:
    """Nothing of what was read before it is kept."""
    files["train"].write_bytes(content)
    with pytest.raises(DataError) as caught:
        made(of_files(files), tmp_path)
    assert said in caught.value.what
    assert "train.jsonl" in caught.value.what
    assert prepared(of_files(files), work_root=tmp_path / "work") is None


@pytest.mark.parametrize(
    ("train", "said"),
    [
        ({"files": "nowhere.jsonl"}, "nowhere.jsonl: there is no such file"),
        ({"files": "none-*.jsonl"}, "none-*.jsonl: there is no such file"),
        ({"files": "{folder}"}, ": it is a folder"),
        ({"files": "oss://bucket/a.jsonl"}, "oss://bucket/a.jsonl cannot be read: Install ossfs"),
        ({"files": "{folder}/text.csv"}, "unknown kind of file"),
        ({"files": "{folder}/broken.parquet"}, "broken.parquet cannot be read"),
        ({"files": "{folder}/broken.jsonl.gz"}, "broken.jsonl.gz cannot be read"),
        ({"files": "{folder}/other.parquet"}, "it has no column 'text'; it has body"),
        ({"dataset": "{folder}/no-data-set"}, "no-data-set cannot be read"),
        ({"cache": "{folder}/no-cache"}, "no-cache/shard_ledger.json: there is no such file"),
    ],
)
def test_a_place_that_cannot_be_read_is_refused_by_name(
    tmp_path: Path, files: dict[str, Path], train: dict[str, str], said: str
) -> None:
    """With what, why and fix, whatever its driver raises."""
    for name in ("text.csv", "broken.parquet", "broken.jsonl.gz"):
        (tmp_path / name).write_text("a,b\n1,2\n")
    parquet.write_table(pa.table({"body": ["a"]}), tmp_path / "other.parquet")
    place = {key: value.replace("{folder}", str(tmp_path)) for key, value in train.items()}
    with pytest.raises(DataError) as caught:
        made(of_files(files, train=place), tmp_path)
    assert said in caught.value.what


def test_all_texts_that_cannot_be_read_are_named_at_once(tmp_path: Path, files: dict[str, Path]) -> None:
    """Training text and held-out text, in one error."""
    with pytest.raises(DataError) as caught:
        made(of_files(files, train={"files": "nowhere.jsonl"}, validation={"held": {"files": "none.jsonl"}}), tmp_path)
    assert [line.partition(":")[0] for line in caught.value.lines] == ["nowhere.jsonl", "none.jsonl"]


@pytest.mark.train
@pytest.mark.parametrize("name", ["a.jsonl", "*.jsonl"])
def test_a_store_that_is_away_is_not_taken_for_one_without_the_file(
    tmp_path: Path, files: dict[str, Path], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its driver says is told."""

    def away(_system: MemoryFileSystem, path: str, **_options: object) -> dict[str, object]:
        raise ConnectionError(f"no way to {path}")

    monkeypatch.setattr(MemoryFileSystem, "info", away)
    with pytest.raises(DataError) as caught:
        made(of_files(files, train={"files": f"memory://bucket/{name}"}), tmp_path)
    assert caught.value.what == f"memory://bucket/{name} cannot be read: no way to /bucket/{name}."


@needs_levanter
@pytest.mark.train
def test_a_tokenizer_that_is_none_is_refused_by_name(tmp_path: Path, files: dict[str, Path]) -> None:
    """A folder without one."""
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"The tokenizer '.*empty' cannot be loaded"):
        made(of_files(files, tokenizer=str(tmp_path / "empty")), tmp_path)


@pytest.mark.train
@pytest.mark.parametrize("name", ["{here}/tokenizr", "./tokenizr", "../tokenizr", "~/tokenizr", "tokenizr/", "corpus/tokenizr"])
def test_a_folder_of_a_tokenizer_that_is_not_there_is_not_looked_for_on_the_hub(
    tmp_path: Path, files: dict[str, Path], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What begins or ends as a path, or lies in a folder that is here; nothing is made in its place."""
    (tmp_path / "here" / "corpus").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    name = name.format(here=tmp_path)
    with pytest.raises(DataError, match=rf"The tokenizer '{name}': there is no such folder\."):
        made(of_files(files, tokenizer=name), tmp_path)
    assert not list(tmp_path.rglob("tokenizr"))


@needs_levanter
@pytest.mark.train
def test_a_tokenizer_that_loses_text_is_refused(tmp_path: Path, files: dict[str, Path]) -> None:
    """Words it does not know become nothing; bits per byte would be off."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"the": 0, "loss": 1, "[UNK]": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    folder = tmp_path / "words"
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "[UNK]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(DataError, match=r"its text has [0-9]+ bytes, but the tokens"):
        made(of_files(files, tokenizer=str(folder)), tmp_path)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"source": "mine"}, "needs train"),
        (
            {"source": "mine", "held_out": 0.1, "validation": {"v": {"files": "b"}}, "train": {"files": "a"}},
            "choose one of them",
        ),
        ({"held_out": 0.1}, "validation and held_out need train"),
        ({"train": {"files": "a.jsonl"}, "validation": {"v": {"files": "b.jsonl"}}}, "needs train"),
        ({"source": "mine", "train": {}, "validation": {"v": {"files": "b"}}}, "given: none"),
        ({"source": "mine", "train": {"files": "a", "cache": "b"}, "validation": {"v": {"files": "b"}}}, "given: files, cache"),
        ({"source": "mine", "train": {"files": "a", "split": "x"}, "validation": {"v": {"files": "b"}}}, "need a dataset"),
        (
            {"source": "mine", "train": {"files": "a"}, "validation": {"train": {"files": "b"}}},
            "'train' is reserved",
        ),
        (
            {"source": "mine", "train": {"files": "a"}, "validation": {"validation": {"files": "b"}}},
            "'validation' is reserved",
        ),
        ({"epochs": 2}, "the standard library"),
    ],
)
def test_a_data_part_that_cannot_be_meant_is_refused(asked: dict[str, object], said: str) -> None:
    """Before anything is read."""
    with pytest.raises(ValidationError, match=said):
        Data.model_validate(asked)


@pytest.mark.parametrize("ending", ["txt.zst", "jsonl.zst", "txt.gz", "jsonl.gz", "txt.xz", "jsonl.bz2"])
def test_a_packed_file_is_read_whole_or_refused(tmp_path: Path, ending: str) -> None:
    """Of two frames, as `cat a b` makes them, both are read; one that was cut off is no text."""
    pack = {"zst": zstandard.compress, "gz": gzip.compress, "xz": lzma.compress, "bz2": bz2.compress}[ending.split(".")[1]]
    halves = [b"".join(f'{{"text": "{number} {word}"}}\n'.encode() for number in range(9_000)) for word in ("one", "two")]
    whole, cut = tmp_path / f"whole.{ending}", tmp_path / f"cut.{ending}"
    whole.write_bytes(b"".join(pack(half) for half in halves))
    cut.write_bytes(pack(halves[0])[:-2_000])
    documents = list(documents_in(str(whole), text_key="text"))
    if ending.startswith("jsonl"):
        assert [text for _where, text in documents] == [
            f"{number} {word}" for word in ("one", "two") for number in range(9_000)
        ]
    else:
        assert documents[0][1].encode() == b"".join(halves)
    with pytest.raises(DataError, match=r"cut.* cannot be read"):
        list(documents_in(str(cut), text_key="text"))


@pytest.mark.parametrize(
    "other", ["{folder}/tr*.jsonl", "{folder}/./train.jsonl", "train.jsonl", "./train.jsonl", "link.jsonl"]
)
def test_a_file_that_is_named_twice_is_refused(
    tmp_path: Path, files: dict[str, Path], other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By itself, and by a pattern, another path or a link."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link.jsonl").symlink_to(files["train"])
    both = [str(files["train"]), other.format(folder=tmp_path)]
    with pytest.raises(DataError, match=r"(train|link)\.jsonl is named twice"):
        made(of_files(files, train={"files": both}), tmp_path)


def test_two_held_out_sets_of_one_text_are_refused(tmp_path: Path, files: dict[str, Path]) -> None:
    """Whatever their files are called: the mean over sets would count that text twice."""
    again = write_jsonl(tmp_path / "again.jsonl", texts(20, start=1_000))
    with pytest.raises(DataError, match=r"data\.validation: wiki and news hold the same text\."):
        made(of_files(files | {"news": again}), tmp_path)


def test_text_that_changes_while_it_is_read_is_refused(tmp_path: Path, files: dict[str, Path]) -> None:
    """What was read is kept under no name; the next try has the new text."""
    asked = of_files(files)

    def meddle(row: str) -> None:
        if row == "train":
            write_jsonl(files["wiki"], texts(30, start=3_000))

    with pytest.raises(DataError, match="changed while it was read"):
        prepare(asked, work_root=tmp_path / "work", on_row=meddle)
    assert prepared(asked, work_root=tmp_path / "work") is None
    assert "3029" in made(asked, tmp_path).validation["wiki"].tobytes().decode()


def test_of_four_that_ask_at_once_one_makes_it_and_all_have_it(tmp_path: Path, files: dict[str, Path]) -> None:
    """Each row is read once, in all."""
    rows, found = list[str](), list[str]()
    asked = of_files(files)

    def ask() -> None:
        found.append(prepare(asked, work_root=tmp_path / "work", on_row=rows.append).digest)

    asking = [threading.Thread(target=ask) for _ in range(4)]
    for each in asking:
        each.start()
    for each in asking:
        each.join()
    assert rows == ["wiki", "train"]
    assert len(found) == 4
    assert len(set(found)) == 1


@pytest.mark.parametrize("damage", ["short", "gone", "manifest"])
def test_a_corpus_that_a_disk_has_damaged_is_made_anew(tmp_path: Path, files: dict[str, Path], damage: str) -> None:
    """A row cut short, a row that is gone, a manifest that is none."""
    first = made(of_files(files), tmp_path)
    folder = data_folder(first.digest, work_root=tmp_path / "work")
    if damage == "short":
        (folder / "train.bin").write_bytes((folder / "train.bin").read_bytes()[:-1])
    elif damage == "gone":
        (folder / "train.bin").unlink()
    else:
        (folder / "corpus.json").write_text("{}")
    assert prepared(of_files(files), work_root=tmp_path / "work") is None
    assert made(of_files(files), tmp_path).train.tobytes().decode() == "".join(text + "\n" for text in texts(100))


def test_what_is_kept_can_be_read_by_whom_the_umask_lets(tmp_path: Path, files: dict[str, Path]) -> None:
    """The folder has the rights that any new folder has here, and nothing else is left beside it."""
    (tmp_path / "usual").mkdir()
    folder = data_folder(made(of_files(files), tmp_path).digest, work_root=tmp_path / "work")
    assert folder.stat().st_mode == (tmp_path / "usual").stat().st_mode
    assert not list(folder.parent.glob("being-made-*"))


@pytest.mark.train
def test_names_are_those_of_the_ladder_file_that_asks(tmp_path: Path, files: dict[str, Path]) -> None:
    """Also where another one has made the same tokens before."""
    first, second = made(of_files(files), tmp_path), made(of_files(files, source="another"), tmp_path)
    assert (first.source, second.source) == ("test-texts", "another")
    assert first.digest == second.digest


@needs_levanter
@pytest.mark.train
def test_another_tokenizer_of_the_same_words_is_another_tokenizer(tmp_path: Path, files: dict[str, Path]) -> None:
    """With fewer merges it makes other tokens; the identity says so, and nothing kept is taken for it."""
    folder = write_tokenizer(tmp_path / "tokenizer")
    first = made(of_files(files, tokenizer=str(folder)), tmp_path)
    document = json.loads((folder / "tokenizer.json").read_text())
    document["model"]["merges"] = document["model"]["merges"][:50]
    other = tmp_path / "other"
    other.mkdir()
    (other / "tokenizer.json").write_text(json.dumps(document))
    (other / "tokenizer_config.json").write_bytes((folder / "tokenizer_config.json").read_bytes())
    second = made(of_files(files, tokenizer=str(other)), tmp_path)
    assert first.tokenizer.digest != second.tokenizer.digest
    assert len(first.train) != len(second.train)


@needs_levanter
@pytest.mark.train
def test_the_name_of_a_special_token_in_a_text_is_text(tmp_path: Path, files: dict[str, Path]) -> None:
    """It ends no document, and its bytes are counted."""
    folder = write_tokenizer(tmp_path / "tokenizer")
    write_jsonl(files["train"], ["before <|end|> after", "next"])
    corpus = made(of_files(files, tokenizer=str(folder)), tmp_path)
    end = json.loads((folder / "tokenizer.json").read_text())["added_tokens"][0]["id"]
    assert (corpus.train == end).sum() == 2
    assert corpus.facts["train"].text_bytes == len("before <|end|> after" + "next")


@needs_levanter
@pytest.mark.train
def test_a_cache_that_holds_a_held_out_document_is_refused_too(tmp_path: Path, files: dict[str, Path]) -> None:
    """Though its row ends with the token for the end of a text."""
    from levanter.store.cache import SerialCacheWriter
    from tokenizers import Tokenizer

    folder = write_tokenizer(tmp_path / "tokenizer")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    end = tokenizer.token_to_id("<|end|>")
    rows = [{"input_ids": np.array([*tokenizer.encode(text).ids, end], np.int32)} for text in texts(3, start=999)]
    with SerialCacheWriter(str(tmp_path / "cache"), rows[0]) as writer:
        writer.write_batch(rows)
    asked = of_files(files, train={"cache": str(tmp_path / "cache")}, tokenizer=str(folder))
    with pytest.raises(DataError, match=r"cache, row 1: .* held out too"):
        made(asked, tmp_path)


def test_each_set_has_a_key_of_its_own_and_keys_may_be_nested(tmp_path: Path, files: dict[str, Path]) -> None:
    """`content` beside `text`, and `message.text` of nested rows in JSON lines and Parquet."""
    write_jsonl(files["wiki"], texts(20, start=1_000), key="content")
    rows = [{"message": {"text": text}} for text in texts(100)]
    nested = tmp_path / "nested.jsonl"
    nested.write_text("".join(json.dumps(row) + "\n" for row in rows))
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "nested.parquet")
    held_out = {"wiki": {"files": str(files["wiki"]), "text_key": "content"}}
    digests = {
        made(data(train={"files": str(place), "text_key": key}, validation=held_out), tmp_path).digest
        for place, key in ((files["train"], "text"), (nested, "message.text"), (tmp_path / "nested.parquet", "message.text"))
    }
    assert len(digests) == 1
    with pytest.raises(DataError, match=r"message\.body: no such key; it has text"):
        made(data(train={"files": str(nested), "text_key": "message.body"}, validation=held_out), tmp_path)


def test_a_mark_of_byte_order_is_no_text(tmp_path: Path, files: dict[str, Path]) -> None:
    """Of JSON lines and of text files; UTF-16 is refused by name."""
    before = made(of_files(files), tmp_path).digest
    files["train"].write_bytes(b"\xef\xbb\xbf" + files["train"].read_bytes())
    assert made(of_files(files), tmp_path).digest == before
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfthe loss")
    assert [text for _, text in documents_in(str(tmp_path / "a.txt"), text_key="")] == ["the loss"]
    (tmp_path / "a.txt").write_bytes("the loss".encode("utf-16"))
    with pytest.raises(DataError, match="UTF-16"):
        list(documents_in(str(tmp_path / "a.txt"), text_key=""))


@pytest.mark.train
def test_held_out_text_is_taken_from_the_training_documents_where_none_is_named(tmp_path: Path, files: dict[str, Path]) -> None:
    """By the digest of a document alone: order and other documents change nothing, and twins go together."""
    write_jsonl(files["train"], texts(300) + texts(5))
    asked = data(train={"files": str(files["train"])}, held_out=0.2)

    def parts() -> tuple[set[str], set[str]]:
        corpus = made(asked, tmp_path)
        rows = (row.tobytes().decode() for row in (corpus.train, corpus.validation["held-out"]))
        train, held_out = ({text for text in texts(600) if f"{text}\n" in row} for row in rows)
        return train, held_out

    train, held_out = parts()
    assert not held_out & train
    assert held_out | train == set(texts(300))
    assert 30 < len(held_out) < 90
    write_jsonl(files["train"], texts(600)[::-1])
    assert held_out <= parts()[1]


@needs_levanter
@pytest.mark.train
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("rows", "its ledger counts 99 rows, its data 100"),
        ("tokens", "its ledger counts 51000 tokens, its data 50000"),
        ("chunk", "input_ids"),
    ],
)
def test_a_damaged_cache_is_refused_by_its_folder(tmp_path: Path, files: dict[str, Path], damage: str, said: str) -> None:
    """A ledger that counts otherwise, and data that were cut to half."""
    from levanter.store.cache import SerialCacheWriter

    folder, cache = write_tokenizer(tmp_path / "tokenizer"), tmp_path / "cache"
    rows = [{"input_ids": np.random.default_rng(number).integers(256, 512, 500, dtype=np.int32)} for number in range(100)]
    with SerialCacheWriter(str(cache), rows[0]) as writer:
        writer.write_batch(rows)
    ledger, chunk = cache / "shard_ledger.json", cache / "input_ids" / "data" / "c" / "0"
    document = json.loads(ledger.read_text())
    if damage == "chunk":
        chunk.write_bytes(chunk.read_bytes()[:1000])
    elif damage == "rows":
        document["total_num_rows"] = 99
    else:
        document["field_counts"]["input_ids"] = 51_000
    ledger.write_text(json.dumps(document))
    with pytest.raises(DataError) as caught:
        made(of_files(files, train={"cache": str(cache)}, tokenizer=str(folder)), tmp_path)
    assert str(cache) in caught.value.what
    assert said in caught.value.what
