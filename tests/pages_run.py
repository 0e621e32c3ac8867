"""Run the code blocks of README and documentation, and compare what they print with what the page shows.

Three modules of `tests/docs` share the pages, so that several processes can: a module stays in one process.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from code_blocks import CodeBlock, code_blocks

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(path for path in (ROOT / "site").rglob("*.md") if "generated" not in path.parts)]
BLOCKS = {page: code_blocks(page) for page in PAGES}
_HOW_TO = ROOT / "site" / "how-to"
_LONGEST = _HOW_TO / "preregister-an-outside-run.md"
_GUIDES = [page for page in PAGES if page.parent == _HOW_TO and page != _LONGEST]
SHARES = ([_LONGEST, *(page for page in PAGES if page.parent != _HOW_TO)], _GUIDES[::2], _GUIDES[1::2])
"""All pages, in shares of about the same length."""


def make_workplace(folder: Path) -> None:
    """Copy the data folders, so that no block can change the repository."""
    for name in ("ladders", "runs", "preregistrations", "speedruns/tracks", "benchmarks/data", "experiments/comparisons"):
        shutil.copytree(ROOT / name, folder / name)


def run(block: CodeBlock, workplace: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", block.code] if block.language == "python" else ["bash", "-euc", block.code]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "80"}
    return subprocess.run(command, cwd=workplace, env=environment, capture_output=True, text=True, check=False)


def with_blocks(pages: Iterable[Path]) -> pytest.MarkDecorator:
    """Return the parameter `page`: each of the pages that has blocks."""
    return pytest.mark.parametrize(
        "page", [page for page in pages if BLOCKS[page]], ids=lambda page: str(page.relative_to(ROOT))
    )


def run_page(page: Path, workplace: Path) -> None:
    """Run all blocks of a page in their order, in a copy of the repository's data, with the installed command."""
    if any("ssh-keygen" in block.code for block in BLOCKS[page]) and shutil.which("ssh-keygen") is None:
        pytest.skip("openssh-client is not installed")
    make_workplace(workplace)
    for block in BLOCKS[page]:
        done = run(block, workplace)
        assert done.returncode == 0, f"line {block.line}: {done.stderr}"
        if block.prints is not None:
            assert done.stdout == block.prints, f"line {block.line}"
