"""Label a sample of documents by a command that reads and writes lines of JSON; labels of earlier calls are kept in a file."""

from __future__ import annotations

import hashlib
import heapq
import json
import math
import os
import shlex
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from marin_scaling.canonical_json import digest_of, sha256_hex
from marin_scaling.data.documents import Document, documents_in, files_at
from marin_scaling.errors import DataError, UsageError
from marin_scaling.files import read_bytes, read_own_bytes, replace_file
from marin_scaling.printable import FAULTS_NAMED, VALUE_CHARACTERS, joined, quoted
from marin_scaling.units import counted
from marin_scaling.untrusted_files import child_environment, program

LABELS_NAME = "labels.jsonl"
LEAST_LABELS = 50
"""Labels that a classifier needs: a fifth of them, ten, is held out."""

_STDERR_LINES = 5
_MOST_DIGESTED = 1024 * 1024
"""Bytes of a file in the labeler's command, such as a script, up to which a change of its content asks for new labels."""


def labeler_command(labeler: str | Sequence[str]) -> list[str]:
    """Return the words of a command with the path of its program; `UsageError` if it is not installed."""
    fix = "Give a command that reads and writes JSON lines, such as --labeler 'python label.py'."
    try:
        words = shlex.split(labeler) if isinstance(labeler, str) else list(labeler)
        if not words:
            raise UsageError("The labeler is an empty command.", fix=fix)
        return [program(words[0]), *words[1:]]
    except (ValueError, FileNotFoundError) as error:
        reason = str(error).lower() if isinstance(error, ValueError) else f"{quoted(words[0])} is not installed"
        raise UsageError(f"The labeler {quoted(labeler)!r} cannot be started: {reason}.", fix=fix) from error


def shown_command(words: Sequence[str]) -> list[str]:
    """Return a command for a report: its program and files by name; other words may be keys, and are left out.

    >>> shown_command(["/usr/bin/python3", "--key", "abc"])
    ['python3', '...', '...']
    """
    return [os.path.basename(words[0]), *(word if os.path.isfile(word) else "..." for word in words[1:])]


@dataclass(frozen=True)
class CorpusFiles:
    """Documents of some files, which are read several times."""

    patterns: tuple[str, ...]
    text_key: str
    addresses: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        try:
            found = [address for pattern in self.patterns for address in files_at(pattern)]
        except ValueError as error:  # of an unknown file system
            raise UsageError(f"{joined(self.patterns)}: {error}.", fix="Name files, such as 'corpus/*.jsonl'.") from error
        except DataError as error:
            raise DataError(error.lines, why=error.why, fix="Name files, such as 'corpus/*.jsonl'.") from error
        object.__setattr__(self, "addresses", tuple(dict.fromkeys(found)))

    def __iter__(self) -> Iterator[Document]:
        fix = f"Fix the file; --text-key KEY names the key of the text, which is {self.text_key!r} now."
        for address in self.addresses:
            try:
                for where, text in documents_in(address, text_key=self.text_key):
                    text.encode()
                    yield where, text
            except UnicodeEncodeError as error:
                raise DataError(
                    f"{where}: half of a surrogate pair at character {error.start}.", fix="Fix the file."
                ) from error
            except DataError as error:
                raise DataError(error.lines, why=error.why, fix=fix) from error

    def changed(self) -> DataError:
        """Return the error for a corpus that is not what it was a moment ago."""
        return DataError(f"{joined(self.patterns)} changed while it was read.", fix="Rerun when no program writes to it.")


def sampled(corpus: CorpusFiles, number: int, *, seed: int) -> dict[str, str]:
    """Return different documents by digest: those whose digests with the seed are the smallest, whatever their order."""
    digests = ((hashlib.sha256(text.encode()).hexdigest(), text) for _where, text in corpus)
    found: list[tuple[int, str, str]] = []
    held = set[str]()
    for digest, text in digests:
        rank = -int.from_bytes(hashlib.blake2b(f"{seed} {digest}".encode(), digest_size=8).digest())
        if digest in held or (len(found) == number and rank < found[0][0]):
            continue
        held.add(digest)
        heapq.heappush(found, (rank, digest, text))
        if len(found) > number:
            held.remove(heapq.heappop(found)[1])
    if len(found) < LEAST_LABELS:
        raise DataError(
            f"{joined(corpus.patterns)} has {counted(len(found), 'different document')}; a classifier needs {LEAST_LABELS}.",
            fix="Give a larger corpus.",
        )
    return {digest: text for _rank, digest, text in sorted(found, reverse=True)}


@dataclass(frozen=True)
class Labels:
    """Scores by the digest of a document, how many of them are new, and how many of another command or prompt were not used."""

    scores: Mapping[str, float]
    new: int
    unused: int = 0


def labelled(sample: Mapping[str, str], *, prompt: str, words: Sequence[str], path: Path) -> Labels:
    """Return a score for each document of a sample; those of an earlier call with equal prompt and labeler are in `path`."""
    request = digest_of({"prompt": prompt, "labeler": [os.path.basename(words[0]), *words[1:]], "files": _digests_of(words)})
    kept = _kept(path)
    scores = {digest: kept[key] for digest in sample if (key := (request, digest)) in kept}
    wanted = {digest: text for digest, text in sample.items() if digest not in scores}
    unused = len({digest for _, digest in kept} & wanted.keys())
    if wanted:
        answers = _Answers(wanted=wanted)
        try:
            _ask(answers, prompt=prompt, words=words)
        finally:
            kept |= {(request, digest): score for digest, score in answers.scores.items()}
            rows = [{"request": r, "document": d, "score": score} for (r, d), score in sorted(kept.items())]
            if answers.scores:
                replace_file(path, "".join(json.dumps(row) + "\n" for row in rows).encode())
        answers.refuse(path)
        scores |= answers.scores
    return Labels(scores=scores, new=len(wanted), unused=unused)


