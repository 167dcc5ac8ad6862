"""Who may import whom, held as data, and how long a module and a function may be.

The table is that of ``docs/architecture.md``. Every import statement counts, also one inside a function or one for type
checkers.
"""

from __future__ import annotations

import ast
import graphlib
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import elman

SOURCE = Path(elman.__file__).parent

BASE = {"errors", "validation", "linearization", "states", "targets", "results"}
FORMULAS = {"losses", "initializers"}
MODEL = BASE | FORMULAS | {"kernels", "cells", "layers", "training"}
LIBRARY = MODEL | {"diagnostics"}

FLOORS: dict[str, tuple[set[str], set[str]]] = {
    "_version": (set(), set()),
    "files": ({"validation", "errors"}, set()),
    "errors": (set(), set()),
    "validation": ({"errors"}, {"numpy"}),
    "_lazy": (set(), set()),
    "results": (set(), set()),
    "states": (set(), {"numpy"}),
    "targets": ({"errors"}, set()),
    "linearization": ({"validation", "errors"}, {"numpy", "scipy.sparse.linalg.LinearOperator"}),
    "kernels": (set(), {"numpy", "numba", "llvmlite"}),
    "cells": ({"kernels"}, set()),
    "losses": ({"kernels", "targets", "validation", "errors"}, {"numpy"}),
    "initializers": ({"kernels", "validation", "errors"}, {"numpy"}),
    "layers": (BASE | FORMULAS | {"cells", "kernels"}, {"numpy"}),
    "training": ({"layers", "kernels", "losses", "results", "targets", "validation", "errors"}, {"numpy", "tqdm"}),
    "diagnostics": ({"linearization", "results", "states", "targets", "validation", "errors"}, {"numpy", "scipy"}),
    "datasets": (LIBRARY, {"numpy"}),
    "interop": (LIBRARY | {"files"}, {"numpy", "torch", "onnx", "keras", "safetensors"}),
    "plotting": (LIBRARY | {"files", "monitor"}, {"numpy", "scipy", "matplotlib"}),
    "testing": (LIBRARY, {"numpy", "scipy"}),
    "monitor": (LIBRARY, {"numpy"}),
    "precompile": (LIBRARY, {"numpy", "tqdm"}),
    "tasks": (LIBRARY, {"numpy"}),
    "demo": (LIBRARY | {"datasets", "plotting", "files"}, {"numpy", "scipy", "matplotlib"}),
    "cli": (LIBRARY | {"datasets", "interop", "plotting", "demo", "files", "_version"}, {"numpy"}),
    "__main__": ({"cli"}, set()),
}
"""Floor: the floors below that it may import besides itself, and the packages. The standard library is free to all."""

HEAVY = ("scipy.stats", "scipy.optimize", "scipy.sparse", "matplotlib", "tqdm", "torch")
"""Packages that cost more to import than elman itself: only inside the function that needs them."""

MODULE_LINES, FUNCTION_LINES = 250, 60


@dataclass(frozen=True)
class Edge:
    """One imported thing.

    ``source`` and ``target`` are dotted names of modules, ``name`` is what is taken out of the target, if anything.
    """

    source: str
    target: str
    name: str
    line: int
    function: str | None
    typing_only: bool

    def __str__(self) -> str:
        return f"{self.source}, line {self.line}: imports {self.name or ''} from {self.target}"


def modules(root):
    """Dotted name and path of every module below a package folder."""
    for path in sorted(root.rglob("*.py")):
        parts = ("elman", *path.relative_to(root).with_suffix("").parts)
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


class Imports(ast.NodeVisitor):
    """Collects the edges of one module."""

    def __init__(self, module, is_package, known):
        self.module, self.known, self.edges = module, known, []
        self.package = module.split(".") if is_package else module.split(".")[:-1]
        self.functions, self.typing_only = [], False

    def add(self, node, target, name):
        function = self.functions[-1] if self.functions else None
        self.edges.append(Edge(self.module, target, name, node.lineno, function, self.typing_only))

    def visit_FunctionDef(self, node):
        self.functions.append(node.name)
        self.generic_visit(node)
        self.functions.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_If(self, node):
        before = self.typing_only
        self.typing_only = before or "TYPE_CHECKING" in ast.unparse(node.test)
        for child in node.body:
            self.visit(child)
        self.typing_only = before
        for child in node.orelse:
            self.visit(child)

    def visit_Import(self, node):
        for alias in node.names:
            self.add(node, alias.name, "")

    def visit_ImportFrom(self, node):
        base = self.package[: len(self.package) - node.level + 1] if node.level else []
        target = ".".join([*base, *([node.module] if node.module else [])])
        for alias in node.names:
            inner = f"{target}.{alias.name}"
            if inner in self.known:
                self.add(node, inner, "")
            else:
                self.add(node, target, alias.name)


