"""Commands `marin-scale fit`, `backtest`, `tune`, `mix`, `speedup` and `downstream`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from marin_scaling.fitting.law import DEFAULT_LAW, LawKind, law_help
from marin_scaling.units import format_number, parse_count

if TYPE_CHECKING:
    from marin_scaling.fitting.fit import FitResult
    from marin_scaling.forecast.next_runs import SizeForInference
    from marin_scaling.run.table import ReadingChoices

TABLE = typer.Argument(
    metavar="TABLE", help="CSV, Parquet or JSONL file, published suite (runs/delphi), or a ladder's folder in runs/."
)
_PREDICT = typer.Option([], "--predict", metavar="FLOPS", help="Forecast the compute-optimal run of this budget; repeatable.")
_PREDICT_RUNS = typer.Option(
    None,
    "--predict-runs",
    metavar="TARGETS",
    help="Forecast the runs of this table, given by params and tokens, or by flops; compare their losses.",
)
_UNIQUE_TOKENS = typer.Option(
    None,
    "--unique-tokens",
    metavar="TOKENS",
    parser=parse_count,
    help="Tokens of different text, such as 5e11 or 500B: forecasts of --predict that need more repeat them.",
)
_INFERENCE_TOKENS = typer.Option(
    None,
    "--inference-tokens",
    metavar="TOKENS",
    parser=parse_count,
    help="Tokens to process after training, such as 1e13 or 10T: also print the size with the least FLOPs in all at the same "
    "loss.",
)
COLUMN = typer.Option(
    [],
    "--column",
    metavar="OURS=THEIRS",
    help="Map a column, as in loss=eval/loss, or compute missing cells, as in flops=6ND.",
)
UNIT = typer.Option([], "--unit", metavar="COLUMN=UNIT", help="Unit of a column, as in flops=GFLOPs or params=millions.")
WHERE = typer.Option(
    [], "--where", metavar="COLUMN=VALUE", help="Use only the runs with this value in a column, as in model=llama*."
)
ALLOW = typer.Option([], "--allow", metavar="CODE", help="Lower an error of the audit to a warning, as in groups.")
KEEP = typer.Option([], "--keep", metavar="RUN", help="Keep a run that the audit would drop; repeatable.")
DROP = typer.Option([], "--drop", metavar="RUN", help="Leave a run out of the fit; repeatable.")
SKIP = typer.Option(False, "--skip-incomplete", help="Leave out and name every run with an empty cell.")
LAW = typer.Option(DEFAULT_LAW, "--law", metavar="LAW", help=f"{law_help()}; FILE.py:NAME: your own law (runs that file).")
_PLOT = typer.Option(
    None, "--plot", metavar="FILE", help="Write a figure of runs, law and forecasts: .html, .svg, .png or .json."
)


_SWEPT = typer.Option(
    "auto",
    "--swept",
    metavar="best|all",
    show_default=False,
    help="best: fit the best run of each size and length; all: fit all runs. Default: best if swept.",
)


def fit_table(
    table: Path = TABLE,
    predict: list[str] = _PREDICT,
    predict_runs: Path | None = _PREDICT_RUNS,
    unique_tokens: float | None = _UNIQUE_TOKENS,
    inference_tokens: float | None = _INFERENCE_TOKENS,
    column: list[str] = COLUMN,
    unit: list[str] = UNIT,
    where: list[str] = WHERE,
    law: str = LAW,
    swept: str = _SWEPT,
    show_sensitivity: bool = typer.Option(False, "--sensitivity", help="Refit with other laws and without budgets."),
    plot: Path | None = _PLOT,
    as_json: bool = typer.Option(False, "--json", help="Print only JSON."),
    keep: list[str] = KEEP,
    drop: list[str] = DROP,
    allow: list[str] = ALLOW,
    skip_incomplete: bool = SKIP,
    seed: int = typer.Option(0, "--seed", metavar="N", min=0, help="Random seed of the interval."),
) -> None:
    """Fit a scaling law to runs and forecast larger ones.

    Each forecast has a 90 % interval and a compute-optimal size; a back-test of the same runs bears on its status.

    The table needs FLOPs, parameters, tokens and loss of each run. Common column names are recognized and printed.

    Example: marin-scale fit runs/delphi --predict 1e23 --plot delphi.html
    """
    from marin_scaling.fitting.fit import fit
    from marin_scaling.forecast.backtest import backtest_of_fit
    from marin_scaling.forecast.forecast import forecast_runs, optimal_target, sensitivity
    from marin_scaling.forecast.report import forecast_document, forecast_text, sensitivity_text
    from marin_scaling.forecast.targets import read_targets, target_runs
    from marin_scaling.run.table import read_run_table
    from marin_scaling.units import parse_flops

    budgets = [parse_flops(text) for text in predict]
    _require_budget(budgets, {"--unique-tokens": unique_tokens, "--inference-tokens": inference_tokens})
    runs = read_run_table(table, **reading_choices(column, unit, where, keep, drop, allow, skip_incomplete))
    wanted = read_targets(predict_runs, like=runs) if predict_runs else ()
    result = fit(runs, law=chosen_law(law), seed=seed, swept=swept)
    targets = [optimal_target(result, flops, unique_tokens=unique_tokens) for flops in budgets]
    targets += target_runs(result, wanted)
    forecasts = forecast_runs(result, targets)
    tested = backtest_of_fit(result) if forecasts and result.law.is_calibrated else None
    tables = [sensitivity(result, each) for each in forecasts] if show_sensitivity else []
    if plot is not None:
        from marin_scaling.publish.charts import law_chart, outcomes_of
        from marin_scaling.publish.figures import save_chart

        save_chart(law_chart(result, forecasts, outcomes=outcomes_of(forecasts)), plot)
    served = _sizes_for_inference(result, budgets, inference_tokens, unique_tokens) if inference_tokens is not None else []
    if as_json:
        from marin_scaling.canonical_json import dump_canonical

        document = forecast_document(result, forecasts, sensitivities=tables, tested=tested)
        for prediction, size in zip(document["predictions"], served, strict=False):
            prediction["inference"] = size.document
        typer.echo(dump_canonical(document), nl=False)
    else:
        parts = [
            forecast_text(result, forecasts, tested),
            *(str(size) for size in served),
            *(sensitivity_text(rows, flops=each.flops) for rows, each in zip(tables, forecasts, strict=False)),
            *([f"figure: {plot}"] if plot else []),
        ]
        typer.echo("\n\n".join(parts))


def _sizes_for_inference(
    result: FitResult, budgets: list[float], inference_tokens: float, unique_tokens: float | None
) -> list[SizeForInference]:
    from marin_scaling.forecast.next_runs import size_for_inference

    return [
        size_for_inference(result, flops=flops, inference_tokens=inference_tokens, unique_tokens=unique_tokens)
        for flops in budgets
    ]


def _require_budget(budgets: list[float], options: dict[str, float | None]) -> None:
    from marin_scaling.errors import UsageError

    for option, tokens in options.items():
        if tokens is not None and not budgets:
            raise UsageError(
                f"{option} {format_number(tokens)} is for the runs of --predict, and none is given.",
                fix="Add --predict FLOPS."
                + (" Rows of --predict-runs may have a column epochs or unique_tokens." if option == "--unique-tokens" else ""),
            )


def chosen_law(text: str) -> str | LawKind:
    """Return the choice of `--law`: a name, or the law in a Python file."""
    if ".py:" not in text:
        return text
    from marin_scaling.fitting.custom_law import load_law

    return load_law(text)


def chosen_columns(pairs: list[str]) -> dict[str, str]:
    """Return the choices of `--column`, as in {"loss": "eval/loss"}."""
    return chosen_pairs(pairs, option="--column", example="loss=eval/loss")


def chosen_rows(pairs: list[str]) -> dict[str, str]:
    """Return the choices of `--where`, as in {"dataset": "web"}."""
    return chosen_pairs(pairs, option="--where", example="dataset=web")


def reading_choices(
    column: list[str], unit: list[str], where: list[str], keep: list[str], drop: list[str], allow: list[str], skip: bool
) -> ReadingChoices:
    """Return the choices of the options about a table."""
    return {
        "columns": chosen_columns(column),
        "units": chosen_units(unit),
        "where": chosen_rows(where),
        "keep": keep,
        "drop": drop,
        "allow": allow,
        "skip_incomplete": skip,
    }


def chosen_units(pairs: list[str]) -> dict[str, str]:
    """Return the choices of `--unit`, as in {"flops": "GFLOPs"}; `UsageError` for a column that has no units."""
    from marin_scaling.errors import UsageError
    from marin_scaling.run.column_units import UNITS

    chosen = chosen_pairs(pairs, option="--unit", example="flops=GFLOPs")
    for column in chosen:
        if column not in UNITS:
            raise UsageError(
                f"--unit {column}={chosen[column]}: {column!r} has no units to choose.",
                why="Other columns are not converted.",
                fix=f"Choose a unit of {', '.join(UNITS)}.",
            )
    return chosen


def chosen_pairs(pairs: list[str], *, option: str, example: str) -> dict[str, str]:
    """Return the NAME=VALUE pairs of a repeated option; `UsageError` for another form, or a name that occurs twice."""
    from marin_scaling.errors import UsageError

    chosen: dict[str, str] = {}
    for pair in pairs:
        ours, equals, theirs = pair.partition("=")
        if not (ours and equals and theirs) or ours in chosen:
            reason = f"{ours!r} is already {chosen.get(ours)!r}" if ours in chosen else "the form is NAME=VALUE"
            raise UsageError(
                f"{option} {pair!r}: {reason}.",
                why="Each name is chosen once.",
                fix=f"Write it like {option} {example}, once for each column.",
            )
        chosen[ours] = theirs
    return chosen


def backtest_table(
    table: Path = TABLE,
    column: list[str] = COLUMN,
    unit: list[str] = UNIT,
    where: list[str] = WHERE,
    law: str = LAW,
    swept: str = _SWEPT,
    as_json: bool = typer.Option(False, "--json", help="Print only JSON, with every forecast run."),
    keep: list[str] = KEEP,
    drop: list[str] = DROP,
    allow: list[str] = ALLOW,
    skip_incomplete: bool = SKIP,
    seed: int = typer.Option(0, "--seed", metavar="N", min=0, help="Random seed of the intervals."),
) -> None:
    """Forecast each budget from the smaller ones; score it.

    The scores by distance show how far beyond its runs this ladder forecasts well.

    Example: marin-scale backtest runs/delphi
    """
    from marin_scaling.fitting.fit import chosen_runs
    from marin_scaling.forecast.backtest import backtest, backtest_document, backtest_text
    from marin_scaling.printable import wrapped
    from marin_scaling.run.table import read_run_table

    read = read_run_table(table, **reading_choices(column, unit, where, keep, drop, allow, skip_incomplete))
    runs = chosen_runs(read, swept=swept)
    result = backtest(runs, law=chosen_law(law), seed=seed, swept="all")
    if as_json:
        from marin_scaling.canonical_json import dump_canonical

        typer.echo(dump_canonical(backtest_document(result)), nl=False)
    else:
        typer.echo(backtest_text(result))
        severity = {each.message: each.severity.value for each in runs.findings}
        for each in runs.warnings:
            typer.echo(wrapped(f"{severity.get(each, 'warning')}: {each}"), err=True)


_TARGETS = typer.Option(
    [],
    "--predict",
    metavar="TARGET",
    help='Predict for a run, as in "width=2048 tokens=1e11 batch_size=512"; repeatable.',
)
_SIZE = typer.Option("", "--size", metavar="COLUMN", help="width, active_params or params; default: the first that varies.")
_WRITE_RECIPE = typer.Option(
    None, "--write-recipe", metavar="FILE", help="Write a recipe file that follows the law of the learning rate."
)


_PLOT_OPTIMA = typer.Option(
    None, "--plot", metavar="FILE", help="Write a figure of runs, optima and laws: .html, .svg, .png or .json."
)


def tune_table(
    table: Path = TABLE,
    predict: list[str] = _TARGETS,
    size: str = _SIZE,
    optima: bool = typer.Option(False, "--optima", help="Each row is the optimum of its cell, not a run."),
    column: list[str] = COLUMN,
    where: list[str] = WHERE,
    drop: list[str] = DROP,
    skip_incomplete: bool = SKIP,
    write_recipe: Path | None = _WRITE_RECIPE,
    base: str = typer.Option("", "--base", metavar="RECIPE", help="Recipe that --write-recipe changes."),
    plot: Path | None = _PLOT_OPTIMA,
    as_json: bool = typer.Option(False, "--json", help="Print only JSON."),
    seed: int = typer.Option(0, "--seed", metavar="N", min=0, help="Random seed of the intervals."),
) -> None:
    """Fit laws of the best learning rate, weight decay and batch size.

    The table needs a size, tokens, loss and the swept hyperparameters of each run. A law is checked by predicting the largest
    cells from the smaller ones; its cost is the loss above their minimum.

    Example: marin-scale tune sweep.csv --predict "width=2048 tokens=1e11 batch_size=512"
    """
    from marin_scaling.errors import UsageError
    from marin_scaling.forecast.tuning import tune
    from marin_scaling.run.tuning_runs import HYPERPARAMETERS, parse_target

    if bool(write_recipe) != bool(base):
        raise UsageError(
            "--write-recipe FILE and --base RECIPE belong together.",
            fix="Give both, as in --write-recipe recipes/tuned.yaml --base delphi",
        )
    found = tune(
        table,
        columns=chosen_columns(column),
        where=chosen_rows(where),
        drop=drop,
        skip_incomplete=skip_incomplete,
        size=size,
        are_optima=optima,
        seed=seed,
    )
    targets = [found.predict(**parse_target(text, known=[found.runs.size, "tokens", *HYPERPARAMETERS])) for text in predict]
    if write_recipe:
        found.write_recipe(write_recipe, base=base, targets=targets)
    if plot is not None:
        from marin_scaling.publish.figures import save_chart
        from marin_scaling.publish.tuning_chart import tuning_chart

        save_chart(tuning_chart(found, targets), plot)
    if as_json:
        from marin_scaling.canonical_json import dump_canonical

        typer.echo(dump_canonical(found.document(targets)), nl=False)
    else:
        parts = [
            found.text(targets),
            *([f"figure: {plot}"] if plot else []),
            *([f"Next: set recipe: {write_recipe} in a ladder file"] if write_recipe else []),
        ]
        typer.echo("\n\n".join(parts))


_MIXTURES = typer.Argument(metavar="TABLE", help="CSV, Parquet or JSONL file with one mix per row: its weights and losses.")
_METRICS = typer.Option([], "--metric", metavar="COLUMN", help="Column of a loss, or a pattern such as 'loss_*'; repeatable.")
_WEIGHTS = typer.Option([], "--weights", metavar="COLUMN", help="Column of a weight, or a pattern such as 'w_*'; repeatable.")
_MINIMIZE = typer.Option(
    [],
    "--minimize",
    metavar="LOSS[=PART]",
    help="Loss to minimize, with its part if there are several; default: the mean of all.",
)
_TOKENS = typer.Option(None, "--tokens", metavar="TOKENS", parser=parse_count, help="Tokens of the target run, such as 100B.")
_LIMIT = typer.Option([], "--limit", metavar="DOMAIN=TOKENS", help="Tokens of a domain, such as web=50B; repeatable.")
_EPOCHS = typer.Option(1.0, "--epochs", metavar="N", help="Most passes over a domain with a limit.")
_AGAINST = typer.Option(
    [],
    "--against",
    metavar="DOMAIN=WEIGHT",
    help="Mix to compare with, a domain at a time; default: the mean of the tried ones.",
)
_WRITE_LADDER = typer.Option(None, "--write-ladder", metavar="FILE", help="Write a ladder file with the best mix.")
_BASE_LADDER = typer.Option(None, "--base", metavar="LADDER", help="Ladder file that --write-ladder changes.")


def mix_table(
    table: Path = _MIXTURES,
    minimize: list[str] = _MINIMIZE,
    tokens: float | None = _TOKENS,
    limit: list[str] = _LIMIT,
    epochs: float = _EPOCHS,
    against: list[str] = _AGAINST,
    weights: list[str] = _WEIGHTS,
    metric: list[str] = _METRICS,
    where: list[str] = WHERE,
    drop: list[str] = DROP,
    skip_incomplete: bool = SKIP,
    write_ladder: Path | None = _WRITE_LADDER,
    base: Path | None = _BASE_LADDER,
    as_json: bool = typer.Option(False, "--json", help="Print only JSON."),
    seed: int = typer.Option(0, "--seed", metavar="N", min=0, help="Random seed of folds and ranges."),
) -> None:
    """Fit laws over data mixtures; find the best mix.

    Each row of the table is a run with its own mix: weights of the domains that add up to one, and losses. Laws are chosen by
    cross-validation. With --tokens and --limit, no domain is repeated more than --epochs times.

    Example: marin-scale mix mixtures.csv --tokens 100B --limit code=5B --epochs 4
    """
    from marin_scaling.errors import UsageError
    from marin_scaling.forecast.mixture import base_text, chosen_mix, mix
    from marin_scaling.run.tuning_runs import read_mixtures

    if (write_ladder is None) != (base is None):
        raise UsageError(
            "--write-ladder FILE and --base LADDER belong together.",
            fix="Give both, as in --write-ladder ladders/best.yaml --base ladders/mine.yaml",
        )
    limits = {name: parse_count(text) for name, text in chosen_pairs(limit, option="--limit", example="web=50B").items()}
    parts = chosen_pairs([text if "=" in text else f"{text}=1" for text in minimize], option="--minimize", example="web=2")
    given = chosen_pairs(against, option="--against", example="web=0.7")
    objective, reference = (_numbers_of(pairs, option) for pairs, option in ((parts, "--minimize"), (given, "--against")))
    read = read_mixtures(
        table, weights=weights, metrics=metric, where=chosen_rows(where), drop=drop, skip_incomplete=skip_incomplete
    )
    chosen_mix(read, objective or None, limits=limits, tokens=tokens, epochs=epochs, against=reference)
    if write_ladder and base:
        base_text(read, write_ladder, base=base)
    found = mix(read, seed=seed)
    best = found.best(objective or None, limits=limits, tokens=tokens, epochs=epochs, against=reference)
    if write_ladder and base:
        best.write_ladder(write_ladder, base=base)
    if as_json:
        from marin_scaling.canonical_json import dump_canonical

        typer.echo(dump_canonical(found.document(best)), nl=False)
    else:
        typer.echo(f"{best}" + (f"\n\nNext: marin-scale ladder {write_ladder}" if write_ladder else ""))


def _numbers_of(pairs: dict[str, str], option: str) -> dict[str, float]:
    from marin_scaling.errors import UsageError
    from marin_scaling.run.table_io import plain_number

    numbers = {name: plain_number(text) for name, text in pairs.items()}
    if bad := [f"{name}={pairs[name]}" for name, number in numbers.items() if number is None]:
        raise UsageError(f"{option} {bad[0]!r}: no number.", fix=f"Write it like {option} NAME=0.7.")
    return {name: number for name, number in numbers.items() if number is not None}


_RECIPES = typer.Argument(metavar="[NAME=]TABLE...", help="Tables of runs: the baseline first, then each changed recipe.")
_AT = typer.Option(
    None, "--at", metavar="FLOPS", help="Compare a chain at the loss of the baseline at this budget. Default: largest common."
)


def speedup_tables(
    tables: list[str] = _RECIPES,
    convention: str = typer.Option(
        "own", "--convention", metavar="own|marin", help="own: fit each recipe's law; marin: pin E and alpha as Marin does."
    ),
    at: str | None = _AT,
    column: list[str] = COLUMN,
    unit: list[str] = UNIT,
    where: list[str] = WHERE,
    drop: list[str] = DROP,
    allow: list[str] = ALLOW,
    skip_incomplete: bool = SKIP,
    as_json: bool = typer.Option(False, "--json", help="Print only JSON."),
) -> None:
    """Compare two recipes, or a chain, by the compute saved.

    The speedup is the baseline's compute for a loss over the variant's. Each speedup has a 90 % interval; an interval that
    contains 1 is a tie. With a column tokens_per_second or mfu in all tables, speedups in time are printed too.

    Two tables are compared at each budget. Three or more, named tables, and tables of different FLOP conventions are a chain:
    each recipe against the one before it, and against the first.

    Example: marin-scale speedup dense=runs/bytes-dense moe=runs/bytes-moe
    """
    from marin_scaling.forecast.speedup import compare_recipes, count_by_one_convention, speedup_document, speedup_text
    from marin_scaling.forecast.speedup_chain import chain_document, chain_of_tables, names_of
    from marin_scaling.run.table import read_run_table
    from marin_scaling.units import parse_flops

    choices = reading_choices(column, unit, where, [], drop, allow, skip_incomplete)
    named = [_named_table(text) for text in tables]
    read = [read_run_table(path, **choices) for _, path in named]
    if len(read) == 2 and at is None and not any(name for name, _ in named) and count_by_one_convention(*read):
        report = compare_recipes(*read, convention=convention, allow=allow)
        document = speedup_document(report, baseline=read[0], variant=read[1])
        text = speedup_text(report, baseline=read[0], variant=read[1])
    else:
        names = [name or plain for (name, _), plain in zip(named, names_of(read), strict=True)]
        chain = chain_of_tables(
            list(zip(names, read, strict=True)),
            convention=convention,
            at_flops=None if at is None else parse_flops(at),
            allow=allow,
        )
        document, text = chain_document(chain), str(chain)
    if as_json:
        from marin_scaling.canonical_json import dump_canonical

        typer.echo(dump_canonical(document), nl=False)
    else:
        typer.echo(text)


def _named_table(text: str) -> tuple[str, Path]:
    """Return the name, or "", and the path of an argument such as `moe=runs/bytes-moe`."""
    name, equals, path = text.partition("=")
    return (name, Path(path)) if equals and path and not Path(text).exists() else ("", Path(text))


_SOFT = typer.Option(
    ..., "--soft", metavar="COLUMN", help="Smooth metric that decreases: loss or bits per byte of the right answers."
)
_METRIC = typer.Option(..., "--metric", metavar="COLUMN", help="Accuracy from 0 to 1; empty for runs without a score.")
_PREDICT_SIZES = typer.Option(
    None, "--predict-runs", metavar="TARGETS", help="Forecast the runs of this table, given by params and tokens, or by flops."
)
_POOL = typer.Option(
    None, "--pool", metavar="TABLE", help="More runs of any recipe with both columns, used only for the curve."
)
_CHANCE = typer.Option(None, "--chance", metavar="ACCURACY", help="Accuracy of guessing, such as 0.25; default: fitted.")
_QUESTIONS = typer.Option(None, "--questions", metavar="N", min=1, help="Number of questions of the benchmark.")


def downstream(
    table: Path = TABLE,
    soft: str = _SOFT,
    metric: str = _METRIC,
    predict: list[str] = _PREDICT,
    predict_runs: Path | None = _PREDICT_SIZES,
    pool: Path | None = _POOL,
    chance: float | None = _CHANCE,
    questions: int | None = _QUESTIONS,
    column: list[str] = COLUMN,
    unit: list[str] = UNIT,
    where: list[str] = WHERE,
    as_json: bool = typer.Option(False, "--json", help="Print only JSON."),
    keep: list[str] = KEEP,
    drop: list[str] = DROP,
    allow: list[str] = ALLOW,
    skip_incomplete: bool = SKIP,
    seed: int = typer.Option(0, "--seed", metavar="N", min=0, help="Random seed of the interval."),
) -> None:
    """Forecast a benchmark's accuracy from a smooth metric.

    A law forecasts the smooth metric; a curve through scored runs gives the accuracy. The interval includes both errors.

    Example: marin-scale downstream runs.csv --soft arc_bpb --metric arc_accuracy --predict 1e22 --chance 0.25
    """
    from marin_scaling.errors import UsageError
    from marin_scaling.fitting.fit import fit
    from marin_scaling.forecast.accuracy_curve import fit_sigmoid
    from marin_scaling.forecast.downstream import (
        downstream_document,
        downstream_text,
        forecast_target,
        read_pool,
        read_scores,
    )
    from marin_scaling.forecast.forecast import optimal_target
    from marin_scaling.forecast.targets import read_targets, target_runs
    from marin_scaling.run.table import read_run_table
    from marin_scaling.units import parse_flops

    if not (predict or predict_runs):
        raise UsageError("No run to forecast.", fix="Add --predict FLOPS, or --predict-runs TARGETS for other sizes.")
    budgets = [parse_flops(text) for text in predict]
    runs = read_run_table(table, **reading_choices([*column, f"loss={soft}"], unit, where, keep, drop, allow, skip_incomplete))
    scored = read_scores(table, table=runs, metric=metric, chance=chance)
    scored = scored.with_pool(read_pool(pool, soft=soft, metric=metric, chance=chance)) if pool else scored
    wanted = read_targets(predict_runs, like=runs) if predict_runs else ()
    result = fit(runs, seed=seed)
    curve = fit_sigmoid(scored.soft, accuracy=scored.accuracy, chance=chance, questions=questions, seed=seed)
    targets = [*(optimal_target(result, flops) for flops in budgets), *target_runs(result, wanted)]
    forecasts = [forecast_target(result, curve, target) for target in targets]
    if as_json:
        from marin_scaling.canonical_json import dump_canonical

        document = downstream_document(result, curve, forecasts, metric=metric, notes=scored.notes)
        typer.echo(dump_canonical(document), nl=False)
    else:
        typer.echo(downstream_text(result, curve, forecasts, metric=metric, notes=scored.notes))
