"""What the processor offers: vector length, registers, and the tiles that fit them.

Measured (docs/performance-details.md): the rows of a tile share the loads of the panels, its columns those of the rows;
a tile is as large as the registers allow besides one vector per column and one broadcast. A tile that spills loses two
thirds of its speed. With 32 registers, eight rows by three columns read less than four by four, which matters as soon
as the weights exceed the first-level cache; for fewer rows, four columns are better.
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
        The tile for many rows comes first; each takes as many rows as it can and leaves the rest to the next. The last
        has four rows, and the rows it leaves are taken two and one at a time.
    single : int
        Vectors side by side if there is only one row, since its sums would otherwise wait for each other.
    streams : int
        The same if the weights exceed the first-level cache. Fewer streams are read faster from the other caches, and
        are fast enough for them.
    block : int
        Rows of delta that are added to weight gradients before the next columns. With fewer rows, they are read from
        nearer caches; with more, the sums are read and written less often.
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
"""Hosts with 32 registers, 16, 32 and 16. On ARM each row's number takes a register too, so that 8 x 3 would spill."""


def host_from_features(features: str, machine: str = "") -> Host:
    """Choose from LLVM's feature string, such as ``"+avx2,+fma,-avx512f"``, and the name of the architecture.

    AVX-512 has 32 registers of 64 bytes; AVX2 has 16 of 32 bytes; NEON, which every 64-bit ARM has although not every
    system reports it (macOS names no features), has 32 of 16 bytes; anything else is treated as SSE2, where the fused
    multiply-add is a library call: correct to the bit, and slow.
    """
    have = {word[1:] for word in features.split(",") if word.startswith("+")}
    if "avx512f" in have:
        return AVX512
    if {"avx2", "fma"} <= have:
        return AVX2
    return NEON if "neon" in have or machine.lower() in ("arm64", "aarch64") else SSE2


def host_for_tests(host: Host, vector_bytes: str | None) -> Host:
    """The processor's choice, or vectors of another length: LLVM splits them or narrows them to the actual registers.

    On any processor, all code for vectors of that length then runs, but more slowly.

    Raises
    ------
    ValueError
        If ``vector_bytes`` is not "16", "32" or "64"; empty or None stands for the processor's own.
    """
    if not vector_bytes:
        return host
    hosts = {"16": NEON, "32": AVX2, "64": AVX512}
    if vector_bytes not in hosts:
        raise ValueError(f"{SETTING} must be 16, 32 or 64, got {vector_bytes!r}: unset it for the processor's own")
    return hosts[vector_bytes]


def _features() -> str:
    """The features that numba compiles for: first its own override."""
    if config.CPU_FEATURES is not None:
        return str(config.CPU_FEATURES)
    return "" if config.CPU_NAME == "generic" else str(get_host_cpu_features())


SETTING = "ELMAN_VECTOR_BYTES"
"""Environment variable with which one machine can test the code for others."""

HOST = host_for_tests(host_from_features(_features(), platform.machine()), os.environ.get(SETTING))