def edges(root):
    """Every import in a package folder."""
    known = {name for name, _ in modules(root)}
    found = []
    for name, path in modules(root):
        visitor = Imports(name, path.name == "__init__.py", known)
        visitor.visit(ast.parse(path.read_text(encoding="utf-8")))
        found += visitor.edges
    return found


def floor_of(module):
    """``elman.kernels.tile`` is on the floor ``kernels``; the package itself on none."""
    return module.split(".")[1] if "." in module else ""


def refusal(edge):
    """Why an import is against the table, or None."""
    root = edge.target.split(".")[0]
    source, target = floor_of(edge.source), floor_of(edge.target)
    if root != "elman":
        packages = FLOORS[source][1] if source else set()
        whole = f"{edge.target}.{edge.name}"
        fits = any(f"{whole}.".startswith(f"{package}.") for package in packages)
        return None if root in sys.stdlib_module_names or fits else f"{source} may not import {root}"
    if not source:
        private = [part for part in (*edge.target.split("."), edge.name) if part.startswith("_") and part[:2] != "__"]
        return None if target in ("_version", "_lazy") or not private else "the public names come from public modules"
    if not target:
        return "only users import the package itself"
    if target == source or target in FLOORS[source][0]:
        return None
    return f"{source} may not import {target}"


def violations(root):
    """Imports against the table, in words."""
    return [f"{edge}: {why}" for edge in edges(root) if (why := refusal(edge)) is not None]


def heavy(root):
    """Module-level imports of what is slow to import."""
    return [
        str(edge)
        for edge in edges(root)
        if edge.function is None
        and not edge.typing_only
        and any(f"{edge.target}.{edge.name}.".startswith(f"{package}.") for package in HEAVY)
    ]


def code_lines(text):
    """Number of lines that hold code: docstrings, comments and blank lines make nothing harder to follow."""
    documentable = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    nodes = (node for node in ast.walk(ast.parse(text)) if isinstance(node, documentable) and ast.get_docstring(node))
    docstrings = {n for node in nodes for n in range(node.body[0].lineno, node.body[0].end_lineno + 1)}
    lines = enumerate(map(str.strip, text.splitlines()), 1)
    return sum(bool(line) and line[0] != "#" and n not in docstrings for n, line in lines)


def too_long(root):
    """Modules and functions that hold more than one idea."""
    found = []
    for name, path in modules(root):
        text = path.read_text(encoding="utf-8")
        lines = code_lines(text)
        if lines > MODULE_LINES:
            found.append(f"{name}: {lines} lines of code")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                # a docstring with shapes, units and errors is long, and makes nothing harder to follow
                documented = node.body[0].end_lineno if ast.get_docstring(node) else node.lineno - 1
                length = node.end_lineno - documented
                if length > FUNCTION_LINES:
                    found.append(f"{name}.{node.name}, line {node.lineno}: {length} lines")
    return found


def cycles(root):
    """Modules that need each other to be loaded, or None."""
    graph = {name: set() for name, _ in modules(root)}
    for edge in edges(root):
        if edge.function is None and not edge.typing_only and edge.target in graph:
            graph[edge.source].add(edge.target)
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return None


def test_every_module_is_on_a_floor():
    floors = {floor_of(name) for name, _ in modules(SOURCE)} - {""}
    assert floors <= set(FLOORS), "add the module to FLOORS and to docs/architecture.md"


def test_no_import_is_against_the_table():
    assert len(edges(SOURCE)) > 100
    assert not violations(SOURCE), "\n".join(violations(SOURCE))


def test_nothing_heavy_is_imported_at_module_level():
    assert not heavy(SOURCE), "\n".join(heavy(SOURCE))


def test_no_module_or_function_is_too_long():
    assert not too_long(SOURCE), "\n".join(too_long(SOURCE))


def test_modules_load_without_going_round_in_a_circle():
    assert cycles(SOURCE) is None


def test_the_table_goes_down_only():
    """A floor above another is never below it: the whole table has an order."""
    graph = {floor: below for floor, (below, _) in FLOORS.items()}
    order = list(graphlib.TopologicalSorter(graph).static_order())
    assert set(order) == set(FLOORS)
    assert "diagnostics" not in MODEL
    assert not FLOORS["diagnostics"][0] & {"kernels", "cells", "layers", "training"}
    assert "numba" not in FLOORS["diagnostics"][1]


