"""Files beside what a user reads: compiled code beside a law or a recipe, pictures in a cache, a registry that does not fit."""

import importlib.util
import py_compile
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from command_line import marin_scale, marin_scale_process
from git_repository import branch_off, commit
from registration_factory import make_registration, store_run

from marin_scaling.errors import SiteError, UsageError
from marin_scaling.fitting.custom_law import load_law
from marin_scaling.laws import SurfaceLaw
from marin_scaling.printable import LISTED, RUNS_DRAWN, plain
from marin_scaling.publish.build import require_plain_settings
from marin_scaling.run.table import simulate_ladder

ROOT = Path(__file__).parents[2]
LAW = "import marin_scaling as ms\nfrom lmfit import create_params\n"
LAW += "LAW = ms.custom_law(lambda flops, E, A: E + A * flops ** -0.1, create_params(E=1, A=1), name='honest')\n"
EVIL = "from pathlib import Path\nPath('ran').write_text('ran')\nclass Recipe:\n    name = 'evil'\n"


def with_another_compilation(path: Path, source: str) -> None:
    """Put the compilation of other code beside a module, in a form that Python loads without a look at the source."""
    other = path.with_name("other.py")
    other.write_text(EVIL)
    cached = Path(importlib.util.cache_from_source(str(path)))
    py_compile.compile(str(other), cfile=str(cached), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    other.unlink()
    path.write_text(source)


def test_a_law_is_the_file_that_was_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a compilation that lies beside it."""
    monkeypatch.chdir(tmp_path)
    with_another_compilation(tmp_path / "law.py", LAW)
    assert load_law("law.py:LAW").name == "honest"
    assert not (tmp_path / "ran").exists()


def test_a_law_behind_a_link_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As any other file of a repository."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "real.py").write_text(LAW)
    (tmp_path / "law.py").symlink_to("real.py")
    with pytest.raises(UsageError):
        load_law("law.py:LAW")


def test_a_trusted_recipe_is_the_module_that_was_read(tmp_path: Path) -> None:
    """Its compilation in the repository is of other code."""
    source = "from marin_scaling.recipe.quickstart import QuickstartRecipe\nclass Mine(QuickstartRecipe):\n    pass\n"
    with_another_compilation(tmp_path / "mine.py", source)
    shown = marin_scale_process("--trust-recipe", "mine:Mine", "recipe", "show", "mine:Mine", "--budget", "1e11", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert not (tmp_path / "ran").exists()


def test_a_trusted_recipe_is_source_and_no_library(tmp_path: Path) -> None:
    """Compiled code alone can be read by nobody."""
    with_another_compilation(tmp_path / "mine.py", "")
    shutil.move(importlib.util.cache_from_source(str(tmp_path / "mine.py")), tmp_path / "mine.pyc")
    (tmp_path / "mine.py").unlink()
    shown = marin_scale_process(
        "--trust-recipe", "mine:Recipe", "recipe", "show", "mine:Recipe", "--budget", "1e11", cwd=tmp_path
    )
    assert shown.returncode == 2


MARKUP = "</title><script>ran()</script>"
SETTINGS = {
    "site_name": f"site_name: '{MARKUP}'",
    "site_description": "site_description: 'x\"><script>ran()</script>'",
    "site_author": "site_author: 'x\" onload=ran() y=\"'",
    "repo_name": f"repo_name: '{MARKUP}'",
    "nav title": f"nav: [{{'{MARKUP}': index.md}}]",
    "palette": f"theme: {{name: material, palette: [{{media: '{MARKUP}', scheme: default}}]}}",
}


@pytest.mark.parametrize("form", SETTINGS)
def test_a_setting_of_the_site_holds_no_markup(form: str, tmp_path: Path) -> None:
    """The theme writes these texts into every page as they are."""
    (tmp_path / "mkdocs.yml").write_text(
        f"site_name: x\ndocs_dir: site\nsite_dir: .site\n{SETTINGS[form]}\n".replace(
            "site_name: x\n", "" if form == "site_name" else "site_name: x\n"
        )
    )
    with pytest.raises(SiteError):
        require_plain_settings(tmp_path)


@pytest.mark.parametrize("space", ["\u00a0", "\u3000", "\u2003", "\u1680", "\u202f \t"])
def test_a_space_before_a_workflow_command_does_not_hide_it(space: str) -> None:
    """A runner may trim what Unicode calls a space."""
    assert "::error" not in plain(f"{space}::error title=x::all is well")


def cache_of(home: Path) -> Path:
    return home / "marin-scaling" / "figures"


def test_a_figure_cache_in_the_repository_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pull request could put pictures there."""
    from marin_scaling.publish import figures

    monkeypatch.chdir(tmp_path)
    for home in (str(tmp_path / ".cache"), ".cache"):
        monkeypatch.setenv("XDG_CACHE_HOME", home)
        assert figures._cached(b"spec", ".svg", lambda: b"drawn") == b"drawn"
        assert not (tmp_path / ".cache").exists()


def test_a_cached_figure_that_was_changed_is_drawn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty one, too."""
    from marin_scaling.publish import figures

    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    figures._cached(b"spec", ".svg", lambda: b"drawn")
    (path,) = cache_of(tmp_path / "home").iterdir()
    assert figures._cached(b"spec", ".svg", lambda: b"again") == b"drawn"
    for content in (b"", b"<svg>other</svg>", path.read_bytes().replace(b"drawn", b"other")):
        path.write_bytes(content)
        assert figures._cached(b"spec", ".svg", lambda: b"again") == b"again"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_registration(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_index_says_that_a_registry_is_not_whole(root: Path) -> None:
    """A forecast that the log names was taken away."""
    from marin_scaling.publish.build import generated_pages, registry_fault

    assert not registry_fault(root)
    (folder,) = (path for path in (root / "preregistrations").iterdir() if path.is_dir())
    shutil.rmtree(folder)
    assert folder.name in registry_fault(root)
    assert "**Refused**" in generated_pages(root)["index.md"].decode()


def test_an_outcome_without_its_run_is_shown_as_claimed(root: Path) -> None:
    """In the index and on the page."""
    from one_page import page

    (folder,) = (path for path in (root / "preregistrations").iterdir() if path.is_dir())
    from marin_scaling.preregistration.register import answering_spec

    store_run(root / "runs", spec=answering_spec(folder), loss=2.5, day="2026-11-21")
    assert marin_scale("check", "all", cwd=root).returncode == 0
    assert "claimed" not in page(root, "index.md")
    shutil.rmtree(root / "runs")
    assert "claimed" in page(root, "index.md")
    assert "claimed" in page(root, f"preregistrations/{folder.name}.md")


def test_a_run_that_is_still_to_come_settles_nothing(root: Path) -> None:
    """Its record says that it began next year."""
    from marin_scaling.preregistration.register import answering_spec

    (folder,) = (path for path in (root / "preregistrations").iterdir() if path.is_dir())
    day = f"{datetime.now(UTC) + timedelta(days=30):%Y-%m-%d}"
    store_run(root / "runs", spec=answering_spec(folder), loss=2.5, day=day)
    assert marin_scale("check", "all", cwd=root).returncode == 1
    assert not (folder / "outcome.json").exists()


def test_runs_that_are_a_file_are_refused_without_a_traceback(root: Path) -> None:
    """In verify, check and review."""
    branch_off(root)
    shutil.rmtree(root / "runs", ignore_errors=True)
    (root / "runs").write_text("x")
    commit(root)
    for command in (("verify", "all"), ("check", "all"), ("review", "--base", "main")):
        done = marin_scale(*command, cwd=root)
        assert done.returncode in (1, 2)
        assert "Traceback" not in done.stderr
        assert "not a folder" in done.stdout + done.stderr


def test_large_tables_are_drawn_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time for a page is bounded: at most so many runs are drawn, and so many held-out runs forecast."""
    from marin_scaling.publish import ladder_page

    held = tmp_path / "runs" / "big"
    shutil.copytree(ROOT / "runs" / "delphi", held)
    rows = "\n".join(f"h{n},{1e21 * (1 + n / 1e4):.6e},1e9,{1e21 * (1 + n / 1e4) / 6e9:.6e},2.5" for n in range(3 * LISTED))
    (held / "heldout.csv").write_text(f"run,flops,params,tokens,loss\n{rows}\n")
    budgets = [1e18 * 2**n for n in range(5)]
    law = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
    runs = simulate_ladder(law, budgets_flops=budgets, sizes_per_budget=RUNS_DRAWN // 4, noise=0.001, seed=0)
    runs.frame.to_csv(held / "runs.csv", index=False)
    asked: list[int] = []
    forecast = ladder_page.forecast_runs

    def counted(result, targets):
        asked.append(len(targets))
        return forecast(result, targets)

    monkeypatch.setattr(ladder_page, "forecast_runs", counted)
    page = ladder_page.ladder_page(tmp_path, "big", promised=[])
    (picture,) = (content for path, content in page.files.items() if path.endswith("big.figures/runs.svg"))
    assert RUNS_DRAWN / 4 < picture.count(b'aria-roledescription="circle"') <= RUNS_DRAWN
    assert 0 < max(asked) <= LISTED
