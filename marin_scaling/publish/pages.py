"""Every generated page of a repository's site, as Markdown with figures beside it, before mkdocs sees them.

The same files give the same bytes. Only `site/generated/` is written; nothing there is written by hand.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from marin_scaling.durable_files import replace_file
from marin_scaling.preregistration.registry import registration_folders
from marin_scaling.preregistration.seal import is_sealed
from marin_scaling.publish.board_pages import read_speedruns, speedrun_pages
from marin_scaling.publish.experiment_pages import experiment_pages
from marin_scaling.publish.feed import FEED_NAME, feed
from marin_scaling.publish.figures import PLOTTER_NAME, plotter
from marin_scaling.publish.forecast_index import forecasts_index
from marin_scaling.publish.forecast_pages import forecast_page
from marin_scaling.publish.ladder_pages import ladder_names, ladder_page, ladders_index
from marin_scaling.publish.law_section import PROGRAM_NAME, law_program
from marin_scaling.publish.sealed_page import sealed_page

GENERATED = Path("site/generated")


def generated_pages(root: Path) -> dict[str, bytes]:
    """Every generated file by its path below `site/generated/`; none says where on this machine the repository lies."""
    root = root.resolve()
    forecasts = [
        sealed_page(root, folder) if is_sealed(folder) else forecast_page(root, folder)
        for folder in registration_folders(root / "preregistrations")
    ]
    promised = [each.promised for each in forecasts if each.promised]
    ladders = [
        ladder_page(root, name, promised=[each for each in promised if each.ladder == name]) for name in ladder_names(root)
    ]
    files = {**forecasts_index(forecasts, root=root), "ladders/index.md": ladders_index(ladders)}
    files[f"ladders/{PROGRAM_NAME}"] = law_program()
    for each in [*ladders, *forecasts]:
        files.update(each.files)
    speedruns = read_speedruns(root)
    verdicts = [each.verdict for each in forecasts]
    files[FEED_NAME] = feed(root, verdicts=verdicts, boards=speedruns.boards, pages=speedruns.pages)
    files |= speedrun_pages(speedruns, root=root)
    if any(name.endswith("/interactive.html") for name in files):
        files[PLOTTER_NAME] = plotter()
    return files | experiment_pages(root, linked=files.keys())


def write_generated_pages(root: Path) -> list[Path]:
    """Write them in place of those of an earlier time; returns their paths."""
    files = generated_pages(root)
    shutil.rmtree(root / GENERATED, ignore_errors=True)
    for name, content in files.items():
        replace_file(root / GENERATED / name, content)
    return [root / GENERATED / name for name in files]
