"""What README and documentation tell the reader to type works, and prints what they say it prints.

The pages are shared among classes, because `--dist loadscope` gives each class to one process.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from code_blocks import CodeBlock, code_blocks

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(path for path in (ROOT / "site").rglob("*.md") if "generated" not in path.parts)]
BLOCKS = {page: code_blocks(page) for page in PAGES}
LONGEST = ROOT / "site" / "how-to" / "preregister-an-outside-run.md"
GUIDES = [page for page in PAGES if page.parent == LONGEST.parent and page != LONGEST]


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """A copy of the data folders, so that no block can change the repository."""
    for name in ("ladders", "runs", "preregistrations", "speedruns/tracks", "benchmarks/data", "experiments/comparisons"):
        shutil.copytree(ROOT / name, tmp_path / name)
    return tmp_path


def run(block: CodeBlock, workplace: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", block.code] if block.language == "python" else ["bash", "-euc", block.code]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "80"}
    return subprocess.run(command, cwd=workplace, env=environment, capture_output=True, text=True, check=False)


def run_page(page: Path, workplace: Path) -> None:
    if any("ssh-keygen" in block.code for block in BLOCKS[page]) and shutil.which("ssh-keygen") is None:
        pytest.skip("openssh-client is not installed")
    for block in BLOCKS[page]:
        done = run(block, workplace)
        assert done.returncode == 0, f"line {block.line}: {done.stderr}"
        if block.prints is not None:
            assert done.stdout == block.prints, f"line {block.line}"


def of_pages(pages: Iterable[Path]) -> pytest.MarkDecorator:
    """Mark the page whose command imports Levanter as one that trains."""
    marks = {"submit-your-own-model.md": [pytest.mark.train]}
    chosen = [pytest.param(page, marks=marks.get(page.name, ())) for page in pages if BLOCKS[page]]
    return pytest.mark.parametrize("page", chosen, ids=lambda page: str(page.relative_to(ROOT)))


@of_pages([page for page in PAGES if page not in GUIDES])
class TestReadmeTutorialReferenceAndTheLongestGuide:
    def test_the_blocks_of_a_page_run_and_print_what_it_says(self, page: Path, workplace: Path) -> None:
        """In their order, in a copy of the repository's data, with the installed command."""
        run_page(page, workplace)


@of_pages(GUIDES[::2])
class TestGuides:
    def test_the_blocks_of_a_page_run_and_print_what_it_says(self, page: Path, workplace: Path) -> None:
        """In their order, in a copy of the repository's data, with the installed command."""
        run_page(page, workplace)


@of_pages(GUIDES[1::2])
class TestOtherGuides:
    def test_the_blocks_of_a_page_run_and_print_what_it_says(self, page: Path, workplace: Path) -> None:
        """In their order, in a copy of the repository's data, with the installed command."""
        run_page(page, workplace)


def test_the_pages_have_blocks_that_are_run() -> None:
    """Guards against a pattern that finds nothing."""
    blocks = [block for found in BLOCKS.values() for block in found]
    assert len([block for block in blocks if block.prints]) >= 4
    assert {block.language for block in blocks} == {"python", "bash"}
