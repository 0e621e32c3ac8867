"""The reference of the Python interface: signatures, fields with their meaning, examples as code, nothing private."""

import sys
import types
from pathlib import Path

import pytest

from tools.docs.python_reference import module_reference

SOURCE = '''"""What the module is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Run:
    """A run.

    >>> Run(1.0).double
    2.0
    """

    loss: float | None
    """In nats."""

    @property
    def double(self) -> float:
        """Twice the loss."""
        return 2 * self.loss

    def named(self, *names: str, kept: bool = True) -> str:
        """Its name."""

    def _hidden(self) -> None:
        """Not shown."""


def load(
    path: Path | str, *, law: str = "coupled", budgets_flops: tuple[float, ...] = (), keep_every_one_of_them: bool = False
) -> Run:
    """Reads."""


def _private() -> None:
    """Not shown."""
'''


@pytest.fixture
def reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of a module with one class and one function."""
    (tmp_path / "documented_module.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    yield module_reference("documented_module")
    sys.modules.pop("documented_module", types.ModuleType("none"))


def test_a_class_is_shown_with_its_fields_and_members(reference: str) -> None:
    """A sign that would end a cell is a word in types; examples stand in blocks of code."""
    assert reference.startswith("## documented_module\n\nWhat the module is.\n\n### Run\n\nA run.\n\n")
    assert "```pycon\n>>> Run(1.0).double\n2.0\n```" in reference
    assert "| field | type | meaning |\n| --- | --- | --- |\n| `loss` | `float or None` | In nats. |" in reference
    assert "`Run.double`: Twice the loss." in reference
    assert "```py\nRun.named(*names: str, kept: bool = True) -> str\n```" in reference


def test_a_long_signature_stands_on_lines_of_its_own(reference: str) -> None:
    """A line for each argument, with its default as it is typed."""
    signature = reference[reference.index("### load") :]
    assert "load(\n    path: Path | str,\n    *,\n    law: str = 'coupled',\n" in signature
    assert "    keep_every_one_of_them: bool = False,\n) -> Run\n```" in signature


def test_what_is_private_or_imported_is_not_shown(reference: str) -> None:
    """Only what the module itself defines for others."""
    assert "private" not in reference
    assert "_hidden" not in reference
    assert "### Path" not in reference
