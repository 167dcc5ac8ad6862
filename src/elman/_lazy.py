"""Public names that are imported at their first use, listed in one place: a package's stub, ``__init__.pyi``."""

from __future__ import annotations

import ast
import pkgutil
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def names_of_stub(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """``__getattr__``, ``__dir__`` and ``__all__`` of a package from the imports in its stub.

    A program then pays for what it uses, and a type checker sees what there is.

    Parameters
    ----------
    package : str
        Its ``__name__``. Each line of the stub reads ``from .module import name as name``.
    """
    stub = pkgutil.get_data(package, "__init__.pyi")
    assert stub is not None, f"{package} was installed without its list of names, __init__.pyi"
    imports = [node for node in ast.parse(stub).body if isinstance(node, ast.ImportFrom)]
    homes = {alias.name: node.module for node in imports for alias in node.names}

    def __getattr__(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = homes[name]
        value = (
            import_module(f".{name}", package) if home is None else getattr(import_module(f".{home}", package), name)
        )
        setattr(sys.modules[package], name, value)
        return value

    return __getattr__, lambda: sorted(homes), sorted(homes)
