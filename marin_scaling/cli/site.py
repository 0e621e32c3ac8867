"""Command `marin-scale site`: build the site of a repository, or serve it on this machine."""

from __future__ import annotations

from pathlib import Path

import typer

from marin_scaling.printable import joined

site_app = typer.Typer(help="Build or serve the site of a repository.", no_args_is_help=True, rich_markup_mode=None)


@site_app.command("build")
def build() -> None:
    """Build the site of this repository into .site/.

    The pages show ladders, forecasts, outcomes, speedruns and experiments. The site works offline, without a server.

    Example: marin-scale site build
    """
    from marin_scaling.publish.build import build_site, registry_fault

    page = build_site(Path(), on_message=typer.echo)
    if fault := registry_fault(Path()):
        typer.echo(f"warning: the registry is refused, as its page shows: {fault}", err=True)
    if unsound := _unsound_experiments():
        typer.echo(f"warning: unsound experiments: {joined(unsound)}; for details run marin-scale experiment validate")
    pages = len(list(page.parent.rglob("*.html")))
    typer.echo(f"{pages} pages. Open {page.relative_to(Path.cwd())} in a browser, or: marin-scale site serve")


def _unsound_experiments() -> list[str]:
    """Return the names of refused experiments and the places of malformed ones."""
    from marin_scaling.experiment.checks import all_findings
    from marin_scaling.experiment.experiment import EXPERIMENTS_DIR, read_experiments
    from marin_scaling.findings import Severity

    found = read_experiments(Path(EXPERIMENTS_DIR)) if Path(EXPERIMENTS_DIR).is_dir() else []
    findings = all_findings([each.experiment for each in found if each.experiment], root=Path())
    refused = [name for name, each in findings.items() if any(one.severity is Severity.ERROR for one in each)]
    return [*refused, *(each.place for each in found if each.experiment is None)]


@site_app.command("serve")
def serve(
    port: int = typer.Option(8000, "--port", min=0, max=65535, metavar="N", help="Port on this machine; 0 takes a free one."),
) -> None:
    """Build the site and serve it on this machine until Ctrl-C.

    Example: marin-scale site serve --port 8001
    """
    from marin_scaling.publish.build import build_site, serve_site

    with serve_site(build_site(Path(), on_message=typer.echo).parent, port=port) as server:
        typer.echo(f"http://127.0.0.1:{server.server_port}/ serves the site until Ctrl-C.")
        server.serve_forever()
