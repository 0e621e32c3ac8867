"""What the other half of the guides tells the reader to type works, and prints what they say it prints."""

from pathlib import Path

from pages_run import SHARES, run_page, with_blocks


@with_blocks(SHARES[2])
def test_the_blocks_of_a_page_run_and_print_what_it_says(page: Path, tmp_path: Path) -> None:
    """In their order, in a copy of the repository's data, with the installed command."""
    run_page(page, tmp_path)
