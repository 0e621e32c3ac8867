"""The reference pages are what the code says today, and every command shows how it is typed."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("cogapp", reason="the dev extra is not installed")

from tools.docs.cli_reference import command_helps

SITE = Path(__file__).parents[2] / "site"
REFERENCE = SITE / "reference"
HELPS = dict(command_helps())


def test_generated_parts_of_pages_are_current() -> None:
    """`cog -r` changes none of the pages that have generated parts."""
    pages = sorted(str(page) for page in SITE.glob("*/*.md") if "[[[cog" in page.read_text(encoding="utf-8"))
    done = subprocess.run([sys.executable, "-m", "cogapp", "--check", *pages], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", [name for name, text in HELPS.items() if "COMMAND [ARGS]" not in text])
def test_every_command_ends_its_help_with_an_example_of_itself(name: str) -> None:
    """The example begins with the command's own name."""
    examples = [line.strip() for line in HELPS[name].splitlines() if line.strip().startswith("Example: ")]
    assert len(examples) == 1
    assert examples[0].startswith(f"Example: {name}")


def test_every_command_is_on_the_page() -> None:
    """Groups and their commands, too."""
    page = (REFERENCE / "cli.md").read_text(encoding="utf-8")
    assert len(HELPS) >= 12
    assert all(f"## `{name}`" in page for name in HELPS)
