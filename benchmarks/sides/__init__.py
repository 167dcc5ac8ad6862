"""The packages that are compared, by name; each is imported when its side is made, and no other with it."""

from __future__ import annotations

import os
from importlib.util import find_spec

from .elman import Elman
from .jax import Jax
from .keras import Keras
from .onnxruntime import Onnxruntime
from .side import PASSES, WHOLE, Side
from .torch import Torch

__all__ = ["NEEDED", "PASSES", "SIDES", "WHOLE", "Side", "available"]

SIDES: dict[str, type[Side]] = {
    "elman": Elman, "torch": Torch, "onnxruntime": Onnxruntime, "jax": Jax, "keras": Keras,
}  # fmt: skip

NEEDED: dict[str, tuple[str, ...]] = {"onnxruntime": ("onnxruntime", "onnx"), "keras": ("keras", "jax")}
"""What has to be importable for a side, where that is not the package alone."""


def available() -> tuple[str, ...]:
    """Names of the sides whose packages can be found; nothing is imported.

    ``ELMAN_BENCHMARK_PACKAGES`` in the environment, names with commas between, leaves out all others.
    """
    wanted = os.environ.get("ELMAN_BENCHMARK_PACKAGES", ",".join(SIDES)).split(",")
    return tuple(
        name for name in SIDES if name in wanted and all(find_spec(package) for package in NEEDED.get(name, (name,)))
    )
