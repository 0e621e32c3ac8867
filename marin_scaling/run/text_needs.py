"""Text that planned runs need: how much there is, how often they see it, the parts of a mix, and warnings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from marin_scaling.data.corpus import HELD_OUT, TokenCorpus, TokenizerIdentity, require_windows
from marin_scaling.errors import DataError, Finding, RecipeError, note, warning
from marin_scaling.ladder.config import LadderFile, MixPhase
from marin_scaling.printable import joined
from marin_scaling.recipe.base import RungPlan
from marin_scaling.recipe.find import find_recipe, usual_plan
from marin_scaling.run.spec import RunSpec
from marin_scaling.units import format_count, format_flops

_MOST_PADDING = 128  # a model may have so many more tokens in its vocabulary than the tokenizer, for efficiency on hardware


def horizon_of(file: LadderFile) -> int | None:
    """Return the tokens of the run whose repeats the ladder's runs simulate: given, or the target's at its usual width."""
    horizon, target = file.data.horizon, file.target
    if horizon is None:
        return None
    if isinstance(horizon, float):
        return round(horizon)
    plan = _usual_target(file)
    if plan is None:
        raise RecipeError(
            f"data.horizon is target, and the recipe {file.recipe!r} has no usual width at {format_flops(target.budget_flops)} "
            "FLOPs.",
            fix="Give the tokens of the target: data.horizon: 1e11.",
        )
    return plan.trained_tokens


def require_data(spec: RunSpec, *, corpus: TokenCorpus, epochs: int | None = None) -> None:
    """Raise `DataError` for another vocabulary than the data's, more tokens than there are, or too little held-out text.

    A part of a mix may be read `epochs` times; None for any number.
    """
    require_vocabulary(spec.recipe, spec.model.vocab_size, corpus.tokenizer)
    windows = spec.epochs * (len(corpus.train) // spec.model.seq_len)
    if spec.mix:
        _require_parts(spec, epochs=epochs)
    elif spec.windows > windows:
        raise DataError(
            f"The run of {format_flops(spec.budget_flops)} FLOPs at width {spec.model.hidden_dim} needs "
            f"{spec.trained_tokens} tokens; the training data have {len(corpus.train)}, seen {_times(spec.epochs)}.",
            why="Repeated text is worth less than new text, which biases a law.",
            fix="Lower the budget or raise the model size, add text, or allow repeats: data.epochs.",
        )
    for name, tokens in corpus.validation.items():
        least = spec.evaluation.windows if name == HELD_OUT else 1
        require_windows(len(tokens), seq_len=spec.evaluation.seq_len, windows=least)


def _require_parts(spec: RunSpec, *, epochs: int | None) -> None:
    """Raise `DataError` with all parts of the mix that the run would read more often than `epochs` times."""
    length = spec.model.seq_len
    short = [
        f"{each.share:.3g} of {spec.trained_tokens} tokens are of {each.name}: {each.passes:.3g} passes over "
        f"{each.read * length} of its {spec.data.parts[each.name].tokens} tokens"
        for each in spec.exposures
        if each.share and (not each.available or (epochs is not None and each.passes > epochs))
    ]
    if short:
        run = f"The run of {format_flops(spec.budget_flops)} FLOPs at width {spec.model.hidden_dim}"
        raise DataError(
            (f"{run} has too little text:", *short),
            why=f"Each part may be read {_times(epochs or 1)}.",
            fix="Lower the weight of the part, add text to it, or allow repeats: data.epochs, and data.horizon for a forecast.",
        )


def data_findings(specs: Sequence[RunSpec]) -> list[Finding]:
    """Warn of repeated text: the number of runs that repeat it, and how often."""
    repeated = [spec.times_seen for spec in specs if spec.times_seen > 1]
    if not repeated:
        return []
    times = f"{max(repeated):.3g} times{' on average' if specs[0].mix else ''}"
    return [warning("repeated-text", "data", f"{len(repeated)} of {len(specs)} runs see text more than once, up to {times}")]


def mix_findings(file: LadderFile, specs: Sequence[RunSpec]) -> list[Finding]:
    """Say for each part of a mix how much of it there is, and how often the longest run and the target see it."""
    if not specs or not specs[0].mix:
        return []
    longest, of_target = max(specs, key=lambda spec: spec.trained_tokens), _usual_target(file)
    found, length = [], longest.model.seq_len
    for each in longest.exposures:
        told = f"{each.share:.3g} of the tokens, of {format_count(each.available * length)}; the longest run sees "
        told += f"{format_count(each.read * length)} of them {each.passes:.3g} times"
        if of_target is not None:
            passes = each.share * of_target.trained_tokens / max(1, each.available * length)
            told += f", a target of {format_count(of_target.trained_tokens)} tokens {passes:.3g} times"
        found.append(note("mix", f"data.{each.name}", told))
    return [*found, *_beyond_horizon(specs), *_not_simulated(specs, of_target)]


def _not_simulated(specs: Sequence[RunSpec], target: RungPlan | None) -> Iterator[Finding]:
    """Warn of repeats that the rungs do not simulate, since no forecast of their target can be signed."""
    length = specs[0].model.seq_len
    tokens = target.trained_tokens if target else 0
    repeated = [
        each.name for each in specs[0].exposures if each.share * tokens > max(1, each.available) * length and each.share > 0
    ]
    if specs[0].horizon_tokens is None and (repeated or any(spec.is_repeating for spec in specs)):
        told = f"the target repeats {joined(repeated)}" if repeated else "some rungs repeat a part"
        yield warning("not-simulated", "data", f"{told}; its forecast can be signed only with data.horizon: target")


def _beyond_horizon(specs: Sequence[RunSpec]) -> Iterator[Finding]:
    """Warn of runs that are longer than the run whose repeats they simulate, and so repeat a part more often."""
    longer = [spec for spec in specs if spec.horizon_tokens and spec.trained_tokens > spec.horizon_tokens]
    repeated = [max(each.passes for each in spec.exposures) for spec in longer]
    if max(repeated, default=0) > 1:
        horizon = format_count(longer[0].horizon_tokens or 0)
        told = f"{len(longer)} of {len(specs)} runs have more tokens than the horizon, {horizon},"
        yield warning("beyond-horizon", "data.horizon", f"{told} and see a part up to {max(repeated):.3g} times")


def target_findings(file: LadderFile, *, corpus: TokenCorpus) -> list[Finding]:
    """Warn if the target needs more text than there is, at the recipe's usual width; the fit may choose another width."""
    plan = _usual_target(file)
    if plan is None:
        return []
    found = []
    for name, share in _shares(file.data.mixes).items():
        available = corpus.parts[name].tokens if name in corpus.parts else len(corpus.train)
        wanted = share * plan.trained_tokens
        if wanted > file.data.epochs * available:
            message = (
                f"needs {format_count(wanted)} tokens{f' of {name}' if name else ''} at width {plan.shape.hidden_dim}; "
                f"the text has {format_count(available)}, seen {_times(file.data.epochs)}. Add text or raise data.epochs "
                "before training, since rungs trained on other text do not count"
            )
            found.append(warning("too-little-text", "target", message))
    return found


