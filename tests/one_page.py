"""One generated page alone: of a forecast, of a ladder, or the index of forecasts, without the figures of all others."""

from __future__ import annotations

from pathlib import Path

from marin_scaling.preregistration.registry import registration_folders
from marin_scaling.publish.forecast_index import forecasts_index
from marin_scaling.publish.forecast_page import forecast_page
from marin_scaling.publish.ladder_page import ladder_page


def page(root: Path, name: str) -> str:
    """Text of `index.md`, `preregistrations/NAME.md` or `ladders/NAME.md`, as `generated_pages` makes it."""
    root, place, stem = root.resolve(), Path(name).parent.name, Path(name).stem
    if name == "index.md":
        return forecasts_index([forecast_page(root, each) for each in _folders(root)], root=root)[name].decode()
    if place == "preregistrations":
        return forecast_page(root, root / place / stem).files[name].decode()
    promised = [each for folder in _folders(root) if (each := forecast_page(root, folder).promised) and each.ladder == stem]
    return ladder_page(root, stem, promised=promised).files[name].decode()


def _folders(root: Path) -> list[Path]:
    return list(registration_folders(root / "preregistrations"))
