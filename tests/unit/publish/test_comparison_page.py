"""Pages of compared texts: verdicts and figure, faults on the page, malformed files, and no machine paths."""

import json
from pathlib import Path

import pandas as pd
import pytest

from marin_scaling.publish.chain_page import chain_pages
from marin_scaling.publish.experiment_pages import experiment_pages

COMPARISON = """\
base: {name: web, table: base.csv}
texts:
  - {name: "a|b <b>", table: better.csv}
controls:
  - {name: random, table: equal.csv}
"""
PAGE = "experiments/comparisons/own.md"


def repository(root: Path, content: str = COMPARISON) -> Path:
    """A repository with one comparison of three tables of runs."""
    folder = root / "experiments" / "comparisons" / "own"
    folder.mkdir(parents=True)
    rows = [(1e15 * size, 1e5 * size, 1e9, seed, 3 - 0.1 * size + 0.001 * seed) for size in (1, 2, 4) for seed in range(3)]
    base = pd.DataFrame(rows, columns=["flops", "params", "tokens", "seed", "loss"])
    base.to_csv(folder / "base.csv", index=False)
    base.assign(loss=base["loss"] * (0.98 + 0.001 * base["seed"])).to_csv(folder / "better.csv", index=False)
    base.assign(loss=base["loss"] * (1 + 0.001 * (base["seed"] - 1))).to_csv(folder / "equal.csv", index=False)
    (folder / "comparison.yaml").write_text(f"name: own\ntitle: Two texts\n{content}")
    return root


def test_a_comparison_has_a_page_with_a_figure_and_a_document(tmp_path):
    """Names are those of the file and escaped; paths of this machine are on no page."""
    files = chain_pages(repository(tmp_path)).files
    page = files[PAGE].decode()
    assert "| a&#124;b &#60;b&#62; |  | 9 |" in page
    assert files["experiments/comparisons/own.figures/differences.svg"].startswith(b"<svg")
    document = json.loads(files["experiments/comparisons/own.comparison.json"])
    assert [(each["name"], each["verdict"]) for each in document["texts"]] == [("a|b <b>", "better"), ("random", "not worse")]
    assert not any(str(tmp_path).encode() in content for content in files.values())


def test_texts_that_cannot_be_compared_have_the_reason_on_the_page(tmp_path):
    """A missing table is no reason to stop the site."""
    page = chain_pages(repository(tmp_path, COMPARISON.replace("better.csv", "missing.csv"))).files[PAGE].decode()
    assert "experiments/comparisons/own/missing.csv" in page
    assert str(tmp_path) not in page


@pytest.mark.parametrize(
    "content",
    [
        "base: {name: a, table: runs/a}\ntexts: []\n",
        "base: {name: a, table: runs/a}\ntexts: [{name: a, table: runs/b}]\n",
        COMPARISON.replace("better.csv", "../../x.csv"),
        COMPARISON + "margin: 2\n",
        COMPARISON + "speed: 3\n",
    ],
    ids=["no text", "two of one name", "a path out of the folder", "a margin out of range", "an unknown key"],
)
def test_a_malformed_comparison_is_listed_and_has_no_page(tmp_path, content):
    """The index of experiments shows the reason."""
    pages = chain_pages(repository(tmp_path, content))
    assert (pages.files, pages.comparisons) == ({}, [])
    assert "comparison.yaml" in pages.malformed[0][1]
    assert "comparison.yaml" in experiment_pages(tmp_path, linked=[])["experiments/index.md"].decode()


def test_the_index_of_experiments_links_comparisons(tmp_path):
    """The folder of comparisons is no experiment."""
    index = experiment_pages(repository(tmp_path), linked=[])["experiments/index.md"].decode()
    assert "- [Two texts](comparisons/own.md)" in index
    assert "Malformed" not in index
