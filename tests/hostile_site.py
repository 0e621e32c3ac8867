"""A repository in which every text that a stranger controls is an attack on a reader's browser, or a harmless word."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from amendment_factory import lower, make_amendment
from forgery import BOB, CAROL, allow
from registration_factory import CREATED_AT, DUE, PRINCIPAL, forecast_document, make_registration, signing_key
from submission_factory import submission_document

from marin_scaling.ladder.config import Promise
from marin_scaling.preregistration.events.notice import give_notice
from marin_scaling.preregistration.log import write_down
from marin_scaling.preregistration.public_record import COLUMNS
from marin_scaling.publish.build import make_user_repository
from marin_scaling.speedrun.import_files import COLUMNS as BOARD_COLUMNS
from marin_scaling.speedrun.submission import parse_submission, write_confirmation

ROOT = Path(__file__).parents[1]
RUN = "window.PWNED='%s'"
ATTACKS = (
    f"<img src=x onerror={RUN}>",
    f'"><svg/onload={RUN}>',
    f"'-({RUN})-'",
    f"</script><script>{RUN}</script>",
    f"</title><script>{RUN}</script>",
    f"</textarea></style></noscript><script>{RUN}</script>",
    f"[x](javascript:{RUN})",
    f"![x](x){{: onerror={RUN} }}",
    f"{{: onmouseover={RUN} style=color:red }}",
    f'<!-- --><iframe srcdoc="<script>parent.{RUN}</script>">',
    f"&lt;img src=x onerror={RUN}&gt;",
    f"&#60;img src=x onerror={RUN}&#62;",
    f"&amp;lt;img src=x onerror={RUN}&amp;gt;",
    f"%3Cimg src=x onerror={RUN}%3E",
    f"``` <img src=x onerror={RUN}>",
    f"`` <img src=x onerror={RUN}> ``",
    f"| a | <img src=x onerror={RUN}>",
    f"\\<img src=x onerror={RUN}\\>",
    f"{{{{ config.site_name }}}}${{{RUN}}}{{% raw %}}",
    f"<details open ontoggle={RUN}>",
    f"[^1]: <img src=x onerror={RUN}>",
    f'<https://x/"onmouseover={RUN}>',
    f"]]><script>{RUN}</script>",
    f"\\u003cimg src=x onerror={RUN}\\u003e",
    f"@everyone #1 <a href=javascript:{RUN}>x</a>",
    f"<base href=//example.org><meta http-equiv=refresh content='0;url=javascript:{RUN}'>",
    f"<form action=javascript:{RUN}><button>x</button></form><object data=javascript:{RUN}>",
    f"datum.x; {RUN}; constructor.constructor('{{0}}')()",
    '--8<-- "index.md"',
    "!!! danger",
)
FOLDER_NAMES = ("<img src=x onerror=PWNED=1>", '"onload=PWNED=1 ', "a'--><svg onload=PWNED=1>", "[x](javascript:PWNED=1)")
Text = Callable[[str], str]


def build_repository(root: Path, *, hostile: bool) -> Path:
    """The repository: an experiment, a submission and rows for each attack, one forecast with all of them."""
    make_user_repository(root)
    _configure(root)
    texts = [_attack(each) if hostile else _word(number) for number, each in enumerate(ATTACKS)]
    for number, text in enumerate(texts):
        _experiment(root, number, text)
        _submission(root, number, text)
    _tracks_and_malformed(root, texts)
    _public_record(root, texts)
    _public_board(root, texts)
    for number, name in enumerate(FOLDER_NAMES):
        _ladder(root, name if hostile else f"ladder {number}", texts[number::2])
    _forecast(root, texts)
    return root


def _attack(attack: str) -> Text:
    return lambda where: attack.replace("%s", where)


def _word(number: int) -> Text:
    return lambda where: f"word {number} {where}"


def _configure(root: Path) -> None:
    """All extensions of this project's own site, and no navigation: every page is in it, with its title."""
    text = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[0]
    (root / "mkdocs.yml").write_text(text.replace("  nav: {omitted_files: ignore, not_found: warn}\n", ""))
    (root / "site" / "index.md").write_text('# Home\n\n[Forecasts](generated/index.md)\n\n--8<-- "generated/home.snippet"\n')


