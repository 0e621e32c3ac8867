"""`site build` in a stranger's repository runs none of its code, and reads and writes nothing outside of it."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from marin_scaling.errors import SiteError
from marin_scaling.publish.build import build_site, make_user_repository
from marin_scaling.untrusted_files import UnsafeTreeError

ROOT = Path(__file__).parents[2]
SECRET = "a word of this machine"
RUN = "import pathlib; pathlib.Path(__file__).with_name('ran').touch()\n"

REFUSED = {
    "hooks": "hooks: [evil.py]",
    "a plugin that is installed": "plugins: [search, tags]",
    "a plugin with options": "plugins: [{search: {indexing: x}}]",
    "a table of plugins": "plugins: {privacy: {}}",
    "an extension of the repository": "markdown_extensions: [evil]",
    "an extension with a path": "markdown_extensions: [{pymdownx.snippets: {base_path: [..]}}]",
    "an extension that downloads": "markdown_extensions: [{pymdownx.snippets: {url_download: true}}]",
    "an extension without its bounds": "markdown_extensions: [{pymdownx.snippets: {restrict_base_path: false}}]",
    "another extension that reads files": "markdown_extensions: [{pymdownx.b64: {base_path: /}}]",
    "options of a fence": "markdown_extensions: [{pymdownx.superfences: {custom_fences: [{name: x, class: x, format: x}]}}]",
    "a Python name": "markdown_extensions: [{toc: {slugify: !!python/name:os.getcwd }}]",
    "a Python object": "extra: !!python/object/apply:os.system [touch ran]",
    "a Python module": "site_description: !!python/module:evil",
    "a local tag": "site_name: !x y",
    "a variable": "site_description: !ENV SECRET",
    "a variable with a default": "copyright: !ENV [SECRET, x]",
    "a relative path by tag": "extra: {x: !relative $docs_dir}",
    "templates": "theme: {name: material, custom_dir: overrides}",
    "templates in a folder of an odd name": "theme: {name: material, custom_dir: None}",
    "templates elsewhere": "theme: {name: material, custom_dir: /etc}",
    "another theme": "theme: {name: mkdocs}",
    "a theme without a name": "theme: {name: null, custom_dir: overrides}",
    "a theme of text": "theme: evil",
    "an icon elsewhere": "theme: {name: material, icon: {logo: ../../../secret}}",
    "static templates": "theme: {name: material, static_templates: [evil.html]}",
    "another language": "theme: {name: material, language: ../../evil}",
    "another file of settings": "INHERIT: other.yml",
    "a merged table": "<<: {hooks: [evil.py]}",
    "pages elsewhere": "docs_dir: ..",
    "pages of the machine": "docs_dir: /etc",
    "a site elsewhere": "site_dir: ../other",
    "the root as the site": "site_dir: .",
    "watched folders": "watch: [/etc]",
    "a script from elsewhere": "extra_javascript: ['https://example.org/x.js']",
    "a script with settings": "extra_javascript: [{path: x.js, type: module}]",
    "a style from above": "extra_css: [../../x.css]",
    "a template": "extra_templates: [x.html]",
    "an address of edits": "edit_uri_template: '{path!r}'",
    "an address that is a script": "repo_url: 'javascript:alert(1)'",
    "a page that is a script": "nav: [{Home: 'javascript:alert(1)'}]",
    "a page above": "nav: [{Home: ../../secret.md}]",
    "raw HTML": "copyright: '<script>alert(1)</script>'",
    "an alias": "extra: &a {polyfills: []}\nvalidation: *a",
    "a key that is no text": "1: 2",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A new repository with code beside its settings, and a secret beside the repository."""
    (tmp_path / "secret.md").write_text(SECRET)
    root = tmp_path / "root"
    make_user_repository(root)
    (root / "evil.py").write_text(RUN)
    (root / "overrides").mkdir()
    (root / "overrides" / "main.html").write_text("{{ config.__class__ }}")
    (root / "other.yml").write_text("hooks: [evil.py]\n")
    return root