def _digests_of(words: Sequence[str]) -> list[str]:
    """Return digests of the small files in a command, such as its script."""
    files = [Path(word) for word in words if os.path.isfile(word) and os.path.getsize(word) <= _MOST_DIGESTED]
    return [sha256_hex(read_own_bytes(path)) for path in files]


def _kept(path: Path) -> dict[tuple[str, str], float]:
    """Return the labels of earlier calls by request and document; `DataError` lists malformed lines."""
    lines = read_bytes(path).decode("utf-8", "replace").splitlines() if path.exists() else []
    found, bad = dict[tuple[str, str], float](), list[int]()
    for number, line in enumerate(lines, start=1):
        row = _json_row(line)
        score = _score(row.get("score"))
        if score is None or not isinstance(row.get("request"), str) or not isinstance(row.get("document"), str):
            bad.append(number)
        else:
            found[row["request"], row["document"]] = score
    if bad:
        listed = joined(map(str, bad), most=FAULTS_NAMED)
        raise DataError(
            f"{path}, line {listed}: no label of a document.", fix=f"Remove these lines, or {path}: rm {shlex.quote(str(path))}"
        )
    return found


def _json_row(line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


def _score(cell: Any) -> float | None:
    """Return the number of an answer; None for anything but a finite number, true or false.

    >>> _score(True), _score(3), _score("3"), _score(float("nan"))
    (1.0, 3.0, None, None)
    """
    try:
        return float(cell) if isinstance(cell, int | float) and math.isfinite(cell) else None
    except OverflowError:
        return None


@dataclass
class _Answers:
    """Answers of a labeler, with everything that is wrong with them."""

    wanted: Mapping[str, str]
    scores: dict[str, float] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    faults: Counter[str] = field(default_factory=Counter)
    """Number of lines by what is wrong with them."""
    examples: dict[str, str] = field(default_factory=dict)
    """First line of each fault."""
    ended: str = ""
    stderr: tuple[str, ...] = ()

    def take(self, number: int, line: str) -> None:
        """Take one line of output."""
        row = _json_row(line)
        name, score = row.get("id"), _score(row.get("score"))
        fault = ""
        if not row:
            fault = "without a JSON object"
        elif not isinstance(name, str) or name not in self.wanted:
            fault = "with the id of no document"
        elif score is None:
            fault = "whose score is not a number"
        elif name in self.seen:
            fault = "about a document that was answered before"
            self.scores.pop(name, None)
        else:
            self.scores[name] = score
            self.seen.add(name)
        if fault:
            self.faults[fault] += 1
            self.examples.setdefault(fault, f"line {number}: {quoted(line.strip(), VALUE_CHARACTERS)}")

    def refuse(self, path: Path) -> None:
        """Raise `DataError` if the labeler failed, answered wrongly, or left documents out."""
        missing, total = len(self.wanted) - len(self.scores), len(self.wanted)
        if not (self.ended or self.faults or missing):
            return
        kept = f" {path} keeps {counted(len(self.scores), 'answer')}" if self.scores else ""
        if missing:
            kept += f": the same command and script are asked for the other {missing}, a changed one for all {total}."
        else:
            kept += ", all that are needed: rerun the same command."
        raise DataError(
            (
                f"The labeler answered {len(self.scores)} of {total} documents{self.ended}.",
                *(f"{counted(n, 'line')} {fault}, first {self.examples[fault]}" for fault, n in self.faults.items()),
                *(f"stderr: {quoted(line, 500)}" for line in self.stderr if self.ended or not self.scores),
            ),
            why='Each line with "id", "prompt" and "text" is answered by one line {"id": ..., "score": ...}.',
            fix=f"Fix the labeler.{kept if self.scores else ''}",
        )


def _ask(answers: _Answers, *, prompt: str, words: Sequence[str]) -> None:
    """Start the labeler, give it a line of JSON for each document, and take its answers as they come."""
    with tempfile.TemporaryFile() as questions, tempfile.TemporaryFile() as errors:
        for digest, text in answers.wanted.items():
            questions.write(json.dumps({"id": digest, "prompt": prompt, "text": text}).encode() + b"\n")
        questions.seek(0)
        status = _exchange(answers, words, questions, errors)
        errors.seek(0)
        answers.stderr = tuple(errors.read().decode("utf-8", "replace").splitlines()[-_STDERR_LINES:])
    if status:
        answers.ended = f" and ended with {f'signal {-status}' if status < 0 else f'status {status}'}"


def _exchange(answers: _Answers, words: Sequence[str], questions: IO[bytes], errors: IO[bytes]) -> int:
    environment = child_environment(os.environ)
    try:
        process = subprocess.Popen(words, env=environment, stdin=questions, stdout=subprocess.PIPE, stderr=errors)
    except OSError as error:
        raise UsageError(
            f"{quoted(words[0])} cannot be started: {error.strerror}.", fix="Check the labeler's command."
        ) from error
    with process:
        assert process.stdout is not None
        try:
            for number, line in enumerate(process.stdout, start=1):
                if line.strip():
                    answers.take(number, line.decode("utf-8", "replace"))
        except BaseException:
            process.kill()
            raise
        return process.wait()
