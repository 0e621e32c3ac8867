"""Filter a corpus by a prompt: a labeler scores a sample, a small classifier learns its scores and keeps the best documents.

Two control corpora of equal size come with it: random documents, and the kept ones with their tokens shuffled.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import itertools
import json
import math
import os
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from marin_scaling import __version__
from marin_scaling.canonical_json import dump_canonical, sha256_hex
from marin_scaling.data.labeler import LABELS_NAME, LEAST_LABELS, CorpusFiles, labeler_command, labelled, sampled, shown_command
from marin_scaling.data.tokenizer import Tokenizer, load_tokenizer
from marin_scaling.errors import DataError, UsageError, missing_extra
from marin_scaling.files import disk_errors, read_bytes, replace_file, sync_folder
from marin_scaling.laws import Array
from marin_scaling.printable import wrapped
from marin_scaling.units import counted, format_bytes

if TYPE_CHECKING:
    import pandas as pd

BYTES = "bytes"
FILTERED, RANDOM, SHUFFLED = "filtered", "random", "shuffled"
REPORT_NAME = "filter.json"

LEAST_OTHERS = 10
"""Labels that differ from the commonest one: two of them at least are held out."""

HELD_OUT_EVERY = 5
"""One label of this number is held out, in the order of the labels, so that both parts hold low and high ones."""

_MOST_HELD_OUT = 2000
"""Held-out labels of which all pairs are compared; memory grows with their square."""
_DRAWS = 1000
_INTERVAL = 0.9
_CHANCE, _GOOD = 0.5, 0.7
"""Agreement of random scores, and that below which a filter is weak: 0.7 is a Kendall correlation of 0.4. It is a round number,
chosen before any corpus was filtered."""
_READ_CHARACTERS = 20_000
"""Characters of a document that the classifier reads, so that one book costs no more than ten articles."""
_BATCH = 256
_FEATURES = 2**18
_LAYOUT = str.maketrans(" \t\n", "\u2420\u2409\u2424")
_PENALTIES = np.geomspace(0.01, 100, 9)
"""Ridge penalties, of which the training labels choose one by leave-one-out."""


class FilterStatus(Enum):
    """Status of a filter, the worst first; the value is the sentence for the reader."""

    NO_AGREEMENT = "Do not use: on held-out labels, the classifier may rank documents no better than chance."
    BLIND_CUT = "Use with care: held-out labels do not show that documents above the cut are better than those below it."
    WEAK = "Use with care: on held-out labels, the classifier may rank fewer than 70 % of pairs as the labeler does."
    USABLE = "Usable: on held-out labels, the classifier ranks most pairs as the labeler does, also across the cut."


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """Share of pairs of held-out documents with different labels that the classifier ranks as the labeler does.

    `value` is the AUC if there are two labels; a random order has 0.5. `low` and `high` are the ends of its 90 % interval, by
    bootstrap over documents. `low` has one document more, ranked at random, so that a few right ones are no certainty. All are
    NaN without such pairs.
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return "no pairs" if math.isnan(self.value) else f"{self.value:.1%} [{self.low:.1%}, {self.high:.1%}]"


@dataclass(frozen=True, kw_only=True)
class CorpusPart:
    """One written corpus: its documents, bytes of UTF-8 text, mean score, and the SHA-256 of its file."""

    name: str
    documents: int
    text_bytes: int
    mean_score: float
    path: Path | None = None
    sha256: str = ""