def settings_with(root: Path, text: str) -> None:
    path = root / "mkdocs.yml"
    key = text.partition(":")[0]
    kept: list[str] = []
    dropped = False
    for line in path.read_text().splitlines():
        if not line.startswith((" ", "#")):
            dropped = line.startswith(f"{key}:")
        if not dropped:
            kept.append(line)
    path.write_text("\n".join([*kept, text, ""]))


@pytest.mark.site
@pytest.mark.parametrize("form", REFUSED)
def test_a_setting_that_could_run_code_or_read_files_is_refused(form: str, root: Path) -> None:
    """Before a page is written, so also before mkdocs is started."""
    pytest.importorskip("material", reason="the site extra is not installed")
    settings_with(root, REFUSED[form])
    with pytest.raises(SiteError, match=r"mkdocs\.yml"):
        build_site(root)
    assert not (root / "site" / "generated").exists()
    assert not (root / "ran").exists()


@pytest.mark.site
def test_all_refused_settings_are_named_at_once(root: Path) -> None:
    pytest.importorskip("material", reason="the site extra is not installed")
    settings_with(root, "hooks: [evil.py]")
    settings_with(root, "plugins: [search, evil-plugin]")
    settings_with(root, "watch: [/etc]")
    with pytest.raises(SiteError) as refused:
        build_site(root)
    assert all(word in refused.value.what for word in ("hooks", "evil-plugin", "watch"))
    assert "'search'" not in refused.value.what


def a_linked_page(root: Path) -> None:
    (root / "site" / "x.md").symlink_to(root.parent / "secret.md")


def a_linked_folder(root: Path) -> None:
    (root / "site" / "x").symlink_to(root.parent)


def linked_pages(root: Path) -> None:
    (root / "site").rename(root / "pages")
    (root / "site").symlink_to(root / "pages")


def linked_generated_pages(root: Path) -> None:
    (root / "site" / "generated").symlink_to(root.parent / "elsewhere")


def a_linked_site(root: Path) -> None:
    (root / ".site").symlink_to(root.parent / "elsewhere")


def linked_settings(root: Path) -> None:
    (root / "mkdocs.yml").rename(root / "other.yml")
    (root / "mkdocs.yml").symlink_to(root / "other.yml")


def a_pipe(root: Path) -> None:
    os.mkfifo(root / "site" / "x.md")


@pytest.mark.site
@pytest.mark.parametrize(
    "lay", [a_linked_page, a_linked_folder, linked_pages, linked_generated_pages, a_linked_site, linked_settings, a_pipe]
)
def test_a_link_where_the_site_is_read_or_written_is_refused(lay: Callable[[Path], None], root: Path) -> None:
    """Mkdocs empties the folder of the site before it writes there."""
    pytest.importorskip("material", reason="the site extra is not installed")
    elsewhere = root.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    lay(root)
    with pytest.raises((SiteError, UnsafeTreeError)):
        build_site(root)
    assert [path.name for path in elsewhere.iterdir()] == ["kept"]


@pytest.mark.site
def test_mkdocs_imports_nothing_of_the_repository_and_knows_no_secret(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With files in the root that are called like modules, and search paths that hold the current folder."""
    pytest.importorskip("material", reason="the site extra is not installed")
    for module in ("mkdocs", "yaml", "markdown", "sitecustomize", "pygments"):
        (root / f"{module}.py").write_text(RUN)
    (root / "mkdocs-material.dist-info").mkdir()
    for name in ("git", "python", "python3"):
        (root / name).write_text("#!/bin/sh\ntouch ran\n")
        (root / name).chmod(0o755)
    monkeypatch.setenv("PATH", f":.:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", f":.:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    monkeypatch.chdir(root)
    assert build_site(root).is_file()
    assert not (root / "ran").exists()


@pytest.mark.parametrize("place", ["this repository", "a new one"])
def test_our_own_settings_are_allowed(place: str, root: Path) -> None:
    from marin_scaling.publish.build import require_plain_settings

    at = ROOT if place == "this repository" else root
    require_plain_settings(at)
