"""Compile before the first call: the function :func:`elman.warmup`.

The module is not named after the function: importing a module ``elman.warmup`` would replace the function.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .diagnostics import diagnose
from .errors import ArgumentError, DTypeError
from .kernels import folder
from .layers import GRU, LSTM, MGU, RNN, Network, Readout
from .results import Result
from .training import fit
from .validation.scalars import choice, flag, real_dtype

LAYERS: dict[str, type[RNN] | type[LSTM] | type[GRU] | type[MGU]] = {"RNN": RNN, "LSTM": LSTM, "GRU": GRU, "MGU": MGU}
"""What can be compiled ahead, by name."""

STEPS, SEQUENCES, INPUTS, UNITS = 4, 6, 2, 3
"""Sizes of the data: no kernel depends on them, and six sequences leave a diagnosis three to verify with."""


@dataclass(frozen=True, repr=False)
class WarmupTimes(Result):
    """How long :func:`elman.warmup` took.

    Attributes
    ----------
    seconds : dict of dict of float
        Wall-clock seconds by cell and dtype, in the order in which they came.
    folder : str or None
        Where the machine code is stored; None if no folder was writable, so that every process compiles anew.
    """

    seconds: dict[str, dict[str, float]]
    folder: str | None

    @property
    def total(self) -> float:
        """Seconds in total."""
        return sum(sum(by_dtype.values()) for by_dtype in self.seconds.values())

    def __str__(self) -> str:
        dtypes = list(dict.fromkeys(dtype for by_dtype in self.seconds.values() for dtype in by_dtype))
        kept = f"machine code in {self.folder}" if self.folder else "no folder to keep machine code in"
        lines = [f"Warm-up: {self.total:.3g} s, {kept}"]
        if dtypes:
            lines.append(f"  {'seconds':<8}" + "".join(f"{dtype:>10}" for dtype in dtypes))
        for cell, by_dtype in self.seconds.items():
            lines.append(f"  {cell:<8}" + "".join(f"{by_dtype[dtype]:>10.3g}" for dtype in dtypes))
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"WarmupTimes({', '.join(self.seconds)}, total={self.total:.3g} s)"

    def to_dict(self) -> dict[str, Any]:
        """Return the times as plain dictionaries.

        Returns
        -------
        dict
            ``seconds`` by cell and dtype, ``total`` and ``folder``.
        """
        seconds = {cell: dict(by_dtype) for cell, by_dtype in self.seconds.items()}
        return {"seconds": seconds, "total": self.total, "folder": self.folder}


def warmup(
    cells: str | Iterable[str] | None = None, dtypes: Any = None, *, progress: bool = False, clear: bool = False
) -> WarmupTimes:
    """Compile what the first calls of layers need, or load it from the cache on disk.

    For each cell and dtype, a small network is called, traced, streamed, trained by :func:`elman.fit` and diagnosed
    from its gradients and from a forward run, with sequences of one length and of several. Whatever these compile is
    compiled afterwards: in this process, and in later ones as long as numba, the processor and this package stay the
    same.

    Parameters
    ----------
    cells : str or iterable of str, optional
        Layers by name, out of "RNN", "LSTM", "GRU" and "MGU"; the first three by default.
    dtypes : dtype or iterable of dtype, optional
        "float32", "float64", or both, which is the default.
    progress : bool, default False
        Whether to show a bar over cells and dtypes.
    clear : bool, default False
        Whether to delete the cached code of all versions first. What this process has already compiled stays in its
        memory, and is written again by a later process.

    Returns
    -------
    WarmupTimes
        Seconds by cell and dtype. The time of the first cell of a dtype includes what all cells share, and that of the
        very first one also numba's own start.

    Raises
    ------
    ArgumentError, DTypeError
        For an unknown cell or dtype, or if none is given of either; nothing has been compiled.

    Notes
    -----
    Not included: a perceptron as readout, a projected LSTM, a GRU that resets before the product, zoneout, and two
    directions with sequences of several lengths, each of which has kernels of its own.

    Examples
    --------
    >>> import elman
    >>> times = elman.warmup("GRU", "float32")
    >>> list(times.seconds)
    ['GRU']
    """
    names = _several(("RNN", "LSTM", "GRU") if cells is None else cells, "cells")
    kinds = _several(("float32", "float64") if dtypes is None else dtypes, "dtypes")
    chosen = list(dict.fromkeys(choice(name, "cells", LAYERS) for name in names))
    real = list(dict.fromkeys(real_dtype(kind) for kind in kinds))
    if not chosen or not real:
        raise ArgumentError("cells and dtypes must each name at least one, or be None for all")
    if flag(clear, "clear"):
        folder.clear()
        folder.cache_folder()
    bar = _progress_bar(len(chosen) * len(real)) if flag(progress, "progress") else None
    seconds: dict[str, dict[str, float]] = {}
    try:
        for name in chosen:
            seconds[name] = {}
            for dtype in real:
                start = time.perf_counter()
                _use(LAYERS[name](INPUTS, UNITS, dtype=dtype, rng=0))
                seconds[name][dtype.name] = time.perf_counter() - start
                if bar is not None:
                    bar.update()
    finally:
        if bar is not None:
            bar.close()
    return WarmupTimes(seconds, folder.CACHE_FOLDER)


def _several(value: Any, name: str) -> tuple[Any, ...]:
    """One thing, or several, as a tuple."""
    if isinstance(value, str | type | np.dtype):
        return (value,)
    if not isinstance(value, Iterable):
        raise DTypeError(f"{name} must be a name or several of them, got {value!r}")
    return tuple(value)


def _use(layer: RNN | LSTM | GRU | MGU) -> None:
    """Make all the calls of a layer that the documentation promises to compile.

    The layer's own calls come first: ``fit`` defers Ctrl-C until an update is done, and compiling within one would
    defer it for too long.
    """
    rng = np.random.default_rng(0)
    x = rng.standard_normal((STEPS, SEQUENCES, INPUTS)).astype(layer.dtype)
    y = rng.standard_normal((SEQUENCES, 1)).astype(layer.dtype)
    ragged = 1 + np.arange(SEQUENCES) % STEPS
    for lengths in (None, ragged):
        layer(x, lengths=lengths)
        trace = layer.trace(x, lengths=lengths)
        layer.backward(trace, trace.output)
    layer.stepper(SEQUENCES)(x[0])
    layer.linearize(x).jacobian(0)
    net = Network(layer, Readout(UNITS, 1, dtype=layer.dtype, rng=0))
    net(x)
    for lengths in (None, ragged):
        fit(net, x, y, lengths=lengths, epochs=1, progress=False, rng=0)
    for level in ("full", "forward"):
        diagnose(net, x, y if level == "full" else None, level=level, rng=0)


def _progress_bar(n: int) -> Any:
    """A bar over cells and dtypes, for terminal or notebook."""
    from tqdm.auto import tqdm

    return tqdm(total=n, unit="cell", desc="warmup")