@dataclass(frozen=True, kw_only=True, repr=False)
class FilteredCorpus:
    """Filtered corpus and its controls, with the agreement of classifier and labeler on held-out labels.

    `parts` are the whole corpus, the filtered one, random documents and shuffled tokens. `asked` counts the labels of this
    call; the others were in `labels.jsonl`. `means` are mean held-out labels above and below the cut, NaN without a document.
    """

    corpus: tuple[str, ...]
    out: Path
    keep: float
    seed: int
    prompt_sha256: str
    labeler: tuple[str, ...]
    labels: int
    asked: int
    held_out: int
    agreement: Agreement
    at_cut: Agreement
    means: tuple[float, float]
    threshold: float
    parts: tuple[CorpusPart, ...]
    warnings: tuple[str, ...]

    @property
    def status(self) -> FilterStatus:
        """The worst of what was found."""
        applies = {
            FilterStatus.NO_AGREEMENT: not self.agreement.low > _CHANCE,
            FilterStatus.BLIND_CUT: not self.at_cut.low > _CHANCE,
            FilterStatus.WEAK: self.agreement.low < _GOOD,
            FilterStatus.USABLE: True,
        }
        return next(status for status in FilterStatus if applies[status])

    @property
    def frame(self) -> pd.DataFrame:
        """One row per corpus: name, documents, bytes of text and mean score."""
        import pandas as pd

        return pd.DataFrame([_part_document(each) for each in self.parts]).drop(columns=["file", "sha256"])

    def document(self) -> dict[str, Any]:
        """Return the content of `filter.json`, with finite numbers or null."""
        return {
            "corpus": list(self.corpus),
            "prompt_sha256": self.prompt_sha256,
            "labeler": list(self.labeler),
            "keep": self.keep,
            "seed": self.seed,
            "labels": self.labels,
            "held_out_labels": self.held_out,
            "agreement": _agreement_document(self.agreement),
            "agreement_at_cut": _agreement_document(self.at_cut),
            "mean_label_above_cut": _finite(self.means[0]),
            "mean_label_below_cut": _finite(self.means[1]),
            "threshold": self.threshold,
            "parts": [_part_document(each) for each in self.parts],
            "warnings": list(self.warnings),
            "status": self.status.value,
            "tool": f"marin-scaling {__version__}",
        }

    def __str__(self) -> str:
        above, below = map(_shown, self.means)
        kept = f"; {self.labels - self.asked} were kept in {LABELS_NAME}" if self.asked < self.labels else ""
        rows = [
            f"  {each.name:<9} {each.documents:>10} {format_bytes(each.text_bytes):>10} {_shown(each.mean_score):>11}"
            for each in self.parts
        ]
        lines = [
            wrapped(f"labels: {self.labels} documents, {self.held_out} of them held out{kept}"),
            "agreement on held-out pairs of documents (chance 50 %; 90 % interval)",
            f"  all pairs       {self.agreement}",
            f"  across the cut  {self.at_cut}",
            wrapped(f"mean held-out label: {above} above the cut, {below} below", "  "),
            "",
            f"  {'corpus':<9} {'documents':>10} {'text':>10} {'mean score':>11}",
            *rows,
            "",
            *(wrapped(f"warning: {each}") for each in self.warnings),
            wrapped(f"status: {self.status.value}"),
        ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return (
            f"FilteredCorpus({self.out}: {self.parts[1].documents} of {self.parts[0].documents} documents, {self.status.name})"
        )


def filter_corpus(
    corpus: str | Path | Sequence[str | Path],
    *,
    prompt: str | Path,
    labeler: str | Sequence[str],
    out: Path | str,
    keep: float = 0.5,
    labels: int = 500,
    text_key: str = "text",
    tokenizer: str = BYTES,
    seed: int = 0,
) -> FilteredCorpus:
    """Keep the best share `keep` of a corpus, by bytes of text; write it and two controls of its size into the folder `out`.

    `corpus` names files as `files` in a ladder file does; `prompt` is a text, or the path of its file. `labeler` is a command,
    started once: it reads lines of JSON with `id`, `prompt` and `text`. It answers each with a line
    `{"id": ..., "score": ...}`: a number, or true or false, higher for better. Answers stay in `labels.jsonl`, so that a rerun
    asks for missing ones only. `filtered.jsonl`, `random.jsonl` and `shuffled.jsonl` appear together, and `filter.json` last.
    `tokenizer` is that of the ladders, whose tokens are shuffled; for bytes, characters are.

    `UsageError` for an option out of range or an unknown command. `DataError` for documents that cannot be read, a labeler that
    fails or answers wrongly, or labels too few or too equal. `MissingExtra` without scikit-learn.

    >>> import json, sys, tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> texts = [f"a clear sentence about {n}" if n % 2 else f"zx qv {n} kk zx" for n in range(200)]
    >>> _ = (folder / "all.jsonl").write_text("".join(json.dumps({"text": text}) + chr(10) for text in texts))
    >>> code = "import json, sys"
    >>> code += "\\nfor row in map(json.loads, sys.stdin):"
    >>> code += "\\n    print(json.dumps({'id': row['id'], 'score': 'clear' in row['text']}))"
    >>> command = [sys.executable, "-c", code]
    >>> found = filter_corpus(folder / "all.jsonl", prompt="Clear?", labeler=command, out=folder / "out", labels=60)
    >>> found.status.name, found.agreement.value
    ('USABLE', 1.0)
    """
    words = labeler_command(labeler)
    question = _question(prompt)
    _require_options(keep=keep, labels=labels, prompt=question)
    if importlib.util.find_spec("sklearn") is None or importlib.util.find_spec("fsspec") is None:
        raise missing_extra("data", needed_for="filtering a corpus")
    text = CorpusFiles(tuple(map(str, [corpus] if isinstance(corpus, str | Path) else corpus)), text_key)
    folder, tokenizes = Path(out), None if tokenizer == BYTES else load_tokenizer(tokenizer)  # half a character is no text
    sample = sampled(text, labels, seed=seed)
    asked = labelled(sample, prompt=question, words=words, path=folder / LABELS_NAME)
    learned = _learned(list(sample.values()), np.array([asked.scores[each] for each in sample]), folder, seed=seed)
    judged = _judged(text, learned.classifier)
    chosen = _chosen(judged, keep=keep, seed=seed)
    threshold = float(judged.scores[chosen[FILTERED]].min())
    known, above = learned.labels, learned.scores >= threshold
    parts = _written(text, judged, chosen, folder, tokenizes, seed=seed)
    found = FilteredCorpus(
        corpus=text.addresses,
        out=folder,
        keep=keep,
        seed=seed,
        prompt_sha256=sha256_hex(question.encode()),
        labeler=tuple(shown_command(words)),
        labels=len(sample),
        asked=asked.new,
        held_out=len(known),
        agreement=agreement(known, learned.scores, seed=seed),
        at_cut=agreement(known, above.astype(np.float64), seed=seed, among=above[:, None] != above),
        means=(_mean(known[above]), _mean(known[~above])),
        threshold=threshold,
        parts=parts,
        warnings=(*_unused(asked.unused, asked.new), *_warnings(judged, labels=labels, sampled=len(sample))),
    )
    replace_file(folder / REPORT_NAME, dump_canonical(found.document()))
    return found


def _unused(unused: int, new: int) -> tuple[str, ...]:
    told = f"{counted(unused, 'kept label')} were of another prompt, command or script, and {new} documents were asked for anew"
    return (told,) if unused else ()


def _warnings(judged: _Judged, *, labels: int, sampled: int) -> tuple[str, ...]:
    few = [f"the corpus has {sampled} different documents, and {labels} labels were wanted: all are labelled"]
    long = int(np.sum(judged.characters > _READ_CHARACTERS))
    cut = [f"the classifier read the first {_READ_CHARACTERS} characters only of {counted(long, 'document')}"]
    return (*(few if sampled < labels else ()), *(cut if long else ()))


def _question(prompt: str | Path) -> str:
    try:
        return prompt if isinstance(prompt, str) else read_bytes(prompt).decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{prompt}: it is not UTF-8 (byte {error.start}).", fix="Convert it (iconv).") from error


def _require_options(*, keep: float, labels: int, prompt: str) -> None:
    faults = [] if 0 < keep < 1 else [f"keep is {keep:g}, and a share lies between 0 and 1."]
    faults += [] if labels >= LEAST_LABELS else [f"{labels} labels are wanted, and a classifier needs {LEAST_LABELS}."]
    faults += [] if prompt.strip() else ["The prompt is empty."]
    if faults:
        raise UsageError(
            tuple(faults), fix=f"Use for instance --keep 0.5 --labels {max(labels, 500)}, and a file with a prompt."
        )


def _require_varied(scores: Array, folder: Path) -> None:
    """Raise `DataError` if too few labels differ from the commonest one."""
    (value, most), *_ = Counter(scores.tolist()).most_common(1)
    if (others := len(scores) - most) < LEAST_OTHERS:
        raise DataError(
            f"{most} of {len(scores)} labels are {value:g}, and {others} differ; a classifier needs {LEAST_OTHERS} that do.",
            why=f"The labels are in {folder / LABELS_NAME}.",
            fix=f"Ask for finer scores in the prompt, or for more labels: --labels {4 * len(scores)}",
        )


class _Classifier:
    """Ridge regression of scores on hashed words, pairs of words and short runs of characters."""

    def __init__(self, texts: Sequence[str], scores: Array) -> None:
        from sklearn.feature_extraction.text import HashingVectorizer
        from sklearn.linear_model import RidgeCV
        from sklearn.pipeline import make_pipeline, make_union

        words = HashingVectorizer(ngram_range=(1, 2), n_features=_FEATURES, token_pattern=r"\w+|[^\w\s]")
        characters = HashingVectorizer(preprocessor=_with_layout, analyzer="char", ngram_range=(1, 3), n_features=_FEATURES)
        self._model = make_pipeline(make_union(words, characters), RidgeCV(_PENALTIES))
        self._model.fit(list(map(_start, texts)), scores)

    def __call__(self, texts: Sequence[str]) -> Array:
        return np.asarray(self._model.predict(list(map(_start, texts))), dtype=np.float64)


@dataclass(frozen=True)
class _Learned:
    """Classifier, and labels and scores of the documents that it was not trained on: (document,)."""

    classifier: _Classifier
    labels: Array
    scores: Array


def _learned(texts: Sequence[str], labels: Array, folder: Path, *, seed: int) -> _Learned:
    """Train on four fifths of the labels; the other fifth is every fifth label in their order, at random among equal ones."""
    _require_varied(labels, folder)
    generator = np.random.default_rng([seed, 1])
    order = np.lexsort((generator.random(len(labels)), labels))
    held_out = generator.permutation(order[HELD_OUT_EVERY // 2 :: HELD_OUT_EVERY])
    train = np.setdiff1d(order, held_out)
    classifier = _Classifier([texts[n] for n in train], labels[train])
    return _Learned(classifier, labels[held_out], classifier([texts[n] for n in held_out]))


def _with_layout(text: str) -> str:
    """Return a text whose white space is visible, since scikit-learn takes every run of it for one space."""
    return text.translate(_LAYOUT)


def _start(text: str) -> str:
    return text[:_READ_CHARACTERS]


def agreement(labels: Array, scores: Array, *, seed: int = 0, among: NDArray[np.bool_] | None = None) -> Agreement:
    """Return the share of pairs with different labels that scores rank alike, (document,) each; equal scores count half.

    Only pairs in `among`, (document, document), are counted, of the first 2,000 documents. For two labels the share is the AUC
    (Hanley and McNeil 1982).

    >>> agreement(np.array([0.0, 0, 1, 2]), np.array([0.1, 0.3, 0.2, 0.9])).value
    0.8
    """
    labels, scores = labels[:_MOST_HELD_OUT], scores[:_MOST_HELD_OUT]
    generator, size = np.random.default_rng([seed, 2]), len(labels)
    order = np.sign(labels[:, None] - labels)
    pairs = np.abs(order) * (1 if among is None else among[:size, :size])
    alike = pairs * (1 + order * np.sign(scores[:, None] - scores)) / 2
    if not pairs.any():
        return Agreement(value=math.nan, low=math.nan, high=math.nan)
    counts = generator.multinomial(size, np.full(size, 1 / size), size=_DRAWS).astype(np.float64)
    right, total = (np.sum((counts @ each) * counts, axis=1) for each in (alike, pairs))
    draws = right[total > 0] / total[total > 0]
    tail = (1 - _INTERVAL) / 2
    low = float(np.quantile((draws + 1 / size) / (1 + 2 / size), tail))
    return Agreement(value=float(alike.sum() / pairs.sum()), low=low, high=float(np.quantile(draws, 1 - tail)))


@dataclass(frozen=True)
class _Judged:
    """Score, bytes and characters of each document of a corpus, (document,) each."""

    scores: Array
    sizes: NDArray[np.int64]
    characters: NDArray[np.int64]


def _judged(corpus: CorpusFiles, classifier: _Classifier) -> _Judged:
    scores, sizes, characters = list[Array](), list[int](), list[int]()
    documents = iter(corpus)
    while batch := [text for _where, text in itertools.islice(documents, _BATCH)]:
        scores.append(classifier(batch))
        sizes += [len(text.encode()) for text in batch]
        characters += map(len, batch)
    return _Judged(np.concatenate(scores), np.array(sizes), np.array(characters))


def _chosen(judged: _Judged, *, keep: float, seed: int) -> dict[str, NDArray[np.bool_]]:
    """Return the documents of the filtered corpus and of the random one, as masks: (document,).

    The best documents are taken as long as they fit into the share `keep` of all bytes, at least one; random ones as they fit
    into the bytes of these.
    """
    generator = np.random.default_rng([seed, 3])
    best = np.lexsort((generator.random(len(judged.scores)), -judged.scores))
    total = np.cumsum(judged.sizes[best])
    number = max(1, int(np.searchsorted(total, keep * total[-1], side="right")))
    filtered, random = np.zeros((2, len(best)), dtype=np.bool_)
    filtered[best[:number]] = True
    left = int(total[number - 1])
    for place in generator.permutation(len(best)).tolist():
        if judged.sizes[place] <= left:
            random[place] = True
            left -= int(judged.sizes[place])
    return {FILTERED: filtered, RANDOM: random}


def shuffled_tokens(text: str, generator: np.random.Generator, tokenizer: Tokenizer | None = None) -> str:
    """Return a text with its tokens in random order; without a tokenizer, its characters.

    >>> sorted(shuffled_tokens("b a", np.random.default_rng(0)))
    [' ', 'a', 'b']
    """
    if tokenizer is None:
        return "".join(text[n] for n in generator.permutation(len(text)).tolist())
    (tokens,) = tokenizer.encode([text])
    (shuffled,) = tokenizer.decode([generator.permutation(tokens)])
    return shuffled


def _written(
    corpus: CorpusFiles,
    judged: _Judged,
    chosen: Mapping[str, NDArray[np.bool_]],
    folder: Path,
    tokenizer: Tokenizer | None,
    *,
    seed: int,
) -> tuple[CorpusPart, ...]:
    """Write the filtered corpus and its controls, all or none of them; the parts begin with the whole corpus."""
    masks = {**chosen, SHUFFLED: chosen[FILTERED]}
    generator = np.random.default_rng([seed, 4])
    with disk_errors(folder, "written"), contextlib.ExitStack() as stack:
        folder.mkdir(parents=True, exist_ok=True)
        making = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder, prefix=".being-made-")))
        files = {name: stack.enter_context(open(making / f"{name}.jsonl", "wb")) for name in masks}
        count, sizes, digests = 0, Counter[str](), {name: hashlib.sha256() for name in masks}
        for count, (where, text) in enumerate(corpus, start=1):  # the number of documents
            if count > len(judged.sizes) or len(text.encode()) != judged.sizes[count - 1]:
                raise corpus.changed()
            for name in (name for name, mask in masks.items() if mask[count - 1]):
                written = shuffled_tokens(text, generator, tokenizer) if name == SHUFFLED else text
                sizes[name] += len(written.encode(errors="replace"))
                row = {"text": written, "source": where, "score": float(judged.scores[count - 1])}
                line = json.dumps(row, ensure_ascii=False).encode(errors="replace") + b"\n"
                digests[name].update(line)
                files[name].write(line)
        if count < len(judged.sizes):
            raise corpus.changed()
        for file in files.values():
            file.close()
        sync_folder(making)
        (folder / REPORT_NAME).unlink(missing_ok=True)
        for name in masks:
            os.replace(making / f"{name}.jsonl", folder / f"{name}.jsonl")
    whole = np.ones(len(judged.sizes), dtype=np.bool_)
    written_parts = [
        _part(name, judged, mask, folder / f"{name}.jsonl", digests[name].hexdigest()) for name, mask in masks.items()
    ]
    return (_part("whole", judged, whole), *(replace(each, text_bytes=sizes[each.name]) for each in written_parts))


def _part(name: str, judged: _Judged, mask: NDArray[np.bool_], path: Path | None = None, sha256: str = "") -> CorpusPart:
    mean = math.nan if name == SHUFFLED else _mean(judged.scores[mask])
    size = int(judged.sizes[mask].sum())
    return CorpusPart(name=name, documents=int(mask.sum()), text_bytes=size, mean_score=mean, path=path, sha256=sha256)


def _mean(values: Array) -> float:
    return float(values.mean()) if len(values) else math.nan


def _shown(value: float) -> str:
    return "none" if math.isnan(value) else f"{value:.3g}"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _agreement_document(each: Agreement) -> dict[str, float | None]:
    return {"value": _finite(each.value), "q05": _finite(each.low), "q95": _finite(each.high)}


def _part_document(each: CorpusPart) -> dict[str, Any]:
    return {
        "name": each.name,
        "documents": each.documents,
        "text_bytes": each.text_bytes,
        "mean_score": _finite(each.mean_score),
        "file": each.path.name if each.path else None,
        "sha256": each.sha256 or None,
    }
