"""How long the pages of preregistrations take by their number: verified, drawn, written, with index, feed and ladders.

Generated: signed with one key, forty to a ladder of four runs, every second one with its run and outcome; the numbers in them
are made up. The pages of their ladders, with law and figures, are in it; mkdocs, which comes after, is not.
Wanted: 1,000 within 60 s, in proportion to their number.
"""

from __future__ import annotations

import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

from report import ROOT, parser, publish

sys.path.insert(0, str(ROOT / "tests"))

from registration_factory import (
    CREATED_AT,
    DUE,
    PRINCIPAL,
    evidence,
    forecast_document,
    run_spec,
    signing_key,
    store_ladder,
    store_run,
)

from marin_scaling.canonical_json import dump_canonical
from marin_scaling.files import write_once
from marin_scaling.ladder.config import Promise
from marin_scaling.preregistration.layout import OUTCOME_NAME
from marin_scaling.preregistration.log import write_down
from marin_scaling.preregistration.register import answering_spec, statement_about, subject_files
from marin_scaling.preregistration.registry import allow_signer, register, signers_path
from marin_scaling.preregistration.verdict import verdict_on
from marin_scaling.publish.build import generated_pages

COUNTS = (10, 100, 1_000)
FOR_ONE_LADDER = 40
LATER = CREATED_AT + timedelta(days=3)


def make_registry(root: Path, *, count: int) -> None:
    """So many signed forecasts, each second one with its outcome."""
    registry, runs, key = root / "preregistrations", root / "runs", signing_key()
    registry.mkdir()
    allow_signer(registry, principal=PRINCIPAL, key=key.public_key, at=CREATED_AT)
    for number in range(count):
        ladder = f"ladder-{number // FOR_ONE_LADDER}"
        if number % FOR_ONE_LADDER == 0:
            rows = store_ladder(runs, ladder=ladder)
        target = run_spec(hidden_dim=128, train_steps=800 + number % FOR_ONE_LADDER, role="target", ladder=ladder)
        shown = evidence(rows, target=target, forecast=forecast_document(flops=target.flops))
        files, slug = subject_files(shown), f"{ladder}-{number}"
        statement = statement_about(
            files, target=target, slug=slug, principal=PRINCIPAL, created_at=CREATED_AT, promise=Promise(due=DUE)
        )
        signed = {**files, "statement.json": statement.raw, "statement.json.sig": key.sign(statement.raw)}
        register(registry, slug=slug, created_at=CREATED_AT, files=signed)
    write_down(registry, at=CREATED_AT)
    for folder in sorted(registry.glob("20*"))[::2]:
        _settle(folder, runs)
    write_down(registry, at=LATER)


def _settle(folder: Path, runs: Path) -> None:
    """Its run, and the outcome that `check` writes."""
    store_run(runs, spec=answering_spec(folder), loss=2.55, day="2026-11-21")
    verdict = verdict_on(folder, runs_dir=runs, allowed_signers=signers_path(folder), at=LATER)
    assert verdict.outcome is not None, verdict.sentence
    write_once(folder / OUTCOME_NAME, dump_canonical(verdict.outcome))


def measured(count: int) -> list[str]:
    """A row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        make_registry(Path(folder), count=count)
        began = time.perf_counter()
        files = generated_pages(Path(folder))
        seconds = time.perf_counter() - began
    pages = [name for name in files if name.startswith("preregistrations/") and name.endswith(".svg")]
    assert len(pages) == count, f"{len(pages)} of {count} were drawn: the others are refused"
    size = sum(map(len, files.values()))
    return [f"{count:,}", f"{seconds:.2f}", f"{1000 * seconds / count:.1f}", f"{size / count / 1000:.1f}"]


def main() -> None:
    options = parser(__doc__ or "").parse_args()
    publish(
        "The pages of preregistrations",
        columns=("preregistrations", "all pages s", "ms each", "kB of pages and pictures each"),
        rows=[measured(count) for count in COUNTS],
        packages=("cryptography", "altair"),
        notes=["Wanted: 1,000 within 60 s, in proportion to their number. mkdocs, which comes after, is not in it."],
        write=options.write,
    )


if __name__ == "__main__":
    main()
