"""Commands `marin-scale import`, `table`, `export`, `track`, `data filter` and `data compare`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import typer

from marin_scaling.cli.fit import COLUMN, DROP, SKIP, TABLE, WHERE, chosen_columns, chosen_rows
from marin_scaling.cli.verify import REGISTRY, echo_wrapped
from marin_scaling.units import counted

_PLACES = typer.Argument(metavar="PLACE...", help="Files or folders of trackers, or wandb:ENTITY/PROJECT.")
_OUT = typer.Option(metavar="TABLE", help="Table to write: .csv, .parquet or .jsonl.")
_COLUMN = typer.Option([], "--column", metavar="NAME=KEY", help="Map a key, as in loss=eval/loss, or compute it: flops=6ND.")


def import_tables(places: list[str] = _PLACES, out: Path = _OUT, column: list[str] = _COLUMN) -> None:
    """Make a table of runs from the files of trackers.

    Supported are W&B's projects, offline files and exported tables, Levanter's logs and JSON files, histories and JSON
    results. Runs without a required number are skipped and named.

    Example: marin-scale import wandb:my-team/my-ladder --out runs.csv
    """
    from marin_scaling.printable import wrapped
    from marin_scaling.run.import_runs import import_runs
    from marin_scaling.run.table_io import write_table_file
    from marin_scaling.run.trackers import links_among, read_tracked_runs

    for place in links_among(places):
        typer.echo(f"skipped {place}: a link into another given place")
    keys = chosen_columns(column)
    found = import_runs(read_tracked_runs(*places, run_column=keys.get("run", "")), keys=keys)
    write_table_file(out, found.rows)
    for line in found.skipped:
        typer.echo(wrapped(f"skipped {line}"))
    for note in found.notes:
        typer.echo(wrapped(f"note: {note}"))
    typer.echo(f"{counted(len(found.rows), 'run')} in {out}; the loss is {found.loss_key}.\nNext: marin-scale fit {out}")


_TO = typer.Option(metavar="PLACE", help="File (.parquet, .csv or .jsonl), or wandb:PROJECT.")


def write_table(table: Path = TABLE, to: str = _TO) -> None:
    """Write a ladder's runs as one table.

    The target is a file, which marin-scale fit reads, or a table in a W&B project. All runs are included, also diverged
    ones, with their source.

    Example: marin-scale table runs/quickstart --to runs.parquet
    """
    from marin_scaling.run.table import log_to_wandb, rows_of
    from marin_scaling.run.table_io import write_table_file
    from marin_scaling.run.trackers import ONLINE

    rows = rows_of(table)
    if to.startswith(ONLINE):
        seen = log_to_wandb(rows, project=to.removeprefix(ONLINE), name=table.stem, source=str(table))
        typer.echo(f"{counted(len(rows), 'run')} in a W&B table: {seen}")
    else:
        write_table_file(Path(to), rows)
        typer.echo(f"{counted(len(rows), 'run')} in {to}.\nNext: marin-scale fit {to}")


_EXPORT_RUN = typer.Argument(metavar="RUN", help="Preregistration, or the first digits of a run's digest.")
_EXPORT_TO = typer.Option(metavar="FOLDER", help="New folder.")


def export_run(run: str = _EXPORT_RUN, to: Path = _EXPORT_TO, registry: Path = REGISTRY) -> None:
    """Write a trained model as a folder for Hugging Face.

    `transformers` loads dense models, `marin_scaling.load_exported` mixtures of experts too. The model card has the data, cost
    and measured loss; for a target, also the signed forecast and its outcome. Weights of targets are kept; those of other runs
    only with marin-scale ladder --keep-weights.

    Example: marin-scale export 2026-11-26-my-ladder --to my-model
    """
    from marin_scaling.publish.export import export_model

    export_model(run, to, registry=registry)
    typer.echo(f"{to}: {', '.join(sorted(path.name for path in to.iterdir()))}")


_CURVE_COLUMN = typer.Option([], "--column", metavar="NAME=COLUMN", help="The table's column of step or loss.")
_RUN = typer.Argument(metavar="RUN", help="Preregistration, first digits of a run's digest, or table.")

_LOG = typer.Option([], "--log", metavar="PATH", help="Log of an outside run: file, folder, wandb:ENTITY/PROJECT; repeatable.")


def track_run(
    run: str = _RUN,
    against: str = typer.Option("", "--against", metavar="WHAT", help="Preregistration or ladder file; default: the run's."),
    steps: int | None = typer.Option(None, "--steps", metavar="N", min=1, help="Use only the first N steps."),
    column: list[str] = _CURVE_COLUMN,
    log: list[str] = _LOG,
    registry: Path = REGISTRY,
    as_json: bool = typer.Option(False, "--json", help="Print only JSON."),
) -> None:
    """Forecast the final loss of an unfinished run.

    The forecast uses the training loss so far and the curves of the ladder's finished runs. The command prints a 90 %
    interval, the signed forecast, warnings, and the stability of the run as far as it was logged. RUN may be a table with
    columns step and loss, or a chart that W&B exported; --against then names the preregistration of its target. An outside run
    is followed by its log, in any format that marin-scale outcome reads.

    Example: marin-scale track 2026-11-26-bytes-dense
    """
    if log:
        _require_log_alone({"--against": against, "--steps": steps, "--column": column})
        _track_outside(run, log, registry=registry, as_json=as_json)
        return
    from marin_scaling.forecast.tracking import tracked_document, tracked_text
    from marin_scaling.preregistration.tracked_run import track

    found = track(run, against, steps=steps, columns=chosen_columns(column), registry=registry)
    if as_json:
        from marin_scaling.canonical_json import dump_canonical

        typer.echo(dump_canonical(tracked_document(found)), nl=False)
    else:
        echo_wrapped(tracked_text(found))


def _require_log_alone(options: Mapping[str, object]) -> None:
    from marin_scaling.errors import UsageError

    if given := [name for name, value in options.items() if value]:
        raise UsageError(
            f"{', '.join(given)}: no option of a run that is followed by --log.",
            why="The statement names its forecast, its key and its planned steps.",
            fix=f"Leave {'it' if len(given) == 1 else 'them'} out.",
        )


def _track_outside(run: str, logs: list[str], *, registry: Path, as_json: bool) -> None:
    from marin_scaling.canonical_json import dump_canonical
    from marin_scaling.forecast.tracking import followed_document, followed_text
    from marin_scaling.preregistration.tracked_run import track_outside

    found = track_outside(run, *logs, registry=registry)
    if as_json:
        typer.echo(dump_canonical(followed_document(found)), nl=False)
    else:
        echo_wrapped(followed_text(found))


data_app = typer.Typer(
    help="Filter a training corpus, and compare training texts.", no_args_is_help=True, rich_markup_mode=None
)

_CORPUS = typer.Argument(metavar="CORPUS...", help="Files of documents, as in data.train.files: 'corpus/*.jsonl'.")
_PROMPT = typer.Option(..., "--prompt", metavar="FILE", help="Text file with the question about each document.")
_LABELER = typer.Option(
    ..., "--labeler", metavar="COMMAND", help="Command that reads lines of JSON (id, prompt, text) and writes id and score."
)
_KEEP_SHARE = typer.Option(0.5, "--keep", metavar="SHARE", help="Share of the bytes of text to keep.")
_OUT_FOLDER = typer.Option(..., "--out", metavar="FOLDER", help="Folder for the corpora, the labels and filter.json.")


@data_app.command("filter")
def filter_texts(
    corpus: list[str] = _CORPUS,
    prompt: Path = _PROMPT,
    labeler: str = _LABELER,
    out: Path = _OUT_FOLDER,
    keep: float = _KEEP_SHARE,
    labels: int = typer.Option(500, "--labels", metavar="N", help="Documents that the labeler scores."),
    text_key: str = typer.Option("text", "--text-key", metavar="KEY", help="Key of the text in a row."),
    tokenizer: str = typer.Option(
        "bytes", "--tokenizer", metavar="NAME", help="Tokenizer of the ladders; its tokens are shuffled."
    ),
    seed: int = typer.Option(0, "--seed", metavar="N", min=0, help="Random seed of sample, classifier and controls."),
    as_json: bool = typer.Option(False, "--json", help="Print only JSON."),
) -> None:
    """Keep the best documents of a corpus, by a prompt.

    A labeler scores a sample of documents, and a classifier learns its scores and keeps the best share of the corpus. The
    command writes the filtered corpus, and two controls of its size: random documents, and filtered ones with shuffled tokens.
    Labels are kept, so that a rerun asks for missing ones only.

    Example: marin-scale data filter 'web/*.jsonl' --prompt prompt.txt --labeler 'python label.py' --out web-filtered
    """
    from marin_scaling.data.filter import filter_corpus

    found = filter_corpus(
        corpus,
        prompt=prompt,
        labeler=labeler,
        out=out,
        keep=keep,
        labels=labels,
        text_key=text_key,
        tokenizer=tokenizer,
        seed=seed,
    )
    if as_json:
        from marin_scaling.canonical_json import dump_canonical

        typer.echo(dump_canonical(found.document()), nl=False)
    else:
        typer.echo(f"{found}\n\nNext: in a ladder file, data.train: {{files: {out}/filtered.jsonl}}")


_BASE = typer.Argument(metavar="BASE", help="Runs on the text of today: a ladder's folder, or a table with a column seed.")
_OTHERS = typer.Argument(metavar="OTHER...", help="Runs on other texts, with the same rungs and seeds.")
_CONTROL = typer.Option([], "--control", metavar="TABLE", help="Runs on a text that must not be better; repeatable.")
_MARGIN = typer.Option(None, "--margin", metavar="SHARE", help="Relative loss up to which a text is not worse. Default: 0.005.")


@data_app.command("compare")
def compare_texts(
    base: Path = _BASE,
    others: list[Path] = _OTHERS,
    control: list[Path] = _CONTROL,
    margin: float | None = _MARGIN,
    column: list[str] = COLUMN,
    where: list[str] = WHERE,
    drop: list[str] = DROP,
    skip_incomplete: bool = SKIP,
    as_json: bool = typer.Option(False, "--json", help="Print only JSON."),
) -> None:
    """Compare training texts by paired runs of equal seeds.

    Each text is better, not worse by more than the margin, worse, or undecided, by one-sided 95 % bounds over at least three
    seeds. Runs evaluated on different held-out text are refused.

    Example: marin-scale data compare runs/web runs/web-filtered --control runs/web-random
    """
    from marin_scaling.forecast.data_comparison import MARGIN, compare_data

    found = compare_data(
        base,
        *others,
        controls=control,
        margin=MARGIN if margin is None else margin,
        columns=chosen_columns(column),
        where=chosen_rows(where),
        drop=drop,
        skip_incomplete=skip_incomplete,
    )
    if as_json:
        from marin_scaling.canonical_json import dump_canonical

        typer.echo(dump_canonical(found.document()), nl=False)
    else:
        typer.echo(str(found))
