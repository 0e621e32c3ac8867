"""The page of a preregistration that is still sealed: who promised when to show what. No more of it is known."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from marin_scaling.check.authenticity import verify_folder
from marin_scaling.check.history import log_step
from marin_scaling.check.sealed import sealed_verdict
from marin_scaling.errors import MarinScalingError
from marin_scaling.preregistration.log import read_log
from marin_scaling.preregistration.registry import signers_path
from marin_scaling.publish.forecast_pages import ForecastPage, refused_page
from marin_scaling.publish.markdown import escape, link, page, page_name, preformatted, table, without_root


def sealed_page(root: Path, folder: Path) -> ForecastPage:
    """The page of one sealed preregistration, verified again; of one that is refused it shows the reason."""
    signers, path = signers_path(folder), f"preregistrations/{page_name(folder.name)}.md"
    try:
        steps = [*verify_folder(folder, allowed_signers=signers), log_step(folder, log=read_log(folder.parent))]
        verdict = sealed_verdict(folder, allowed_signers=signers, at=datetime.now(UTC))
    except MarinScalingError as error:
        return refused_page(folder.name, error, root=root)
    rows = [[escape(step.what), escape(without_root(step.evidence, root))] for step in steps]
    text = page(
        folder.name,
        f"**{verdict.state.capitalize()}**{escape(verdict.sentence.removeprefix(verdict.state))}.",
        "Whoever sealed it has signed a salted digest of a forecast. When it is revealed, its numbers stand here, with what "
        "shows that they are those that were sealed; if it is not revealed in time, it counts as missed.",
        f"## Is it authentic?\n\n{table(['step', 'evidence'], rows)}\n\nCheck it yourself:",
        preformatted(f"marin-scale verify {folder.name}"),
    )
    row = (link(folder.name, path), "", "", "sealed", "", "", "", verdict.state)
    return ForecastPage(files={path: text.encode()}, index_row=row, verdict=verdict)
