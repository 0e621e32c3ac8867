"""Filtered corpora: what is kept, equal bytes, labelers that fail, labels that are kept, and nothing half-written."""

import hashlib
import json
import shlex
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from command_line import assert_refused, marin_scale
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("sklearn", reason="the data extra is not installed")
pytest.importorskip("fsspec", reason="the data extra is not installed")

from planted_corpus import write_planted

import marin_scaling as ms
from marin_scaling.data.filter import FilterStatus, agreement, shuffled_tokens
from marin_scaling.errors import DataError, UsageError

START = "import json, sys\nfor number, row in enumerate(map(json.loads, sys.stdin)):\n"
GOOD = "    score = row['text'].count('    ')\n    print(json.dumps({'id': row['id'], 'score': score}))\n"
OUTPUTS = {"filtered.jsonl", "random.jsonl", "shuffled.jsonl", "filter.json", "labels.jsonl"}


@pytest.fixture(scope="module")
def planted(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("planted")
    write_planted(folder, code_bytes=200_000)
    return folder


def labeler(folder: Path, code: str) -> str:
    (folder / "own.py").write_text(START + code)
    return shlex.join([sys.executable, str(folder / "own.py")])


def filtered(planted: Path, out: Path, *, code: str = GOOD, corpus: str = "corpus.jsonl", **options):
    command = labeler(out.parent, code)
    options = {"labels": 60, **options}
    return ms.filter_corpus(planted / corpus, prompt="Is it code?", labeler=command, out=out, **options)


def texts(path: Path) -> list[str]:
    return [json.loads(line)["text"] for line in path.read_text().splitlines()]


def test_planted_noise_is_cut_and_the_controls_are_equal_in_size(planted, tmp_path):
    """The random control holds half noise; shuffled characters are those of the filtered documents."""
    found = filtered(planted, tmp_path / "out")
    is_code = {row["text"]: row["is_code"] for row in map(json.loads, (planted / "corpus.jsonl").read_text().splitlines())}
    kept, random, shuffled = (texts(tmp_path / "out" / f"{name}.jsonl") for name in ("filtered", "random", "shuffled"))
    assert np.mean([is_code[text] for text in kept]) > 0.95
    assert 0.3 < np.mean([is_code[text] for text in random]) < 0.7
    assert list(map(sorted, shuffled)) == list(map(sorted, kept))
    assert shuffled != kept
    sizes = dict(zip(found.frame["name"], found.frame["text_bytes"], strict=True))
    assert sizes["filtered"] == sizes["shuffled"] == sum(len(text.encode()) for text in kept)
    assert 0.99 * sizes["filtered"] < sizes["random"] <= sizes["filtered"] <= 0.5 * sizes["whole"]
    assert found.status is FilterStatus.USABLE
    assert {path.name for path in (tmp_path / "out").iterdir()} == OUTPUTS


def test_the_report_has_the_digests_of_the_files(planted, tmp_path):
    """And finite numbers only."""
    filtered(planted, tmp_path / "out")
    report = json.loads((tmp_path / "out" / "filter.json").read_text())
    for part in report["parts"][1:]:
        assert hashlib.sha256((tmp_path / "out" / part["file"]).read_bytes()).hexdigest() == part["sha256"]
    assert report["prompt_sha256"] == hashlib.sha256(b"Is it code?").hexdigest()


def test_equal_inputs_give_equal_bytes_and_another_seed_does_not(planted, tmp_path):
    """The sample, the split and the controls follow from the seed."""
    parts = [filtered(planted, tmp_path / name, seed=seed).parts for name, seed in (("a", 1), ("b", 1), ("c", 2))]
    digests = [[part.sha256 for part in each] for each in parts]
    assert digests[0] == digests[1] != digests[2]


def test_labels_are_kept_and_another_prompt_or_script_asks_again(planted, tmp_path):
    """A rerun asks for no label, one with more labels for the others only."""
    assert filtered(planted, tmp_path / "out").asked == 60
    assert filtered(planted, tmp_path / "out").asked == 0
    assert filtered(planted, tmp_path / "out", labels=70).asked == 10
    assert filtered(planted, tmp_path / "out", code=GOOD + "# changed\n").asked == 60
    command = labeler(tmp_path, GOOD)
    other = ms.filter_corpus(planted / "corpus.jsonl", prompt="Is it prose?", labeler=command, out=tmp_path / "out", labels=60)
    assert other.asked == 60


def test_answers_of_a_labeler_that_dies_are_kept(planted, tmp_path):
    """The error has both counts and the last line of standard error; the rerun asks for the rest."""
    switch = tmp_path / "fixed"
    code = f"    import os\n    if number == 25 and not os.path.exists({str(switch)!r}):\n"
    code += "        raise SystemExit('out of memory')\n"
    with pytest.raises(DataError) as error:
        filtered(planted, tmp_path / "out", code=code + GOOD)
    assert "25 of 60" in str(error.value)
    assert "status 1" in str(error.value)
    assert "out of memory" in str(error.value)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"labels.jsonl"}
    switch.touch()
    assert filtered(planted, tmp_path / "out", code=code + GOOD).asked == 35