def _experiment(root: Path, number: int, text: Text) -> None:
    document = {
        "name": f"e{number}",
        "title": text("title"),
        "outcome": "worked",
        "authors": [{"name": text("author"), "affiliation": text("affiliation"), "url": "https://x.org/?a=(b)[c]&d"}],
        "topics": [text("topic"), "__proto__", "constructor"],
        "hypothesis": f"{text('hypothesis')}\n\n- {text('item')}\n> {text('quote')}\n\nhttps://x.org/)[y](javascript:x)",
        "conclusion": text("conclusion"),
        "metrics": [{"name": text("metric"), "said": text("said"), "unit": text("unit")}],
        "configuration": {text("key"): text("value"), "__proto__": {"a": 1}, "constructor": {"prototype": text("deep")}},
        "baseline": "e0" if number else "e1",
        "supersedes": ["e1"] if number > 1 else [],
        "steps": [
            {"name": "a", "what": text("what"), "data": [text("data")], "output": text("output")},
            {"name": "b", "inputs": ["a"]},
        ],
        "code": {"repository": "https://x.org/a", "path": text("path"), "command": text("command")},
        "links": {"issue": "https://x.org/#(javascript:x)", "other": ["https://x.org/?x=)](javascript:y)"]},
        "source": text("source"),
    }
    folder = root / "experiments" / f"e{number}"
    folder.mkdir(parents=True)
    (folder / "experiment.yaml").write_text(yaml.safe_dump(document))


def _submission(root: Path, number: int, text: Text) -> None:
    document: dict[str, Any] = submission_document()
    document |= {
        "name": f"hostile/n{number}",
        "track": "hostile",
        "title": text("title"),
        "description": f"{text('description')}\n\n1. {text('item')}",
        "authors": [{"name": text("author"), "affiliation": text("affiliation"), "url": "https://x.org/"}],
        "environment": {"python": text("python"), "packages": {text("package"): text("version")}},
        "lineage": {"parent": "hostile/n0" if number else "hostile/n1", "changes": [text("change")]},
        "verification": {"evidence": text("evidence")},
        "imported_from": text("imported"),
    }
    document["code"] |= {"command": text("command"), "path": text("path")}
    document["data"] |= {"name": text("data"), "tokenizer": text("tokenizer")}
    document["evaluation"] |= {"name": text("evaluation")}
    document["model"] |= {"config": {text("key"): text("value")}}
    document["compute"] = document["compute"] | {"hardware": document["compute"]["hardware"] | {"name": text("machine")}}
    folder = root / "speedruns" / "hostile" / f"n{number}"
    folder.mkdir(parents=True)
    path = folder / "submission.json"
    path.write_text(json.dumps(document))
    again = [seed | {"started_at": "2026-11-20T13:00:00Z", "finished_at": "2026-11-20T14:00:00Z"} for seed in document["seeds"]]
    retrained = parse_submission(json.dumps(document | {"seeds": again}).encode(), name="")
    write_confirmation(path, retrained, by=text("by"), at=datetime(2026, 11, 21, tzinfo=UTC))


def _tracks_and_malformed(root: Path, texts: list[Text]) -> None:
    place = root / "speedruns" / "tracks"
    place.mkdir()
    for number, text in enumerate(texts):
        name = "hostile" if number == 0 else f"t{number}"
        document = {"name": name, "title": text("track"), "description": text("description"), "data_name": text("data")}
        (place / f"{name}.yaml").write_text(yaml.safe_dump(document | {"evaluation_name": text("evaluation")}))
        bad = root / "experiments" / f"bad{number}"
        bad.mkdir()
        (bad / "experiment.yaml").write_text(yaml.safe_dump({"name": f"bad{number}", text("unknown"): 1}))
        worse = root / "speedruns" / f"bad{number}"
        worse.mkdir()
        (worse / "submission.json").write_text(json.dumps({text("unknown"): text("value")}))
        (root / "ladders" / f"bad{number}.yaml").write_text(yaml.safe_dump({"name": f"bad{number}", text("unknown"): 1}))


