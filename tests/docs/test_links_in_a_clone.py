"""README and the pages that it links work where a code forge shows them: no dead link, no directive of the site builder."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\((?!https?://|#)([^)#\s]+)")


def links(page: Path) -> list[Path]:
    """Files and folders that a page links or shows."""
    text = re.sub(r"^```.*?^```$|<!--.*?-->|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return [(page.parent / target).resolve() for target in LINK.findall(text)]


PAGES = [ROOT / "README.md", *(page for page in dict.fromkeys(links(ROOT / "README.md")) if page.suffix == ".md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_is_in_the_repository(page: Path) -> None:
    """Generated pages are not: git ignores them."""
    missing = [str(target) for target in links(page) if not target.exists() or "generated" in target.parts]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_includes_another_file(page: Path) -> None:
    """A forge would show the directive itself."""
    assert "--8<--" not in page.read_text(encoding="utf-8")


def test_readme_links_the_documentation() -> None:
    """Guards against a pattern that finds nothing."""
    assert len(PAGES) >= 15
