"""The loss curve of a run in the making: one JSON number a line and step, appended and flushed, so that a kill loses nothing.

After a restart the steps that are trained again replace what stood there; a curve is not longer than what can be read of it
without a gap. The digest of the steps before a checkpoint lies beside it: a curve with a changed number is none. Finished
curves are `history.json` in the store.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from marin_scaling.canonical_json import sha256_hex
from marin_scaling.durable_files import read_own_bytes, replace_file
from marin_scaling.run.run_record import History, HistoryRow


class LossCurve:
    """Training loss in nats per token, step after step from step 0; None where it was not finite.

    Opened on the file of an earlier attempt it holds what stands there, up to the first line that is torn or no number, as a
    kill or a power cut leaves it; the steps from there on are trained again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._losses = recorded_losses(path)
        self._file = open(path, "a", encoding="ascii")  # noqa: SIM115  # closed by __exit__

    def __enter__(self) -> LossCurve:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    @property
    def steps_done(self) -> int:
        """Number of steps in the curve."""
        return len(self._losses)

    def last_finite(self) -> float | None:
        """The newest finite loss, or None."""
        return next((loss for loss in reversed(self._losses) if loss is not None), None)

    def first_finite(self) -> float | None:
        """The oldest finite loss, or None."""
        return next((loss for loss in self._losses if loss is not None), None)

    def truncate(self, steps_done: int) -> None:
        """Forget the steps from `steps_done` on, which are about to be trained again; ValueError when there are fewer."""
        if steps_done > self.steps_done:
            raise ValueError(f"{self._path} holds {self.steps_done} steps, not {steps_done}")
        self._losses = self._losses[:steps_done]
        self._seal()  # first: of a longer file it is the digest of the beginning
        self._file.close()
        replace_file(self._path, "".join(map(_line, self._losses)).encode("ascii"))
        self._file = open(self._path, "a", encoding="ascii")  # noqa: SIM115

    def add(self, loss_nats_per_token: float | None) -> int:
        """Append the next step and return its number."""
        self._losses.append(loss_nats_per_token)
        self._file.write(_line(loss_nats_per_token))
        self._file.flush()
        return len(self._losses) - 1

    def sync(self) -> None:
        """Bring what was added to the disk, so that no checkpoint outlives the steps before it."""
        os.fsync(self._file.fileno())
        self._seal()

    def _seal(self) -> None:
        replace_file(_seal_of(self._path), _digest(self._losses))

    def history(self, *, spec_digest: str) -> History:
        """The whole curve as the document that goes into the store."""
        rows = tuple(HistoryRow(step=step, train_loss_nats_per_token=loss) for step, loss in enumerate(self._losses))
        return History(spec_digest=spec_digest, rows=rows)


def recorded_losses(path: Path) -> list[float | None]:
    """The losses that a curve holds so far, by step; none where there is no file, or where a sealed step was changed."""
    losses = list(_read_losses(path)) if path.exists() else []
    kept = _seal_of(path)
    if not kept.exists():
        return losses
    sealed = read_own_bytes(kept)
    count = sealed.partition(b" ")[0]
    return losses if count.isdigit() and sealed == _digest(losses[: int(count)]) else []


def forget_seal(path: Path) -> None:
    """Remove the digest beside a curve that another one takes the place of."""
    _seal_of(path).unlink(missing_ok=True)


def _seal_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.sha256")


def _digest(losses: Sequence[float | None]) -> bytes:
    return f"{len(losses)} {sha256_hex(''.join(map(_line, losses)).encode())}".encode()


def _line(loss: float | None) -> str:
    return json.dumps(loss) + "\n"


def _read_losses(path: Path) -> Iterator[float | None]:
    """The losses up to the first line that is not one of ours."""
    for line in read_own_bytes(path).splitlines(keepends=True):
        try:
            loss = json.loads(line)
        except ValueError:  # torn, or not text at all
            return
        if not line.endswith(b"\n") or not (loss is None or (type(loss) is float and math.isfinite(loss))):
            return
        yield loss
