"""A model card says what a run's own files say: front matter that the hub reads, and nothing that was not recorded."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from own_registrations import answering_run, registered

from marin_scaling.preregistration.registry import read_registration
from marin_scaling.publish.export import CardSource, CarriedTokenizer, model_card, read_forecast
from marin_scaling.run.spec import NamedTokens, TokenizerSpec
from marin_scaling.run.store import StoredRun, read_runs

ROOT = Path(__file__).parents[3]
BYTES = CarriedTokenizer(spec=None, folder=None)


@pytest.fixture(scope="module")
def runs() -> list[StoredRun]:
    return read_runs(ROOT / "runs" / "bytes-dense")


@pytest.fixture(scope="module")
def folder() -> Path:
    return registered("bytes-dense")


@pytest.fixture(scope="module")
def target(folder: Path) -> StoredRun:
    return answering_run(folder)


def test_the_card_of_a_target_has_its_loss_its_forecast_and_the_digests(folder: Path, target: StoredRun) -> None:
    """Each as it stands in record, statement and outcome."""
    card = model_card(target, tokenizer=BYTES, forecast=read_forecast(folder, target.spec))
    record, quantiles = target.record, read_registration(folder).quantiles
    outcome = json.loads((folder / "outcome.json").read_bytes())
    digests = (target.spec.digest, record.history_sha256, record.statement_sha256, target.spec.data.digest, record.git_commit)
    assert all(f"`{digest}`" in card for digest in digests)
    for words in (
        f"| preregistration | {folder.name}, in `preregistrations/{folder.name}` |",
        f"| forecast | {quantiles[0.5]:.4f} bits/byte |",
        f"| 90 % interval | {quantiles[0.05]:.4f} to {quantiles[0.95]:.4f} |",
        f"**{outcome['verdict']}**: {record.loss:.4f} was observed, error {outcome['scores']['signed_error']:+.4f}",
        f"| record | `runs/bytes-dense/{target.folder.name}` |",
        f"{record.params_total:,}, {record.params_non_embedding:,} without embedding and head",
        "each byte of a text in UTF-8 is a token",
    ):
        assert words in card


def test_what_is_in_the_repository_is_linked_where_that_has_a_page(folder: Path, target: StoredRun) -> None:
    """Record, preregistration and ladder file; without an address they are paths."""
    source = CardSource(address="https://example.org/lab/forecasts", ladder_sha256="c" * 64)
    card = model_card(target, tokenizer=BYTES, forecast=read_forecast(folder, target.spec), source=source)
    for path in (
        f"runs/bytes-dense/{target.folder.name}",
        f"preregistrations/{folder.name}",
        "ladders/bytes-dense.yaml",
    ):
        assert f"(<https://example.org/lab/forecasts/tree/HEAD/{path}>)" in card
    assert f"SHA-256 `{'c' * 64}`" in card


def test_of_named_sets_it_says_how_many_windows_each_had(target: StoredRun) -> None:
    """A set with fewer than were wanted is evaluated whole, and the card does not claim more."""
    sets = {
        name: NamedTokens(tokens=tokens, bytes=4 * tokens, digest="d" * 64)
        for name, tokens in (("one", 58_706), ("two", 10**6))
    }
    data = target.spec.data.model_copy(update={"held_out": sets})
    spec = target.spec.model_copy(update={"data": data})
    assert spec.evaluated_windows == {"one": 458, "two": 1024}
    card = model_card(replace(target, spec=spec), tokenizer=BYTES, forecast=None)
    assert "458 windows of one and 1024 windows of two, each of 128 tokens" in card


def test_the_hub_reads_the_front_matter(target: StoredRun) -> None:
    """A measured loss to the last digit; no license, which is for the one who publishes to choose."""
    card = model_card(target, tokenizer=BYTES, forecast=None)
    front = yaml.safe_load(card.split("---")[1])
    (result,) = front["model-index"][0]["results"]
    assert result["metrics"][0]["value"] == target.record.loss
    assert "preregistered" in front["tags"]
    assert "license" not in front
    hub = pytest.importorskip("huggingface_hub", reason="the train extra is not installed")
    data = hub.ModelCard(card).data
    assert data.eval_results[0].metric_value == target.record.loss
    assert data.library_name == "transformers"
    assert "load_exported" not in card


def test_the_card_of_a_mixture_shows_our_loader() -> None:
    """A dense model is loaded by `transformers`; experts and active parameters are those of the run."""
    folder = registered("bytes-moe")
    run = answering_run(folder)
    card = model_card(run, tokenizer=BYTES, forecast=None)
    assert "ms.load_exported(" in card
    assert "from transformers import" not in card
    assert f"{run.record.params_active:,} per token" in card
    assert yaml.safe_load(card.split("---")[1])["library_name"] == "marin-scaling"


def test_what_is_not_there_is_said_to_be_so(folder: Path, target: StoredRun, runs: list[StoredRun]) -> None:
    """A forecast that is not checked yet, a preregistration that is elsewhere, a tokenizer without its files."""
    signed = read_forecast(folder, target.spec)
    assert "| outcome | not checked yet |" in model_card(target, tokenizer=BYTES, forecast=replace(signed, outcome=None))
    assert "was not in the repository" in model_card(target, tokenizer=BYTES, forecast=None)
    tokenizer = CarriedTokenizer(spec=TokenizerSpec(name="somebody/words", digest="a" * 64, size=512), folder=None)
    rung = model_card(next(run for run in runs if run.spec.role == "rung"), tokenizer=tokenizer, forecast=None)
    assert "somebody/words (512 kinds" in rung
    assert "Its files are not here." in rung
    assert "forecast" not in rung.split("## Measured")[1]
