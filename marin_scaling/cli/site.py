"""`marin-scale site`: build the pages of a repository, or build and show them on this machine."""

from __future__ import annotations

from pathlib import Path

import typer

from marin_scaling.printable import joined

site_app = typer.Typer(help="Build the site of a repository, or show it here.", no_args_is_help=True, rich_markup_mode=None)


@site_app.command("build")
def build() -> None:
    """Write the pages of this repository's ladders, forecasts and outcomes, and build the site into .site/.

    The site works from its folder, without a server and without network.

    Example: marin-scale site build
    """
    from marin_scaling.publish.build import build_site, registry_fault

    page = build_site(Path())
    if fault := registry_fault(Path()):
        typer.echo(f"warning: the registry is refused, and its page says so: {fault}", err=True)
    if unsound := _unsound_experiments():
        typer.echo(f"unsound experiments: {joined(unsound)}. What is wrong: marin-scale experiment validate")
    pages = len(list(page.parent.rglob("*.html")))
    typer.echo(f"{pages} pages. Open {page.relative_to(Path.cwd())} in a browser, or: marin-scale site serve")


def _unsound_experiments() -> list[str]:
    """Names of those that are refused, and where malformed ones lie: whoever builds pages that say so should know it."""
    from marin_scaling.experiment.checks import all_findings
    from marin_scaling.experiment.experiment import EXPERIMENTS_DIR, read_experiments
    from marin_scaling.findings import Severity

    found = read_experiments(Path(EXPERIMENTS_DIR)) if Path(EXPERIMENTS_DIR).is_dir() else []
    findings = all_findings([each.experiment for each in found if each.experiment], root=Path())
    refused = [name for name, each in findings.items() if any(one.severity is Severity.ERROR for one in each)]
    return [*refused, *(each.place for each in found if each.experiment is None)]


@site_app.command("serve")
def serve(port: int = typer.Option(8000, "--port", min=0, max=65535, help="Port on this machine; 0 takes a free one.")) -> None:
    """Build the site and show it on this machine until Ctrl-C.

    Example: marin-scale site serve --port 8001
    """
    from marin_scaling.publish.build import build_site, serve_site

    with serve_site(build_site(Path()).parent, port=port) as server:
        typer.echo(f"http://127.0.0.1:{server.server_port}/ shows the site; Ctrl-C ends it.")
        server.serve_forever()
