"""The file of a picture: an unusable name is refused before the work, and the file appears whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ArgumentError, MissingExtraError
from ..files import check_target, replacing, shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def check_picture(path: str | os.PathLike[str], purpose: str = "a picture") -> str:
    """Return a picture's format from the suffix of its file, PNG without one; raise if it could not be saved.

    Raises
    ------
    MissingExtraError
        If matplotlib is missing.
    ArgumentError
        If matplotlib has no such format.
    OSError
        If the file cannot be written; see :func:`elman.files.check_target`.
    """
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plot", purpose) from error
    check_target(path)
    suffix = Path(path).suffix[1:].lower() or "png"
    formats = FigureCanvasBase.get_supported_filetypes()
    if suffix not in formats:
        raise ArgumentError(
            f"{shown(os.fspath(path))} must end as a picture does, .{', .'.join(sorted(formats))}, got .{shown(suffix)}"
        )
    return suffix


def save_picture(figure: Figure, path: str | os.PathLike[str], dpi: int) -> None:
    """Save a figure.

    Raises
    ------
    MissingExtraError, ArgumentError, OSError
        As for :func:`check_picture`.
    WriteError
        If writing fails, such as on a full disk.
    """
    kind = check_picture(path)
    # without the format, matplotlib would add a suffix to a name that has none
    with replacing(path) as temporary:
        figure.savefig(temporary, format=kind, dpi=dpi)
