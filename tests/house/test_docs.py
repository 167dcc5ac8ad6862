"""The documentation: its Python runs and prints what the page shows; its tables and its reference are complete."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import pkgutil
import re

import matplotlib
import pytest
from pages import DOCS, ROOT, blocks, words

import elman

HOW_TO = [page for page in sorted((DOCS / "howto").glob("*.md")) if page.stem != "index"]
PAGES = [ROOT / "README.md", DOCS / "tutorial.md", *HOW_TO]


def skipped(mark):
    """Whether a block is only to be read: ``not run`` always, ``needs PACKAGE`` where that is not installed."""
    if mark is None:
        return False
    if mark.startswith("needs "):
        return importlib.util.find_spec(mark.removeprefix("needs ")) is None
    assert mark == "not run", f"unknown mark {mark!r}"
    return True


@pytest.fixture
def quiet_pyplot():
    """No window, and no figure left behind."""
    import matplotlib.pyplot as plt

    before = matplotlib.get_backend()
    plt.switch_backend("Agg")
    yield
    plt.close("all")
    plt.switch_backend(before)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_runs_and_prints_what_the_page_shows(page, quiet_pyplot, restore_threads, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "page"}
    for line, mark, code, output in blocks(page):
        if skipped(mark):
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            # the empty lines put the page's own line number into a traceback
            exec(compile("\n" * (line - 1) + code, str(page), "exec"), namespace)
        if output is not None:
            assert words(printed.getvalue()) == words(output), f"{page.name}, line {line}"


def test_the_first_example_warns_of_nothing(run_script, tmp_path):
    """As ``python -W error`` runs it: no warning at import, in a first call, or from the packages below."""
    _, _, code, _ = blocks(ROOT / "README.md")[0]
    assert "elman.fit(" in code
    run_script(f"import os\nos.chdir({str(tmp_path)!r})\n{code}", PYTHONWARNINGS="error", MPLBACKEND="Agg")


def test_pages_have_blocks_to_run():
    """Every page shows Python, and much of it with its output."""
    counts = {page.stem: len(blocks(page)) for page in PAGES}
    assert all(counts.values()), counts
    assert sum(output is not None for page in PAGES for *_, output in blocks(page)) >= 15


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rate -0.1392 nats, 95 % [-1e-3, +2.5]", ["rate # nats, # % [#, #]"]),
        ("horizon  51.44* steps\n\n(44, 265, 1)", ["horizon # steps", "", "(#, #, #)"]),
        ("vanishing at 99 %", ["vanishing at # %"]),
    ],
)
def test_words_ignore_numbers_only(text, expected):
    assert words(text) == expected


def test_the_map_is_that_of_the_modules_as_they_are():
    code = (DOCS / "architecture_map.py").read_text(encoding="utf-8")
    names = {"__name__": "architecture_map", "__file__": str(DOCS / "architecture_map.py")}
    exec(compile(code, "architecture_map.py", "exec"), names)
    assert names["page"]() == (DOCS / "architecture.md").read_text(encoding="utf-8"), "python docs/architecture_map.py"


def reference():
    return "\n".join(page.read_text(encoding="utf-8") for page in sorted((DOCS / "reference").glob("*.md")))


def test_every_public_name_is_in_the_reference():
    text = reference()
    missing = [name for name in elman.__all__ if not re.search(rf"\belman\.{name}\b", text)]
    assert not missing


def documented():
    """Objects that a directive of the reference shows; of a module, also its own public functions and classes."""
    for directive, name, options in re.findall(r"^\.\. (?:auto|py:)(\w+):: (\S+)\n((?:   :.*\n)*)", reference(), re.M):
        thing = pkgutil.resolve_name(name)
        yield thing
        if directive == "module" and ":no-members:" not in options:
            yield from (getattr(thing, each) for each in getattr(thing, "__all__", vars(thing)))


def test_every_public_name_of_a_part_is_in_the_reference():
    shown = list(documented())
    parts = [m.name for m in pkgutil.walk_packages(elman.__path__, "elman.") if m.ispkg]
    modules = [module for module in map(importlib.import_module, parts) if hasattr(module, "__all__")]
    assert len(modules) > 10
    for module in modules:
        missing = [name for name in module.__all__ if not any(getattr(module, name) is each for each in shown)]
        assert not missing, module.__name__


def test_every_documented_object_exists():
    """Directives of autodoc name things that can be imported."""
    named = re.findall(r"^\.\. auto\w+:: (\S+)", reference(), re.M)
    assert len(named) > 40
    for name in named:
        parts = name.split(".")
        thing = elman
        for i, part in enumerate(parts[1:], start=2):
            try:
                # first: a function may have the name of its module
                thing = importlib.import_module(".".join(parts[:i]))
            except ImportError:
                thing = getattr(thing, part)


def test_links_between_pages_lead_somewhere():
    for page in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_nothing_refers_to_what_is_not_in_the_project():
    for page in DOCS.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"\.\./shared|/work/|/tmp/|/root/", text), page.name


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.stem)
def test_no_line_begins_with_a_percent_sign(page):
    """MyST takes such a line for a comment and drops it."""
    lines = page.read_text(encoding="utf-8").splitlines()
    assert not [n for n, line in enumerate(lines, 1) if line.lstrip().startswith("%")]
