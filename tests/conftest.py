"""Settings of all tests: examples by profile, nightly tests, and programs that tiny ladders of one session share."""

import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest
from example_counts import NIGHTLY, is_nightly
from hypothesis import settings

settings.register_profile("pull-request", deadline=None, max_examples=30)
settings.register_profile(NIGHTLY, deadline=None)
settings.load_profile("pull-request")


ROOT = Path(__file__).parents[1]
_TRAINS = re.compile(r"^pytestmark = \[?\s*pytest\.mark\.train\b", re.MULTILINE)
_IMPORTED = r"^(?:from|import) (?:levanter|haliax|jax|equinox|optax|marin_scaling\.train\.(?:{}))\b"


def _need_levanter() -> list[str]:
    """Modules whose tests all train, or that import Levanter, and the package's root, of which pytest reads all names."""
    found = [path for path in (ROOT / "tests").rglob("test_*.py") if _TRAINS.search(path.read_text("utf-8"))]
    package = {path: path.read_text("utf-8") for path in (ROOT / "marin_scaling" / "train").glob("*.py")}
    names, more = ["levanter_config"], [""]
    while more:
        importing = re.compile(_IMPORTED.format("|".join(names)), re.MULTILINE)
        more = [path.stem for path, text in package.items() if path.stem not in names and importing.search(text)]
        names += more
    found += [ROOT / "marin_scaling" / "__init__.py", *(path for path in package if path.stem in names)]
    return [*map(str, found)]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests marked `nightly`, except under `--hypothesis-profile=nightly`. Examples that need Levanter train."""
    need_levanter = {*_need_levanter()}
    for item in items:
        if isinstance(item, pytest.DoctestItem) and str(item.path) in need_levanter:
            item.add_marker("train")
    late = [] if is_nightly() else [item for item in items if item.get_closest_marker("nightly")]
    if late:
        config.hook.pytest_deselected(items=late)
        items[:] = [item for item in items if item not in late]


def pytest_configure(config: pytest.Config) -> None:
    """Set what workers and processes under test inherit: the folder of compiled programs, and one BLAS thread.

    With `-m "not train"`, modules are left out that would import Levanter, which takes ten seconds.
    """
    if config.option.markexpr.startswith("not train"):
        config.option.ignore = [*(config.option.ignore or []), *_need_levanter()]
    if not hasattr(config, "workerinput"):
        os.environ["MARIN_SCALING_TESTS_COMPILED"] = compiled = tempfile.mkdtemp(prefix="marin-scaling-compiled-")
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        _share_bytecode(Path(compiled) / "bytecode")


def _share_bytecode(folder: Path) -> None:
    """Where bytecode must not be written beside its source, write it here once, instead of compiling in each process."""
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        os.environ["PYTHONPYCACHEPREFIX"] = str(folder)


@pytest.fixture(autouse=True)
def _wide_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """Print sentences on one line, so that tests find facts in them."""
    monkeypatch.setenv("COLUMNS", "10000")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the folder once all workers have ended."""
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ["MARIN_SCALING_TESTS_COMPILED"], ignore_errors=True)
