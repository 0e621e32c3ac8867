"""Which submissions a file of Marin's holds: the results of one run, or the table of the old board. Reads; writes nothing."""

from __future__ import annotations

from pathlib import Path

from marin_scaling.canonical_json import load_strict
from marin_scaling.durable_files import read_bytes
from marin_scaling.speedrun.marin_board import import_marin_board
from marin_scaling.speedrun.marin_results import import_marin_results
from marin_scaling.speedrun.submission import Submission

_ROOT, _RESULTS = "speedrun", "speedrun_results.json"


def import_file(path: Path) -> list[Submission]:
    """The submissions in a file of Marin's; `DocumentError` names what is malformed."""
    document = load_strict(read_bytes(path), name=str(path))
    if isinstance(document, list):
        return import_marin_board(document, source=path.name)
    return [import_marin_results(document, name=submission_name(path), source=path.name)]


def submission_name(path: Path) -> str:
    """What a results file is called: its folders below `speedrun`, or its own name with `__` for `/`.

    >>> submission_name(Path("experiments/speedrun/muon_llama_scaling/130m/speedrun_results.json"))
    'muon_llama_scaling/130m'
    >>> submission_name(Path("muon_llama_scaling__130m.json"))
    'muon_llama_scaling/130m'
    """
    if path.name != _RESULTS:
        return path.stem.replace("__", "/")
    folders = path.resolve().parts[:-1]
    below = [position for position, name in enumerate(folders) if name == _ROOT]
    return "/".join(folders[below[-1] + 1 :]) if below and folders[below[-1] + 1 :] else folders[-1]