def _usual_target(file: LadderFile) -> RungPlan | None:
    """Return the target at the recipe's usual width, None if there is none; the fit may choose another one."""
    target = file.target
    try:
        return usual_plan(find_recipe(file.recipe), budget_flops=target.budget_flops, batch_size=target.batch_size)
    except RecipeError:
        return None


def _shares(phases: Sequence[MixPhase]) -> dict[str, float]:
    """Return the share of each part in the tokens of a run; all of the text, "", without a mix."""
    begins = [0.0, *(phase.until for phase in phases)]
    found = Counter[str]()
    for begin, phase in zip(begins, phases, strict=False):
        found.update({name: (phase.until - begin) * weight for name, weight in phase.mix.items()})
    return dict(found) or {"": 1.0}


def require_vocabulary(recipe: str, vocab_size: int, tokenizer: TokenizerIdentity) -> None:
    """Raise `DataError` if a recipe's models have another vocabulary than the data."""
    if tokenizer.size <= vocab_size < tokenizer.size + _MOST_PADDING:
        return
    raise DataError(
        f"The recipe {recipe!r} has a vocabulary of {vocab_size}; the data have {tokenizer.size} tokens "
        f"(tokenizer: {tokenizer.name}).",
        fix=f"Set vocab_size to {tokenizer.size} in a recipe file, or name the recipe's own tokenizer in data.tokenizer.",
    )


def _times(epochs: int) -> str:
    return "once" if epochs == 1 else f"{epochs} times"
