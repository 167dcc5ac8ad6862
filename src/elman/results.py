"""What all results have in common: a summary to print, plain values, a picture, and their place in a notebook."""

from __future__ import annotations

from abc import ABC, abstractmethod
from html import escape
from importlib import import_module
from typing import Any, ClassVar


class Result(ABC):
    """Something that was found out: ``print`` shows a summary, ``to_dict`` gives the numbers."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """All that was found as plain Python: numbers, strings, and lists and dicts of them, ready for JSON."""

    def _repr_html_(self) -> str:
        """The summary, as a notebook shows it; in the colours of the page."""
        return f'<pre style="overflow-x: auto">{escape(str(self))}</pre>'


class Drawn(Result):
    """A result that draws itself.

    Name the function of :mod:`elman.plotting` with the class, ``class Spectrum(Drawn, picture="plot_spectrum")``. A
    result whose picture has options defines ``plot`` with them, and hands them to :meth:`_draw`.
    """

    _picture: ClassVar[str]

    def __init_subclass__(cls, picture: str = "", **others: Any) -> None:
        super().__init_subclass__(**others)
        if picture:
            cls._picture = picture

    def plot(self, ax: Any = None) -> Any:
        """Draw it with matplotlib, as the function of :mod:`elman.plotting` named after the result describes.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; those of a new figure by default.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        MissingExtraError
            If matplotlib is not installed.
        """
        return self._draw(ax)

    def _draw(self, *args: Any, **options: Any) -> Any:
        """Call the function that draws it; only now is matplotlib imported."""
        return getattr(import_module("elman.plotting"), self._picture)(self, *args, **options)
