"""Mixes of corpora: which windows a run reads, in which proportion, and how often."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from run_factory import rung_spec
from text_factory import data, texts, write_jsonl

from marin_scaling.data.corpus import PartWindows, TokenCorpus, mixed_window_starts
from marin_scaling.data.prepare import prepare, prepared
from marin_scaling.ladder.config import Data, MixPhase
from marin_scaling.run.spec import DataSpec, NamedTokens, RunSpec

LENGTH = 10
SIZES = {"web": 700, "code": 300, "books": 50}  # windows


def parts(read: dict[str, int] | None = None) -> dict[str, PartWindows]:
    first, found = 0, {}
    for name, windows in SIZES.items():
        found[name] = PartWindows(first_token=first, windows=windows, read=(read or SIZES)[name])
        first += windows * LENGTH
    return found


def part_of(starts: np.ndarray) -> list[str]:
    ends = np.cumsum(list(SIZES.values())) * LENGTH
    return [list(SIZES)[int(np.searchsorted(ends, start, side="right"))] for start in starts]


weights = st.lists(st.integers(0, 20), min_size=3, max_size=3).filter(any)


@given(weights, st.integers(1, 900), st.integers(0, 2**64 - 1))
def test_every_prefix_has_each_part_in_proportion(numbers: list[int], windows: int, seed: int) -> None:
    """To within a window for each other part; a longer run begins with the windows of a shorter one."""
    mix = {name: number / sum(numbers) for name, number in zip(SIZES, numbers, strict=True)}
    longer = mixed_window_starts(parts(), [(1000, mix)], seq_len=LENGTH, seed=seed)
    starts = mixed_window_starts(parts(), [(windows, mix)], seq_len=LENGTH, seed=seed)
    assert np.array_equal(starts, longer[:windows])
    counts = Counter(part_of(starts))
    assert all(abs(counts[name] - weight * windows) <= len(SIZES) - 1 for name, weight in mix.items())


@given(weights, st.integers(0, 2**64 - 1))
def test_each_pass_over_a_part_has_all_of_its_windows_once(numbers: list[int], seed: int) -> None:
    """However many passes other parts make."""
    mix = {name: number / sum(numbers) for name, number in zip(SIZES, numbers, strict=True)}
    starts = mixed_window_starts(parts(), [(2000, mix)], seq_len=LENGTH, seed=seed)
    for name, windows in SIZES.items():
        own = [start for start, part in zip(starts.tolist(), part_of(starts), strict=True) if part == name]
        for first in range(0, len(own) - windows + 1, windows):
            assert len(set(own[first : first + windows])) == windows
        assert all(start % LENGTH == 0 for start in own)


@given(st.integers(1, 99), st.integers(0, 2**32))
def test_the_order_of_a_part_does_not_depend_on_the_mix(percent: int, seed: int) -> None:
    """So that two mixes differ in how much they read of it, not in what they read first."""
    share = percent / 100
    one = mixed_window_starts(parts(), [(300, {"web": share, "code": 1 - share})], seq_len=LENGTH, seed=seed)
    other = mixed_window_starts(parts(), [(300, {"web": 0.5, "books": 0.5})], seq_len=LENGTH, seed=seed)
    of_web = [
        [start for start, part in zip(starts.tolist(), part_of(starts), strict=True) if part == "web"]
        for starts in (one, other)
    ]
    shorter = min(map(len, of_web))
    assert of_web[0][:shorter] == of_web[1][:shorter]


def test_phases_follow_each_other_and_continue_the_pass_of_a_part() -> None:
    """A part of both phases is not begun again in the second."""
    phases = [(400, {"web": 1.0}), (100, {"web": 0.5, "code": 0.5})]
    starts = mixed_window_starts(parts(), phases, seq_len=LENGTH, seed=3)
    assert Counter(part_of(starts[:400])) == {"web": 400}
    assert Counter(part_of(starts[400:])) == {"web": 50, "code": 50}
    assert len(set(starts.tolist())) == 500


def mixed_spec(*, horizon: int | None = None, steps: int = 20, **mix: float) -> RunSpec:
    spec = rung_spec(train_steps=steps)
    sizes = {"web": 80_000, "code": 640}
    named = {name: NamedTokens(tokens=tokens, bytes=tokens, digest="0" * 64) for name, tokens in sizes.items()}
    text = DataSpec(source="mine", digest="0" * 64, train_bytes=80_640, validation_bytes=1_000, parts=named)
    return spec.model_copy(update={"data": text, "mix": (MixPhase(mix=mix),), "horizon_tokens": horizon})


def test_all_runs_of_a_ladder_repeat_a_part_as_often_as_a_run_at_the_horizon() -> None:
    """A run reads so much less of the part as it is shorter; tokens that all runs repeat do not count as repeated."""
    at_horizon = mixed_spec(steps=100, web=0.9, code=0.1)
    passes = {each.name: each.passes for each in at_horizon.exposures}
    for steps in (25, 50, 100):
        run = mixed_spec(horizon=at_horizon.trained_tokens, steps=steps, web=0.9, code=0.1)
        assert {each.name: each.passes for each in run.exposures} == pytest.approx(passes, rel=0.1)
        read = {each.name: each.read for each in run.exposures}
        different = len(set(run.window_starts().tolist()))
        assert different == sum(min(each.read, round(each.passes * each.read)) for each in run.exposures)
        assert read["code"] <= 640 // run.model.seq_len
        assert run.unique_tokens is None
        assert run.times_seen == 1


def test_a_run_that_repeats_a_part_counts_its_different_tokens() -> None:
    """Those of the windows that it reads; a run that repeats none has no such number."""
    run = mixed_spec(steps=100, web=0.9, code=0.1)
    assert run.unique_tokens is not None
    different = len(set(run.window_starts().tolist())) * run.model.seq_len
    assert run.unique_tokens == pytest.approx(different, rel=0.01)
    assert run.times_seen == pytest.approx(run.trained_tokens / different, rel=0.01)
    assert mixed_spec(steps=2, web=0.9, code=0.1).unique_tokens is None


def test_another_mix_is_another_run() -> None:
    """And so is another horizon."""
    runs = [mixed_spec(web=0.9, code=0.1), mixed_spec(web=0.8, code=0.2), mixed_spec(horizon=10**6, web=0.9, code=0.1)]
    assert len({run.digest for run in runs}) == len({run.trunk_digest for run in runs}) == 3


@pytest.fixture
def corpora(tmp_path: Path) -> dict[str, dict[str, str]]:
    write_jsonl(tmp_path / "web.jsonl", texts(300))
    write_jsonl(tmp_path / "code.jsonl", texts(100, start=1_000))
    return {name: {"files": str(tmp_path / f"{name}.jsonl")} for name in ("web", "code")}


def mixed(corpora: dict[str, dict[str, str]], **changes: object) -> Data:
    return data(**({"train": None, "corpora": corpora, "mix": {"web": 0.9, "code": 0.1}, "held_out": 0.1} | changes))


def test_the_parts_follow_each_other_and_each_is_held_out_under_its_name(
    tmp_path: Path, corpora: dict[str, dict[str, str]]
) -> None:
    """No document is in training and held out; the parts' tokens are all training tokens."""
    corpus = prepare(mixed(corpora), work_root=tmp_path / "work")
    assert list(corpus.parts) == ["web", "code"]
    assert set(corpus.validation) == {"web", "code"}
    first = 0
    for name, start in (("web", 0), ("code", 1_000)):
        tokens = corpus.parts[name].tokens
        trained, held_out = (row.tobytes().decode() for row in (corpus.train[first : first + tokens], corpus.validation[name]))
        own = texts(300 if name == "web" else 100, start=start)
        assert all((f"{text}\n" in trained) != (f"{text}\n" in held_out) for text in own)
        assert len(trained) + len(held_out) == sum(len(text) + 1 for text in own)
        first += tokens
    assert first == len(corpus.train)