@pytest.mark.parametrize(
    ("code", "fact"),
    [
        ("    print('hello')\n", "hello"),
        ("    print(json.dumps({'id': row['id'], 'score': 'high'}))\n", "high"),
        ("    print(json.dumps({'id': row['id'], 'score': float('nan')}))\n", "NaN"),
        ("    print(json.dumps({'id': 'stranger', 'score': 1}))\n", "stranger"),
        ("    print(json.dumps({'id': row['id'], 'score': 1}))\n" * 2, "60 lines"),
        ("    print(json.dumps([row['id'], 1]))\n", "JSON object"),
        ("    sys.stdout.buffer.write(bytes([255, 10]))\n", "JSON object"),
        ("    pass\n", "0 of 60"),
    ],
)
def test_wrong_answers_are_refused_and_nothing_is_written(planted, tmp_path, code, fact):
    """With the line and the number of answers."""
    with pytest.raises(DataError) as error:
        filtered(planted, tmp_path / "out", code=code)
    assert fact in str(error.value)
    assert "of 60 documents" in str(error.value)
    assert len(error.value.lines) <= 2
    assert not (tmp_path / "out").exists()


def test_one_wrong_answer_does_not_lose_the_others(planted, tmp_path):
    """The rerun asks for one document."""
    code = "    if number == 3:\n        print('broken')\n        continue\n"
    with pytest.raises(DataError) as error:
        filtered(planted, tmp_path / "out", code=code + GOOD)
    assert "59 of 60" in str(error.value)
    assert len((tmp_path / "out" / "labels.jsonl").read_text().splitlines()) == 59


def test_equal_labels_are_refused_with_both_numbers(planted, tmp_path):
    """One value, or too few others."""
    for code, fact in (("1", "0 differ"), ("number < 4", "4 differ")):
        answer = f"    print(json.dumps({{'id': row['id'], 'score': {code}}}))\n"
        with pytest.raises(DataError) as error:
            filtered(planted, tmp_path / "out", code=answer)
        assert fact in str(error.value)
        assert {path.name for path in (tmp_path / "out").iterdir()} == {"labels.jsonl"}


def test_labels_without_a_pattern_are_no_filter(planted, tmp_path):
    """Random labels: the interval of the agreement holds chance, and the status is the worst."""
    code = "    import hashlib\n    score = hashlib.sha256(row['text'].encode()).digest()[0]\n"
    found = filtered(planted, tmp_path / "out", code=code + "    print(json.dumps({'id': row['id'], 'score': score}))\n")
    assert found.agreement.low < 0.5
    assert found.status is FilterStatus.NO_AGREEMENT


def test_true_and_false_are_labels(planted, tmp_path):
    """Their agreement is an AUC."""
    found = filtered(
        planted, tmp_path / "out", code="    print(json.dumps({'id': row['id'], 'score': '\\n    ' in row['text']}))\n"
    )
    assert found.agreement.value > 0.9


def test_options_out_of_range_are_refused_together(planted, tmp_path):
    """All in one error."""
    with pytest.raises(UsageError) as error:
        filtered(planted, tmp_path / "out", keep=1.5, labels=7)
    assert "1.5" in str(error.value)
    assert "7" in str(error.value)
    assert "50" in str(error.value)


