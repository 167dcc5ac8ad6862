"""How long a module and a function may be; every module loads by itself; which packages a floor may import.

Who may import whom of ours is checked by import-linter, which can forbid packages but not list those that are allowed.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import elman

SOURCE = Path(elman.__file__).parent
MODULE_LINES, FUNCTION_LINES = 250, 60
PACKAGES = {
    "": [], "_lazy": [], "_version": [], "__main__": [], "errors": [], "files": [], "cells": [],
    "linearization": ["numpy", "scipy.sparse.linalg.LinearOperator"],
    "kernels": ["numpy", "numba", "llvmlite"],
    "diagnostics": ["numpy", "scipy"],
    "testing": ["numpy", "scipy"],
    "training": ["numpy", "tqdm"],
    "full_batch": ["numpy", "scipy.optimize", "tqdm"],
    "precompile": ["numpy", "tqdm"],
    "plotting": ["numpy", "scipy", "matplotlib"],
    "demo": ["numpy", "scipy", "matplotlib"],
    "interop": ["numpy", "torch", "keras", "onnx", "safetensors"],
}  # fmt: skip
"""By floor; all others may import NumPy. The standard library is free to all."""


def code_lines(text):
    """Number of lines that hold code: docstrings, comments and blank lines make nothing harder to follow."""
    documentable = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    nodes = (node for node in ast.walk(ast.parse(text)) if isinstance(node, documentable) and ast.get_docstring(node))
    docstrings = {n for node in nodes for n in range(node.body[0].lineno, node.body[0].end_lineno + 1)}
    lines = enumerate(map(str.strip, text.splitlines()), 1)
    return sum(bool(line) and line[0] != "#" and n not in docstrings for n, line in lines)


def too_long(text):
    """Functions that hold more than one idea, and the module if it does."""
    found = [f"{lines} lines of code"] if (lines := code_lines(text)) > MODULE_LINES else []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            documented = node.body[0].end_lineno if ast.get_docstring(node) else node.lineno - 1
            if node.end_lineno - documented > FUNCTION_LINES:
                found.append(f"{node.name}, line {node.lineno}: {node.end_lineno - documented} lines")
    return found


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_modules_and_functions_hold_one_idea_each(path):
    assert not too_long(path.read_text(encoding="utf-8"))


def test_what_is_too_long_is_found():
    lines = "    x = 1\n"
    assert too_long(f"def f():\n{lines * 60}") == ["f, line 1: 61 lines"]
    assert not too_long(f"def f():\n{lines * 59}")
    assert not too_long(f'def f():\n    """Words."""\n{lines * 60}')
    assert too_long("x = 1\n" * 251) == ["251 lines of code"]
    assert not too_long("x = 1\n# why\n\n" * 250)


def refused(floor, text):
    """Imports of packages that a floor may not know, or of the package itself from within it."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is None:
            # modules have small letters: what has not is a public name, asked of a package by what lies inside it
            found += [f"elman.{alias.name}" for alias in node.names if node.level > 1 and alias.name[0].isupper()]
    allowed = tuple(f"{name}." for name in [*sys.stdlib_module_names, *PACKAGES.get(floor, ["numpy"])])
    return [name for name in found if not f"{name}.".startswith(allowed)]


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_floor_imports_the_packages_that_are_its_own(path):
    first = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    assert not refused("" if first == "__init__" else first, path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("floor", "text"),
    [
        ("validation", "import pandas"),
        ("linearization", "import scipy.linalg"),
        ("linearization", "from scipy.sparse.linalg import eigs"),
        ("cells", "def f():\n    import numpy as np"),
        ("diagnostics", "if TYPE_CHECKING:\n    from numba import njit"),
        ("diagnostics", "from .. import RNN"),
        ("diagnostics", "from ... import RNN"),
        ("diagnostics", "from elman import RNN"),
        ("diagnostics", "import elman"),
    ],
)
def test_an_import_of_another_package_is_found(floor, text):
    assert len(refused(floor, text)) == 1
    assert not refused("linearization", "from scipy.sparse.linalg import LinearOperator\nimport os.path, numpy as np")


@pytest.mark.ci
def test_every_module_loads_first(run_script):
    """None needs another to have been loaded before it: no circle of imports is hidden by their order."""
    script = """
        import importlib, pkgutil, sys
        import elman
        names = [m.name for m in pkgutil.walk_packages(elman.__path__, "elman.") if "__main__" not in m.name]
        for name in names:
            for loaded in [m for m in sys.modules if m.startswith("elman.")]:
                del sys.modules[loaded]
            importlib.import_module(name)
        print(len(names))
    """
    assert int(run_script(script)) > 150
