"""What all results have in common: a summary to print, plain values, a picture, and a display in notebooks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from html import escape
from importlib import import_module
from typing import Any, ClassVar


class Result(ABC):
    """A result: ``print`` shows a summary, ``to_dict`` gives the numbers."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """The result as plain Python values: numbers, strings, and lists and dicts of them, ready for JSON."""

    def _repr_html_(self) -> str:
        """The summary as a notebook shows it, in the colours of the page."""
        return f'<pre style="overflow-x: auto">{escape(str(self))}</pre>'


class Drawn(Result):
    """A result that draws itself.

    A class names its function in :mod:`elman.plotting`: ``class Spectrum(Drawn, picture="plot_spectrum")``. A
    result whose picture has options defines ``plot`` with them, and passes them to :meth:`_draw`.
    """

    _picture: ClassVar[str]

    def __init_subclass__(cls, picture: str = "", **others: Any) -> None:
        super().__init_subclass__(**others)
        if picture:
            cls._picture = picture

    def plot(self, ax: Any = None) -> Any:
        """Draw it with matplotlib; see the function in :mod:`elman.plotting` that is named after the result.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default the axes of a new figure.

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
        """Call the function that draws it; matplotlib is imported only here."""
        return getattr(import_module("elman.plotting"), self._picture)(self, *args, **options)