def test_another_mix_of_the_same_corpora_needs_no_new_tokens(tmp_path: Path, corpora: dict[str, dict[str, str]]) -> None:
    """Its weights choose windows; the tokens are the same."""
    corpus: TokenCorpus = prepare(mixed(corpora), work_root=tmp_path / "work")
    found = prepared(mixed(corpora, mix={"web": 0.5, "code": 0.5}), work_root=tmp_path / "work")
    assert found is not None
    assert found.digest == corpus.digest


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"mix": {"web": 0.9, "code": 0.2}}, ("0.9 + 0.2", "1.1")),
        ({"mix": {"web": 0.9, "math": 0.1}}, ("math", "web, code")),
        ({"mix": None}, ("mix", "phases")),
        ({"phases": ({"mix": {"web": 1.0}},)}, ("mix", "phases")),
        ({"mix": None, "phases": ({"mix": {"web": 1.0}, "until": 0.8},)}, ("0.8",)),
        ({"mix": None, "phases": ({"mix": {"web": 1.0}, "until": 0.8}, {"mix": {"code": 1.0}, "until": 0.5})}, ("0.8, 0.5",)),
        ({"train": {"files": "a.jsonl"}}, ("train", "corpora")),
        ({"mix": {"web": 1.5, "code": -0.5}}, ("less than or equal to 1", "greater than or equal to 0")),
    ],
)
def test_a_mix_that_is_none_is_refused(
    corpora: dict[str, dict[str, str]], changes: dict[str, object], facts: tuple[str, ...]
) -> None:
    """With the numbers that do not fit."""
    with pytest.raises(ValidationError) as error:
        mixed(corpora, **changes)
    assert all(fact in str(error.value) for fact in facts)
