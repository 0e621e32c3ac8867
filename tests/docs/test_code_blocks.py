"""What README, explanations and references tell the reader to type works, and so does the longest guide."""

from pathlib import Path

from pages_run import BLOCKS, PAGES, SHARES, run_page, with_blocks


@with_blocks(SHARES[0])
def test_the_blocks_of_a_page_run_and_print_what_it_says(page: Path, tmp_path: Path) -> None:
    """In their order, in a copy of the repository's data, with the installed command."""
    run_page(page, tmp_path)


def test_the_pages_have_blocks_that_are_run() -> None:
    """Guards against a pattern that finds nothing, and against a page that no module runs."""
    blocks = [block for found in BLOCKS.values() for block in found]
    assert len([block for block in blocks if block.prints]) >= 4
    assert {block.language for block in blocks} == {"python", "bash"}
    assert sorted(page for share in SHARES for page in share) == sorted(PAGES)
