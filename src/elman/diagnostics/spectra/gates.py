"""Spectra of the recurrent matrices of a gated cell or of several layers, by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...errors import ArgumentError
from ...results import Drawn

if TYPE_CHECKING:
    from .dense import Spectrum
    from .partial import PartialSpectrum


class SpectrumByGate(Drawn, Mapping[str, "Spectrum | PartialSpectrum"], picture="plot_spectrum_by_gate"):
    """Spectra by the name of the gate; made by :func:`elman.spectrum` from a layer or a mapping of matrices.

    A read-only mapping in the order of the gates. None of the matrices, nor all of them together, is the Jacobian of a
    gated cell, in which gates multiply what the others pass on.

    Parameters
    ----------
    spectra : mapping of str to Spectrum or PartialSpectrum

    Raises
    ------
    ArgumentError
        If it is empty.
    """

    def __init__(self, spectra: Mapping[str, Spectrum | PartialSpectrum]) -> None:
        if not spectra:
            raise ArgumentError("W must hold at least one recurrent matrix, got an empty mapping")
        self._spectra = dict(spectra)

    def __getitem__(self, gate: str) -> Spectrum | PartialSpectrum:
        return self._spectra[gate]

    def __iter__(self) -> Iterator[str]:
        return iter(self._spectra)

    def __len__(self) -> int:
        return len(self._spectra)

    def __repr__(self) -> str:
        return f"SpectrumByGate({', '.join(f'{gate}: radius={s.radius:.4g}' for gate, s in self.items())})"

    def __str__(self) -> str:
        width = max(8, *map(len, self))
        return "\n".join(
            [
                f"Spectra of {len(self)} recurrent matrices; each alone proves nothing about the whole cell",
                f"  {'':<{width}}  radius      norm        norm / radius   modes",
                *(
                    f"  {gate:<{width}}  {s.radius:<10.5g}  {s.norm:<10.5g}  "
                    f"{_ratio(s.norm, s.radius):<14}  {s.stability}"
                    for gate, s in self.items()
                ),
                "  the norm exceeds the radius where a matrix is not normal",
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """The spectra as plain Python, by gate."""
        return {gate: s.to_dict() for gate, s in self.items()}

    def plot(self) -> Any:  # type: ignore[override]  # a whole figure: one axes per gate
        """Eigenvalues of each gate side by side, on equal axes; returns the matplotlib figure."""
        return self._draw()


def _ratio(norm: float, radius: float) -> str:
    """The quotient, inf for a nilpotent matrix, a dash for the zero matrix."""
    if radius > 0:
        return f"{norm / radius:.4g}"
    return "inf" if norm > 0 else "-"
