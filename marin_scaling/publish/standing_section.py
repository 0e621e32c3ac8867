"""How a forecast's run stands while it is under way, by its curve on the machine that builds the site, beside what was signed.

From its training loss so far and the finished runs of its ladder, as `marin-scale track` says it. Nothing where the run has not
begun, or is over, or where its curve is not on this machine: nothing is fetched.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from marin_scaling.errors import MarinScalingError
from marin_scaling.forecast.tracking import EarlierForecast, finished_curves, track_losses
from marin_scaling.forecast.tracking_document import tracked_text
from marin_scaling.preregistration.binding import answering_spec
from marin_scaling.publish.markdown import preformatted, without_root
from marin_scaling.regular_files import WORK_FOLDER
from marin_scaling.run.curve_files import losses_so_far, shares_so_far
from marin_scaling.run.run_store import is_finished, read_runs
from marin_scaling.run.workplace import Workplace

_WORDS = (
    "As it stood when this page was made, on the machine that made it; what is said of its end is no forecast that was signed."
)


def standing_section(root: Path, folder: Path, *, signed: Mapping[float, float]) -> str:
    """The section of the forecast in `folder`, whose quantiles are `signed`; empty where its run is not under way here."""
    place = Workplace(runs_dir=root / "runs", work_root=root / WORK_FOLDER, storage=None)
    spec = answering_spec(folder)
    losses = [] if is_finished(place.runs_dir, spec) else losses_so_far(spec, place)
    if not losses:
        return ""
    try:
        curves = finished_curves(read_runs(place.runs_dir / spec.ladder), without=spec.digest)
        found = track_losses(
            losses,
            spec,
            curves,
            forecast=EarlierForecast(quantiles=dict(signed), by=f"signed: {folder.name}"),
            expert_shares=shares_so_far(spec, place),
        )
        said = tracked_text(found)
    except MarinScalingError as error:
        said = without_root(str(error), root)
    return f"## The run so far\n\n{_WORDS}\n\n{preformatted(said)}"