@pytest.mark.parametrize("command", ["no-such-program --x", "", "python 'unfinished"])
def test_a_command_that_cannot_be_started_is_refused(planted, tmp_path, command):
    """Before anything is read."""
    with pytest.raises(UsageError):
        ms.filter_corpus(planted / "corpus.jsonl", prompt="?", labeler=command, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("content", "facts"),
    [
        ('{"text": "a"}\n' * 500, ("1 different document", "50")),
        ('{"text": "a"}\nnothing\n', ("line 2",)),
        ('{"body": "a"}\n', ("text", "body")),
        ('{"text": "\\ud800"}\n', ("line 1", "surrogate")),
        ("", ("0 different documents", "50")),
    ],
)
def test_a_corpus_that_cannot_be_used_is_refused(tmp_path, content, facts):
    """With its file and line, or its number of documents."""
    (tmp_path / "corpus.jsonl").write_text(content)
    with pytest.raises(DataError) as error:
        filtered(tmp_path, tmp_path / "out")
    for fact in facts:
        assert fact in str(error.value)
    assert "ladder file" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_damaged_labels_are_refused_with_their_lines(planted, tmp_path):
    """No label is dropped silently."""
    filtered(planted, tmp_path / "out")
    path = tmp_path / "out" / "labels.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], "{", lines[1], '{"score": 1}']) + "\n")
    with pytest.raises(DataError) as error:
        filtered(planted, tmp_path / "out")
    assert "2, 4" in str(error.value)


def test_an_earlier_result_survives_a_labeler_that_fails(planted, tmp_path):
    """Its files are unchanged."""
    filtered(planted, tmp_path / "out")
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    with pytest.raises(DataError):
        filtered(planted, tmp_path / "out", code="    raise SystemExit(3)\n")
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


def test_the_command_filters_and_refuses(planted, tmp_path):
    """Several files are one corpus; a missing prompt file has its name in the error."""
    command = labeler(tmp_path, GOOD)
    options = ("--labeler", command, "--labels", 60, "--out", tmp_path / "out")
    place = planted / "corp*.jsonl"
    done = marin_scale("data", "filter", place, "--prompt", planted / "prompt.txt", *options, "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["labels"] == 60
    assert_refused(marin_scale("data", "filter", place, "--prompt", "none.txt", *options, cwd=tmp_path), "none.txt")
    assert_refused(
        marin_scale("data", "filter", "none.jsonl", "--prompt", planted / "prompt.txt", *options, cwd=tmp_path), "none.jsonl"
    )


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(-1, 1)), min_size=2, max_size=30))
def test_agreement_of_reversed_scores_is_one_less_agreement(rows):
    """Ties count half, so that it holds with them too."""
    labels, scores = np.array(rows, dtype=np.float64).T
    forward, backward = agreement(labels, scores).value, agreement(labels, -scores).value
    assert forward == pytest.approx(1 - backward, nan_ok=True)


@given(st.text(max_size=200))
def test_shuffled_characters_are_those_of_the_text(text):
    """Every character stays, in another order."""
    assert Counter(shuffled_tokens(text, np.random.default_rng(0))) == Counter(text)


@pytest.mark.train
def test_tokens_of_a_tokenizer_are_shuffled(planted, tmp_path):
    """The words of its vocabulary stay whole."""
    pytest.importorskip("levanter", reason="the train extra is not installed")
    from text_factory import texts as made
    from text_factory import write_tokenizer

    from marin_scaling.data.tokenizer import load_tokenizer

    write_tokenizer(tmp_path / "tokenizer")
    tokenizer = load_tokenizer(str(tmp_path / "tokenizer"))
    (text,) = made(1)
    shuffled = shuffled_tokens(text, np.random.default_rng(0), tokenizer)
    (before,), (after,) = tokenizer.encode([text]), tokenizer.encode([shuffled])
    assert shuffled != text
    assert shuffled.count(" loss") == text.count(" loss") > 0
    assert len(after) < 1.5 * len(before)