def _public_record(root: Path, texts: list[Text]) -> None:
    with open(root / "preregistrations" / "public-record.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for text in texts:
            cells = [text("run"), "2026-03-03", "https://x.org/a#x https://x.org/b", "", "1e21", "2.75", text("metric"), "1.9"]
            writer.writerow([*cells, "none", "2.75", "", text("caveat"), text("source")])


def _public_board(root: Path, texts: list[Text]) -> None:
    """A board of authors that are attacks, and boards that nothing can be read of."""
    folder = root / "speedruns" / "public"
    folder.mkdir()
    for board, name in {"board": "run", **{f"bad{number}": text("run") for number, text in enumerate(texts)}}.items():
        with open(folder / f"{board}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(BOARD_COLUMNS)
            for number, text in enumerate(texts):
                figures = [str(10**8 + number), "1e9", f"{10**17 + number}", "1e18", f"{1 + number / 100}", "60"]
                row = [f"{name}{number}", text("author"), *figures, "2025-06-28T06:42:45Z", "https://x.org/#(javascript:x)"]
                writer.writerow([*row, "https://x.org/?a=(b)[c]&d"])


def _ladder(root: Path, name: str, texts: list[Text]) -> None:
    folder = root / "runs" / name.replace("/", "_")
    shutil.copytree(ROOT / "runs" / "delphi", folder)
    head, *rows = csv.reader((folder / "runs.csv").read_text().splitlines())
    for number, row in enumerate(rows):
        row[0] = f"{texts[number % len(texts)]('run')} {number}"
    with open(folder / "runs.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*head, texts[0]("column"), "status"])
        for number, row in enumerate(rows):
            diverged = "diverged" if number % 7 == 3 else ""
            writer.writerow([*row, texts[number % len(texts)]("cell"), diverged])
    lines = "\n".join(text("source") for text in texts)
    (folder / "SOURCE.md").write_text(f"{lines}\n~~~\n```\n</code></pre>{texts[0]('end')}\n\n# {texts[1]('heading')}\n")


def _forecast(root: Path, texts: list[Text]) -> None:
    said = [text("promise") for text in texts]
    promise = Promise(
        due=DUE,
        resolver=CAROL,
        reviewers=(BOB,),
        void_if=tuple(said),
        assumptions=[{"text": text("assumed"), "if_false": text("if-false")} for text in texts],
        known_differences=tuple(said),
        related_runs_seen=tuple(said),
    )
    document = forecast_document(status=" ".join(said), warnings=said)
    document["law"] = f"E + A * C^-alpha {said[0]}"
    document["excluded"] = [{"run": text("excluded")[:60], "why": text("why")} for text in texts]
    document["predictions"][0]["sensitivity"] = [
        {"choice": text("choice"), "median": None, "why_none": text("why-none")} for text in texts
    ]
    document["predictions"][0]["bands"] |= {texts[0]("band"): 0.1}
    document["parameters"] |= {texts[0]("parameter"): 1.0}
    registration = make_registration(root, promise=promise, forecast=document)
    allow(root / "preregistrations", BOB, CAROL)
    later = CREATED_AT + timedelta(hours=1)
    make_amendment(registration.folder, reason=" ".join(said[:9]), at=later, **lower(registration.folder))
    give_notice(
        registration.folder,
        "deviate",
        key=signing_key(),
        principal=PRINCIPAL,
        at=later,
        reason=" ".join(said[9:18]),
        evidence=said[18],
        from_step=1,
    )
    write_down(root / "preregistrations", at=later)
