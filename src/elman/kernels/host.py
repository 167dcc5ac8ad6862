"""What the processor offers: vector length, registers, and the tiles that fit them.

Measured (docs/performance-details.md): the rows of a tile share the loads of the panels, its columns those of the rows;
there are as many as the registers hold beside one vector a column and one broadcast. A tile that spills loses two
thirds of its speed. With 32 registers, eight rows by three columns read less than four by four, which counts as soon as
the weights leave the first-level cache; fewer rows are better off with four columns.
"""

from __future__ import annotations

import os
import platform
from typing import NamedTuple

from numba import config
from numba.core.codegen import get_host_cpu_features


class Tile(NamedTuple):
    """Rows by vectors of columns that stay in registers: ``rows * columns`` accumulators."""

    rows: int
    columns: int


class Host(NamedTuple):
    """Register file and tile shapes of a processor.

    Attributes
    ----------
    vector_bytes : int
        Bytes of one vector register.
    tiles : tuple of Tile
        For many rows first; each takes as many rows as it can and leaves the rest to the next one. The last has four
        rows, and what it leaves is taken two and one at a time.
    single : int
        Vectors side by side when there is only one row, whose sums would otherwise wait for each other.
    streams : int
        The same where the weights are more than the first-level cache holds. Fewer streams are read faster from the
        other caches, and keep up with them.
    block : int
        Rows of delta that are added to weight gradients before the next columns. Fewer are read from nearer caches;
        with more, the sums are read and written less often.
    """

    vector_bytes: int
    tiles: tuple[Tile, ...]
    single: int
    streams: int
    block: int


AVX512 = Host(64, (Tile(8, 3), Tile(4, 4)), 8, 4, 256)
AVX2 = Host(32, (Tile(4, 3),), 8, 8, 128)
NEON = Host(16, (Tile(6, 4), Tile(4, 4)), 8, 8, 128)
SSE2 = Host(16, (Tile(4, 3),), 8, 8, 128)
"""32 registers, 16, 32 and 16. On ARM each row's number takes a register too, so that 8 x 3 would spill."""


def host_from_features(features: str, machine: str = "") -> Host:
    """Choose from LLVM's feature string, such as ``"+avx2,+fma,-avx512f"``, and the name of the architecture.

    AVX-512 has 32 registers of 64 bytes; AVX2 has 16 of 32; NEON, which every 64-bit ARM has though not every system
    says so (macOS names no features), has 32 of 16; anything else is taken for SSE2, where the fused multiply-add is a
    library call: right to the bit, and slow.
    """
    have = {word[1:] for word in features.split(",") if word.startswith("+")}
    if "avx512f" in have:
        return AVX512
    if {"avx2", "fma"} <= have:
        return AVX2
    return NEON if "neon" in have or machine.lower() in ("arm64", "aarch64") else SSE2


def host_for_tests(host: Host, vector_bytes: str | None) -> Host:
    """The processor's choice, or vectors of another length: LLVM splits or narrows them to the registers there are.

    Whatever the processor is, all code for vectors of that length runs, at less than its speed.

    Raises
    ------
    ValueError
        If ``vector_bytes`` is not "16", "32" or "64"; empty or None is the processor's own.
    """
    if not vector_bytes:
        return host
    hosts = {"16": NEON, "32": AVX2, "64": AVX512}
    if vector_bytes not in hosts:
        raise ValueError(f"{SETTING} must be 16, 32 or 64, got {vector_bytes!r}: unset it for the processor's own")
    return hosts[vector_bytes]


def _features() -> str:
    """The features numba compiles for: its own override first."""
    if config.CPU_FEATURES is not None:
        return str(config.CPU_FEATURES)
    return "" if config.CPU_NAME == "generic" else str(get_host_cpu_features())


SETTING = "ELMAN_VECTOR_BYTES"
"""Environment variable with which one machine tests what others run."""

HOST = host_for_tests(host_from_features(_features(), platform.machine()), os.environ.get(SETTING))
