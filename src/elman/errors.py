"""The exceptions of elman. Each is also the built-in exception that a caller would expect.

Messages say what the thing is, what it must be, what it was, and what to do; the wording for arguments is in
:mod:`elman.validation`.
"""

from __future__ import annotations

from typing import Self


class ElmanError(Exception):
    """Base of every exception that elman raises on purpose."""


class ShapeError(ElmanError, ValueError):
    """An array has the wrong number of axes or the wrong length along one of them."""


class DTypeError(ElmanError, TypeError):
    """An array or argument is of a kind that has no meaning here, such as integers where real numbers are due."""


class ArgumentError(ElmanError, ValueError):
    """An argument has a value outside what is allowed."""


class ReadOnlyError(ElmanError, AttributeError):
    """The assigned attribute is fixed when its object is built, or nothing would read it."""


class MissingNameError(ElmanError, KeyError):
    """A mapping, such as ``net.params`` or ``trace.states``, has no entry of this name."""

    def __str__(self) -> str:
        """The message itself: the built-in class would show it in quotation marks."""
        return str(self.args[0]) if self.args else ""


class MissingAttributeError(ElmanError, AttributeError):
    """A model has no attribute of this name, which its counterpart in another framework has."""


class StateDictError(ElmanError, ValueError):
    """A mapping of weights does not fit: a key is missing, unknown, or has the wrong shape or type."""


class WriteError(ElmanError, OSError):
    """A file could not be written: the disk is full, a quota is used up, or a pipe has no reader.

    What was there before is unchanged, unless it is a pipe or a device.

    Attributes
    ----------
    errno : int or None
        The system's error number, such as ``errno.ENOSPC`` for a full disk.
    """

    def __init__(self, message: str, number: int | None = None) -> None:
        super().__init__(message)
        self.errno = number

    def __new__(cls, message: str, number: int | None = None) -> Self:  # noqa: D102 as __init__
        # the built-in class would take two arguments for an error number and its text
        return super().__new__(cls, message)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.args[0], self.errno)


class NonFiniteError(ElmanError, FloatingPointError):
    """A parameter, state, loss or gradient is not finite, or stopped being so.

    Parameters and optimizer are as the last complete update left them.

    Attributes
    ----------
    what : str
        What is not finite: ``"parameter"``, ``"state"``, ``"loss"``, ``"gradient"``.
    layer : str or None
        Name of the layer, such as ``"rnn_l0"``.
    gate : str or None
        Name of the state or gate, such as ``"h"``.
    step : int or None
        Time step, counted from 0, where the computation first met a non-finite value.
    sample : int or None
        Index along the batch axis of the first such sequence.
    """

    def __init__(
        self,
        message: str,
        *,
        what: str = "state",
        layer: str | None = None,
        gate: str | None = None,
        step: int | None = None,
        sample: int | None = None,
    ) -> None:
        super().__init__(message)
        self.what, self.layer, self.gate, self.step, self.sample = what, layer, gate, step, sample

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (str(self), self.what, self.layer, self.gate, self.step, self.sample)


def _rebuild(
    message: str, what: str, layer: str | None, gate: str | None, step: int | None, sample: int | None
) -> NonFiniteError:
    """Rebuild the exception in another process: keywords do not survive the default pickling."""
    return NonFiniteError(message, what=what, layer=layer, gate=gate, step=step, sample=sample)


class DataWarning(UserWarning):
    """Data that can be used but are probably not what was meant: axes in another order, a scale far from 1.

    To silence it: ``warnings.simplefilter("ignore", elman.errors.DataWarning)``.
    """


class MissingExtraError(ElmanError, ImportError):
    """An optional package is needed; the message names the extra to install."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f'{purpose} needs {package}, which is not installed: pip install "elman[{extra}]"')
        self.package, self.extra, self.purpose = package, extra, purpose

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.package, self.extra, self.purpose)
