"""Public names that are imported at their first use, listed in one place: a package's stub, ``__init__.pyi``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def names_of_stub(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """``__getattr__``, ``__dir__`` and ``__all__`` of a package from the imports in its stub.

    A program then imports only what it uses, and a type checker sees every name.

    Parameters
    ----------
    package : str
        Its ``__name__``. Each import in the stub must be a line of its own, ``from .module import name as name``:
        reading the stub with the compiler's parser would double the time that importing the package takes.
    """
    module: Any = sys.modules[package]
    # read by the loader, which also reads archives
    stub = module.__spec__.loader.get_data(os.path.join(os.path.dirname(module.__file__), "__init__.pyi")).decode()
    imports = [line.split() for line in stub.splitlines() if line.startswith("from ")]
    homes = {name: home[1:] for _, home, _, name, *_ in imports}

    def __getattr__(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = homes[name]
        value = getattr(import_module(f".{home}", package), name) if home else import_module(f".{name}", package)
        setattr(module, name, value)
        return value

    return __getattr__, lambda: sorted(homes), sorted(homes)
