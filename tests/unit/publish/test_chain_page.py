"""Pages of speedup chains: measured and published stages, faults on the page, malformed files, and no machine paths."""

import json
import shutil
from pathlib import Path

import pytest

from marin_scaling.errors import DocumentError
from marin_scaling.publish.chain_page import ChainFile, chain_pages, cumulative_products, read_compared
from marin_scaling.publish.experiment_pages import experiment_pages, validate_experiments

ROOT = Path(__file__).parents[3]
MEASURED = """\
recipes:
  - {name: all, table: runs/delphi}
  - {name: "a|b <b>", table: half.csv}
also_at_flops: [1e20]
"""
PUBLISHED = """\
published:
  - {name: one, model_flops: 2, wall_clock: 1.5, source: "https://example.org/a"}
  - {name: two, model_flops: 3, source: a talk}
claims:
  - {name: headline, model_flops: 5, source: a talk}
"""


def repository(root: Path, content: str, *, name: str = "own") -> Path:
    """A repository with Delphi's runs and one chain."""
    folder = root / "experiments" / "chains" / name
    folder.mkdir(parents=True)
    shutil.copytree(ROOT / "runs" / "delphi", root / "runs" / "delphi")
    lines = (ROOT / "runs" / "delphi" / "runs.csv").read_text().splitlines(keepends=True)
    (folder / "half.csv").write_text("".join([lines[0], *lines[1::2]]))
    (folder / "chain.yaml").write_text(f"name: {name}\ntitle: A chain\n{content}")
    return root


def test_a_chain_has_a_page_with_a_figure_and_a_document(tmp_path):
    """Every stage with its interval; names are escaped; paths of this machine are on no page."""
    files = chain_pages(repository(tmp_path, MEASURED + PUBLISHED)).files
    page = files["experiments/chains/own.md"].decode()
    assert "| all -&#62; a&#124;b &#60;b&#62; | stage | model FLOPs |" in page
    assert "| 1e20 | model FLOPs |" in page
    assert "own.figures/measured-model_flops.svg" in page
    assert files["experiments/chains/own.figures/measured-model_flops.svg"].startswith(b"<svg")
    document = json.loads(files["experiments/chains/own.speedup.json"])
    assert [each["name"] for each in document["recipes"]] == ["all", "a|b <b>"]
    assert not any(str(tmp_path).encode() in content for content in files.values())


def test_published_values_are_labelled_and_multiplied_where_all_are_known(tmp_path):
    """The product in FLOPs is 6; one stage has no wall-clock time, so that there is no product of it."""
    page = chain_pages(repository(tmp_path, PUBLISHED)).files["experiments/chains/own.md"].decode()
    assert "## Published values, our arithmetic" in page
    assert "| **product** | 6.00 |  | our arithmetic |" in page
    assert "## Measured here" not in page
    assert "published-model_flops.svg" in page
    assert "published-wall_clock.svg" not in page


def test_a_chain_that_cannot_be_compared_has_the_reason_on_its_page(tmp_path):
    """A missing table and another metric are no reason to stop the site."""
    content = MEASURED.replace("half.csv", "missing.csv")
    page = chain_pages(repository(tmp_path, content)).files["experiments/chains/own.md"].decode()
    assert "experiments/chains/own/missing.csv" in page
    assert str(tmp_path) not in page


@pytest.mark.parametrize(
    "content",
    [
        "recipes: [{name: a, table: runs/delphi}]\n",
        "recipes: [{name: a, table: ../../x.csv}, {name: b, table: runs/delphi}]\n",
        "recipes: [{name: a, table: runs/../../x.csv}, {name: b, table: runs/delphi}]\n",
        PUBLISHED + "speed: 3\n",
        "published: [{name: a, model_flops: -1, source: x}]\n",
    ],
    ids=["one recipe", "a path out of the folder", "a path out of runs", "an unknown key", "a negative speedup"],
)
def test_a_malformed_chain_is_listed_and_has_no_page(tmp_path, content):
    """The index of experiments shows the reason."""
    root = repository(tmp_path, content)
    pages = chain_pages(root)
    assert (pages.files, pages.links) == ({}, [])
    assert "chain.yaml" in pages.malformed[0][1]
    assert "chain.yaml" in experiment_pages(root, linked=[])["experiments/index.md"].decode()


def test_the_index_of_experiments_links_chains(tmp_path):
    """The folder of chains is no experiment."""
    index = experiment_pages(repository(tmp_path, PUBLISHED), linked=[])["experiments/index.md"].decode()
    assert "- [A chain](chains/own.md)" in index
    assert "Malformed" not in index


def test_a_chain_is_named_after_its_folder(tmp_path):
    """Two chains cannot have one page."""
    path = repository(tmp_path, PUBLISHED) / "experiments" / "chains" / "own" / "chain.yaml"
    path.write_text(path.read_text().replace("name: own", "name: other"))
    with pytest.raises(DocumentError):
        read_compared(path, ChainFile)


def test_products_need_every_stage():
    """One unknown stage leaves no product."""
    assert cumulative_products([2.0, 3.0]) == [2.0, 6.0]
    assert cumulative_products([2.0, None]) == []


@pytest.mark.parametrize("place", ["experiments", "experiments/chains", "experiments/chains/own/chain.yaml"])
def test_a_missing_table_is_an_error_of_validation(tmp_path, place):
    """Wherever it is asked; the chain counts as read."""
    root = repository(tmp_path, MEASURED)
    assert not validate_experiments(root / place).is_refused
    (root / "experiments" / "chains" / "own" / "half.csv").unlink()
    found = validate_experiments(root / place)
    assert found.is_refused
    assert [each.where for each in found.findings["chains/own"]] == ["a|b <b>"]
    assert found.read["speedup chain"] == 1
