"""What README and documentation tell the reader to type works, and prints what they say it prints."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from code_blocks import CodeBlock, code_blocks

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(path for path in (ROOT / "site").rglob("*.md") if "generated" not in path.parts)]
BLOCKS = [block for page in PAGES for block in code_blocks(page)]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the data folders, so that no block can change the repository."""
    folder = tmp_path_factory.mktemp("reader")
    for name in ("ladders", "runs", "preregistrations"):
        shutil.copytree(ROOT / name, folder / name)
    return folder


def run(block: CodeBlock, workplace: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", block.code] if block.language == "python" else ["bash", "-euc", block.code]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(command, cwd=workplace, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block.page.relative_to(ROOT)}:{block.line}")
def test_a_block_runs_and_prints_what_the_page_says(block: CodeBlock, workplace: Path) -> None:
    """In a copy of the repository's data, with the installed command."""
    if "ssh-keygen" in block.code and shutil.which("ssh-keygen") is None:
        pytest.skip("openssh-client is not installed")
    done = run(block, workplace)
    assert done.returncode == 0, done.stderr
    if block.prints is not None:
        assert done.stdout == block.prints


def test_the_pages_have_blocks_that_are_run() -> None:
    """Guards against a pattern that finds nothing."""
    assert len([block for block in BLOCKS if block.prints]) >= 4
    assert {block.language for block in BLOCKS} == {"python", "bash"}