def tree(tmp_path, **files):
    """A package of the given files (``__`` for a slash) beside a few that exist."""
    root = tmp_path / "elman"
    given = {"kernels/tile": "x = 1", "cells/cell": "", "layers/rnn": "", "plotting": "", "training/fit": ""}
    for name, text in (given | {k.replace("__", "/"): v for k, v in files.items()}).items():
        path = root / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
        if path.parent != root:
            (path.parent / "__init__.py").touch()
    (root / "__init__.py").touch()
    return root


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("kernels__new", "from ..errors import ElmanError"),
        ("kernels__new", "import scipy"),
        ("kernels__new", "from ..cells import cell"),
        ("cells__new", "import numpy as np"),
        ("cells__new", "from ..layers.rnn import RNN"),
        ("cells__new", "def f():\n    from ..layers import rnn"),
        ("layers__new", "from ..diagnostics import spectrum"),
        ("layers__new", "import scipy.linalg"),
        ("layers__new", "import numba"),
        ("layers__new", "from ..training import fit"),
        ("training__new", "from ..cells import cell"),
        ("training__new", "from ..plotting import plot_history"),
        ("training__new", "def plot(self):\n    from ..plotting import plot_history"),
        ("diagnostics__new", "from ..layers import RNN"),
        ("diagnostics__new", "from ..cells import cell"),
        ("diagnostics__new", "import numba"),
        ("diagnostics__new", "from numba import njit"),
        ("diagnostics__new", "if TYPE_CHECKING:\n    from ..layers.rnn import RNN"),
        ("diagnostics__new", "import elman.layers.rnn"),
        ("diagnostics__new", "from .. import layers"),
        ("diagnostics__new", "from .. import RNN"),
        ("diagnostics__new", "from elman import RNN"),
        ("linearization", "from scipy.sparse.linalg import eigs"),
        ("linearization", "import scipy.linalg"),
        ("errors", "from .kernels import tile"),
        ("plotting", "from .testing import check_cell"),
        ("testing", "from .cli import main"),
        ("validation", "import pandas"),
        ("datasets__new", "from ..interop import textbook"),
    ],
)
def test_a_forbidden_import_is_found(module, text, tmp_path):
    assert not violations(tree(tmp_path))
    assert len(violations(tree(tmp_path, **{module: text}))) == 1


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("linearization", "from scipy.sparse.linalg import LinearOperator"),
        ("kernels__new", "from llvmlite import ir\nimport numpy as np\nfrom . import tile"),
        (
            "layers__new",
            "import os.path\nfrom ..kernels import tile\nfrom ..kernels.tile import x\nfrom .rnn import RNN",
        ),
        ("cli", "import json\nfrom .layers.rnn import RNN"),
    ],
)
def test_an_allowed_import_is_not(module, text, tmp_path):
    assert not violations(tree(tmp_path, **{module: text}))


def test_the_public_names_come_from_public_modules(tmp_path):
    root = tree(tmp_path, layers___hidden="")
    (root / "__init__.py").write_text(
        "from ._version import __version__\nfrom .layers import rnn\nfrom .cli import main\n"
    )
    assert not violations(root)
    (root / "__init__.py").write_text("from .layers import _hidden\nfrom .layers.rnn import _private\nimport numpy\n")
    assert len(violations(root)) == 3


def test_heavy_imports_are_found_at_module_level_only(tmp_path):
    allowed = (
        "if TYPE_CHECKING:\n    import matplotlib.pyplot\ndef f():\n    from scipy import stats\nimport scipy.special\n"
    )
    assert not heavy(tree(tmp_path, plotting=allowed))
    for text in (
        "import scipy.stats",
        "from scipy import optimize",
        "from scipy.sparse.linalg import eigs",
        "import tqdm.auto",
        "try:\n    import torch\nexcept ImportError:\n    pass",
        "class A:\n    import matplotlib",
    ):
        assert len(heavy(tree(tmp_path, plotting=text))) == 1, text


def test_long_modules_and_functions_are_found(tmp_path):
    body = "def f():\n" + "    x = 1\n" * (FUNCTION_LINES - 1)
    assert not too_long(tree(tmp_path, plotting=body))
    assert len(too_long(tree(tmp_path, plotting=body + "    x = 1\n"))) == 1
    assert not too_long(
        tree(tmp_path, plotting='"""What it is.\n\nMore."""\n\n# why\n' + "x = 1\n" * (MODULE_LINES - 1))
    )
    assert len(too_long(tree(tmp_path, plotting="x = 1\n" * MODULE_LINES + "y = 1"))) == 1


def test_a_circle_is_found(tmp_path):
    assert cycles(tree(tmp_path)) is None
    assert cycles(tree(tmp_path, layers__a="from . import b", layers__b="from .a import x")) is not None
    assert cycles(tree(tmp_path, layers__a="from . import b", layers__b="def f():\n    from .a import x")) is None
