"""Commands `marin-scale preregister` and `run`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from marin_scaling.cli.fit import ALLOW, COLUMN, DROP, KEEP, SKIP, UNIT, WHERE, reading_choices
from marin_scaling.cli.verify import REGISTRY, echo_wrapped
from marin_scaling.fitting.law import DEFAULT_LAW, law_names
from marin_scaling.preregistration.layout import SIGNERS_NAME
from marin_scaling.printable import quoted

if TYPE_CHECKING:
    from marin_scaling.preregistration.register import Registration
    from marin_scaling.run.table import ReadingChoices

_LADDER = typer.Argument(None, metavar="LADDER.yaml", help="Ladder file with the target; not with --table.", show_default=False)
_TABLE = typer.Option(
    None, "--table", metavar="FILE", help="Table of runs of any trainer, for the forecast of an outside run; with --target."
)
_TARGET = typer.Option(
    None, "--target", metavar="FILE", help="YAML file that describes the outside run and where its outcome will be read."
)
_FOLDER = typer.Argument(metavar="FOLDER", help="Folder of the registry, by name or path.")
_SEAL_UNTIL = typer.Option(
    None, "--seal-until", metavar="DAY", help="Publish only a digest, and reveal the forecast by this day (YYYY-MM-DD)."
)
_KEY = typer.Option(
    None, "--key", metavar="FILE", readable=False, help="SSH private key to sign with; default: yours, or a new one."
)
_LAW = typer.Option(DEFAULT_LAW, "--law", metavar="LAW", help=f"Law to fit and sign: {', '.join(law_names())}.")


def preregister(
    ladder_path: Path | None = _LADDER,
    table: Path | None = _TABLE,
    target: Path | None = _TARGET,
    registry: Path = REGISTRY,
    key: Path | None = _KEY,
    signer: str | None = typer.Option(
        None, "--as", metavar="NAME", help="Name to sign as, in allowed_signers; default: git's user.email, else user@host."
    ),
    slug: str | None = typer.Option(
        None, "--slug", metavar="NAME", help="Folder name after the date; default: the name in the file."
    ),
    seal_until: str | None = _SEAL_UNTIL,
    law: str = _LAW,
    dry_run: bool = typer.Option(False, "--dry-run", help="Print the forecast, signer and missing declarations; sign nothing."),
    column: list[str] = COLUMN,
    unit: list[str] = UNIT,
    where: list[str] = WHERE,
    keep: list[str] = KEEP,
    drop: list[str] = DROP,
    allow: list[str] = ALLOW,
    skip_incomplete: bool = SKIP,
) -> None:
    """Forecast a run that has not begun, and sign the forecast.

    With a ladder file, the command fits the ladder's runs and registers the forecast before the target is trained. With --table
    and --target, it fits the runs of a table and registers the forecast of a run that another trainer will train.
    The options from --column on read the table as in marin-scale fit.

    With --seal-until, the forecast is signed now and revealed later with marin-scale registry reveal. A forecast that is not
    revealed in time counts as missed.

    \b
    A complete target file, without the optional keys promise and curves:
      name: hero-1e22
      params: 9.0e9            # of a sparse model, also active_params
      tokens: 1.86e11
      flops: 1.0e22            # counted as in the table
      flops_convention: 6 x parameters x tokens
      metric: nats_per_token   # or bits_per_byte, paloma_macro_loss_nats
      evaluation: Paloma, macro average over its parts
      data: web mix of October 2026
      trainer: MaxText
      schedule: WSD, decay over the last fifth
      planned_start: 2026-12-01
      outcome:
        tracker: json          # wandb, levanter, csv, megatron or maxtext
        project: lab/hero
        run: hero-1e22
        key: eval/loss         # its last value is the outcome

    Example: marin-scale preregister ladders/quickstart.yaml
    """
    from marin_scaling.preregistration.preregister import require_ladder_file

    choices = reading_choices(column, unit, where, keep, drop, allow, skip_incomplete)
    if ladder_path is None:
        files = _outside_files(table, target, seal_until=seal_until)
        _register_outside(*files, choices, registry=registry, key=key, signer=signer, slug=slug, law=law, dry_run=dry_run)
        return
    require_ladder_file(ladder_path)
    _require_no_table(table, target, choices)
    _register_target(
        ladder_path, registry=registry, key=key, signer=signer, slug=slug, seal_until=seal_until, law=law, dry_run=dry_run
    )


def _register_target(
    ladder_path: Path,
    *,
    registry: Path,
    key: Path | None,
    signer: str | None,
    slug: str | None,
    seal_until: str | None,
    law: str,
    dry_run: bool,
) -> None:
    from marin_scaling.preregistration import preregister as domain
    from marin_scaling.preregistration.register import require_signable
    from marin_scaling.preregistration.signing.keys import find_principal
    from marin_scaling.run.plan import load_ladder

    reveal_by = domain.end_of_seal(seal_until) if seal_until else None
    planned = load_ladder(ladder_path).bind()
    due = planned.ladder.file.promise.due
    if reveal_by and due and due < reveal_by.date():
        echo_wrapped(f"warning: the run is due on {due}, before the forecast is revealed on {reveal_by.date()}")
    if dry_run:
        principal = find_principal(signer)
        domain.require_registrable(planned, registry=registry, principal=principal, sealed=reveal_by is not None)
        echo_wrapped(domain.signer_text(principal, key) + "\n")
        for warning in domain.unknown_people(planned.ladder.file.promise, registry=registry, principal=principal):
            echo_wrapped(warning)
        evidence = domain.forecast_target(planned, law=law, on_message=echo_wrapped)
        file = planned.ladder.file
        require_signable(evidence, registry_dir=registry, principal=principal, slug=slug or file.name, promise=file.promise)
        option = "" if law == DEFAULT_LAW else f" --law {shlex.quote(law)}"
        echo_wrapped(f"Nothing is signed.\nNext: marin-scale preregister {shlex.quote(str(ladder_path))}{option}")
        return
    made = domain.preregister(
        planned, registry=registry, key=key, signer=signer, slug=slug, seal_until=seal_until, law=law, on_message=echo_wrapped
    )
    name, files = made.folder.name, shlex.join(map(str, (registry, planned.runs_dir, ladder_path)))
    if seal_until:
        files = f"{shlex.quote(str(registry))}  # without {planned.runs_dir} and {ladder_path}, which reveal the number"
        _print_seal(name, seal_until=seal_until)
    _print_next(made, registry=registry, files=files, then="train its run", command=f"marin-scale run {name}")


def _outside_files(table: Path | None, target: Path | None, *, seal_until: str | None) -> tuple[Path, Path]:
    """Return both files of an outside run; `UsageError` if one is missing, or the forecast is to be sealed."""
    from marin_scaling.errors import UsageError

    if table is None or target is None:
        raise UsageError(
            "Without a ladder file, both --table and --target are needed.",
            fix="Name the ladder file (marin-scale preregister ladders/NAME.yaml), or a table of runs and the run to forecast: "
            "marin-scale preregister --table runs.csv --target target.yaml",
        )
    if seal_until is not None:
        raise UsageError(
            "--seal-until is for the target of a ladder file.",
            why="The forecast of an outside run must name the run in public before it begins.",
            fix="Leave --seal-until out.",
        )
    return table, target


def _require_no_table(table: Path | None, target: Path | None, choices: ReadingChoices) -> None:
    from marin_scaling.errors import UsageError

    if table is not None or target is not None or any(choices.values()):
        raise UsageError(
            "A ladder file takes no --table, no --target, and no options that read a table.",
            why="Its runs are the records of the run store.",
            fix="Leave these options out, or the ladder file.",
        )


def _register_outside(
    table: Path,
    target: Path,
    choices: ReadingChoices,
    *,
    registry: Path,
    key: Path | None,
    signer: str | None,
    slug: str | None,
    law: str,
    dry_run: bool,
) -> None:
    from marin_scaling.preregistration import outside
    from marin_scaling.preregistration.preregister import signer_text
    from marin_scaling.preregistration.register import require_signable

    wanted = outside.read_target_file(target)
    if dry_run:
        principal = outside.registrant_of(wanted, registry=registry, signer=signer, on_message=echo_wrapped)
        echo_wrapped(signer_text(principal, key) + "\n")
        evidence = outside.forecast_outside(table, wanted, law=law, on_message=echo_wrapped, **choices)
        require_signable(evidence, registry_dir=registry, principal=principal, slug=slug or wanted.name, promise=wanted.promise)
        echo_wrapped("Nothing is signed.\nNext: the same command without --dry-run")
        return
    made = outside.preregister_table(
        table, wanted, registry=registry, key=key, signer=signer, slug=slug, law=law, on_message=echo_wrapped, **choices
    )
    signed = [table, target, *([Path(wanted.curves.path)] if wanted.curves else [])]
    files = shlex.join(map(str, (registry, *signed)))
    command = f"marin-scale outcome {made.folder.name} --log PATH"
    _print_next(made, registry=registry, files=files, then="when its run has finished, record the outcome", command=command)


def _print_seal(name: str, *, seal_until: str) -> None:
    from marin_scaling.preregistration.events.seal import SEALED_DIR

    echo_wrapped(f"{SEALED_DIR / name} is the only copy of the forecast: back it up.")
    echo_wrapped(f"Reveal the forecast by {seal_until}, or it counts as missed: marin-scale registry reveal {name}")


def _print_next(made: Registration, *, registry: Path, files: str, then: str, command: str) -> None:
    """Print how to merge a new key, how to publish the forecast with these files, and what comes `then`, by a command."""
    from marin_scaling.git import current_branch, main_branch, remote_address

    name = made.folder.name
    here, remote = current_branch(Path.cwd()), remote_address(Path.cwd())
    main = main_branch(Path.cwd()) or here or "main"
    base, branch = shlex.quote(quoted(main)), name if here in (None, main) else shlex.quote(quoted(here))
    if made.added_signer:
        merged = f"git push -u origin my-key      # open a pull request and merge it\n  git switch {base} && git pull"
        from_base = "" if branch == name else f" {base}"
        echo_wrapped(
            "This key is new, and a review trusts only merged keys.\nWhere changes are reviewed, merge the key first:\n"
            f"  git switch -c my-key{from_base} && git add {shlex.quote(str(registry / SIGNERS_NAME))}\n"
            f"  git commit -m 'Allow {made.statement.predicate['registrant']} to sign'\n"
            f"  {merged if remote else f'git switch {base} && git merge my-key'}\n  "
            + (f"git switch {branch} && git merge {base}" if from_base else f"git switch -c {name}")
        )
    echo_wrapped(f"Next: {'publish' if remote else 'commit'} the forecast, then {then}:\n  git add {files}")
    commit = f"  git commit -m 'Preregister {name}'"
    if remote:
        echo_wrapped(f"{commit} && git push\n  {command}")
        return
    review = f"  marin-scale review --base {base}\n  git switch {base} && git merge {branch}\n" if made.added_signer else ""
    echo_wrapped(f"{commit}\n{review}  {command}")
    echo_wrapped("This repository has no remote.\nOthers can confirm the forecast's time only once it is pushed or stamped.")


def run(
    which: str = _FOLDER,
    registry: Path = REGISTRY,
    where: str = typer.Option("local", "--on", metavar="PLACE", help="Where to train: local, ray, or ray:ADDRESS."),
) -> None:
    """Train the target of a preregistration, bound to it.

    The preregistration is verified first, and the run's spec contains the digest of the statement. Locally, the run uses all
    cores and GPUs; on Ray, the resources in the ladder file.

    Example: marin-scale run 2026-11-26-quickstart
    """
    from marin_scaling.preregistration.layout import is_sealed
    from marin_scaling.preregistration.preregister import train_target
    from marin_scaling.preregistration.registry import one_folder

    folder = one_folder(which, registry=registry, sealed=True)
    train_target(folder, on=where, on_message=echo_wrapped)
    echo_wrapped(f"Next: marin-scale {'registry reveal' if is_sealed(folder) else 'check'} {which}")
