"""What the processor offers: vector length, registers, and the tile that fits them.

Measured on Zen 4 and Zen 1 (docs/performance.md): four rows share the loads of the panels; as many columns as the
registers hold beside one vector a column and one broadcast. A tile that spills loses two thirds of its speed.
"""

from __future__ import annotations

import os
import platform
from typing import NamedTuple

from numba import config
from numba.core.codegen import get_host_cpu_features


class Host(NamedTuple):
    """Register file and tile shape of a processor.

    Attributes
    ----------
    vector_bytes : int
        Bytes of one vector register.
    columns : int
        Vectors side by side in the tile of 4 rows: ``4 * columns`` accumulators.
    single : int
        Vectors side by side when there is only one row, whose sums would otherwise wait for each other.
    """

    vector_bytes: int
    columns: int
    single: int


def host_from_features(features: str, machine: str = "") -> Host:
    """Choose from LLVM's feature string, such as ``"+avx2,+fma,-avx512f"``, and the name of the architecture.

    AVX-512 has 32 registers of 64 bytes; AVX2 has 16 of 32; NEON, which every 64-bit ARM has though not every system
    says so (macOS names no features), has 32 of 16; anything else is taken for SSE2, where the fused multiply-add is a
    library call: right to the bit, and slow.
    """
    have = {word[1:] for word in features.split(",") if word.startswith("+")}
    if "avx512f" in have:
        return Host(64, 4, 8)
    if {"avx2", "fma"} <= have:
        return Host(32, 3, 8)
    return Host(16, 4 if "neon" in have or machine.lower() in ("arm64", "aarch64") else 3, 8)


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
    if vector_bytes not in ("16", "32", "64"):
        raise ValueError(f"{SETTING} must be 16, 32 or 64, got {vector_bytes!r}: unset it for the processor's own")
    return Host(int(vector_bytes), 3 if vector_bytes == "32" else 4, 8)


def _features() -> str:
    """The features numba compiles for: its own override first."""
    if config.CPU_FEATURES is not None:
        return str(config.CPU_FEATURES)
    return "" if config.CPU_NAME == "generic" else str(get_host_cpu_features())


SETTING = "ELMAN_VECTOR_BYTES"
"""Environment variable with which one machine tests what others run."""

HOST = host_for_tests(host_from_features(_features(), platform.machine()), os.environ.get(SETTING))
