"""Files of ``torch.save``, read without running any code in them."""

from __future__ import annotations

import os
import re
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from ..errors import ArgumentError, StateDictError
from ..files import check_source, listed, quoted, shown
from .arrays_file import ALWAYS, MOST_INFLATED, check_inflated
from .torch import Array, import_torch, present, values

SAFE_TORCH = (2, 10)
"""``weights_only`` can be made to run code in torch up to 2.5.1 (CVE-2025-32434) and up to 2.9.1 (CVE-2026-24747)."""

MOST = 20
"""Entries that an error lists."""


def load_pt(path: str | os.PathLike[str], prefix: str = "", *, key: str | None = None) -> dict[str, Array]:
    """Read weights from a file of ``torch.save`` without running any code in it.

    Parameters
    ----------
    path : path-like
        A state dict, or a dictionary that holds one, such as a checkpoint of Lightning. Whatever else is in the file,
        such as a Namespace of hyperparameters, is ignored: such objects are not made.
    prefix : str, default ""
        Read only weights whose names start with it; it is removed from the names.
    key : str, optional
        Where in a training checkpoint the weights are, such as ``"state_dict"``. Needed only if several entries hold
        tensors by name.

    Returns
    -------
    dict of str to ndarray
        float64, float32, integers and booleans unchanged, 16-bit floating-point numbers as float32 (exact).

    Raises
    ------
    MissingExtraError
        Without torch.
    StateDictError
        If the whole file is one object, such as a module, or reading it would run functions of the system; if it is
        damaged, would take far more memory than the file has bytes, or has no weights at this place.
    ArgumentError
        For a version of torch before 2.10, whose ``weights_only`` can be made to run code; if the path is a device or
        pipe.
    OSError
        If the file cannot be read.
    """
    torch = import_torch("load_pt")
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < SAFE_TORCH:
        raise ArgumentError(
            f"load_pt must have torch 2.10 or later, got {torch.__version__}: a file can run code in earlier ones "
            '(CVE-2025-32434, CVE-2026-24747). pip install "torch>=2.10", or save the weights as safetensors'
        )
    size, file = check_source(path), shown(os.fspath(path))
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                check_inflated(archive, size)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a TorchScript archive, which is refused below
            content = _content(torch, path)
    except Exception as error:  # what a damaged file raises depends on where it is damaged
        if "TorchScript" in str(error):
            raise StateDictError(
                f"{file} is a program of TorchScript, which would run when it is loaded. Where you trust "
                "it, save its weights: torch.save(torch.jit.load(path).state_dict(), other)"
            ) from error
        raise StateDictError(
            f"{file} must hold tensors and plain values only, as torch.save(model.state_dict(), path) "
            f"writes; it holds other objects{_named(error)}, whose loading could run code, or is damaged. Nothing of "
            "it was run"
        ) from error
    return _weights(torch, content, prefix, key, path, size)


class _Call(type):
    """Metaclass of a class whose calls do nothing, for the objects that a file makes besides the weights."""

    def __call__(cls, *_: Any, **__: Any) -> Any:
        return object.__new__(cls)  # type: ignore[arg-type]  # mypy takes a class of classes for none


class _Aside(metaclass=_Call):
    """Stand-in, without effect, for every class and function that a file names besides the weights.

    An object that a file makes without a call is a dictionary here: torch's reader fills no other class with the
    entries of a user's dictionary.
    """

    def __new__(cls, *_: Any) -> Any:
        return OrderedDict()

    def __setstate__(self, state: Any) -> None:
        """Discard the object's attributes."""


def _content(torch: Any, path: Any) -> Any:
    """The content of a file by torch's reader that runs no code, with a stand-in for each object that it refuses."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as refusal:
        try:
            names = torch.serialization.get_unsafe_globals_in_checkpoint(path)
            with torch.serialization.safe_globals([(_Aside, name) for name in names]):
                content = torch.load(path, map_location="cpu", weights_only=True)
        except Exception:  # also for a file that is not an archive; the first error says why
            raise refusal from None
        if not content or isinstance(content, _Aside):
            raise refusal
        return content


def _holding_weights(torch: Any, content: Any) -> list[str]:
    """Names of the entries of a checkpoint that hold tensors by name."""
    if not isinstance(content, Mapping):
        return []
    tables = {k: v for k, v in content.items() if isinstance(k, str) and isinstance(v, Mapping) and v}
    return [k for k, v in tables.items() if all(isinstance(t, torch.Tensor) for t in v.values())]


def _weights(torch: Any, content: Any, prefix: str, key: str | None, path: Any, size: int) -> dict[str, Array]:
    """The arrays below a prefix in a file's content."""
    found = _holding_weights(torch, content)
    if key is None and len(found) == 1 and not any(isinstance(value, torch.Tensor) for value in content.values()):
        key = found[0]
    weights = content if key is None else _entry(content, key, path)
    names = present(weights, prefix) if isinstance(weights, Mapping) and weights else []
    if not names or not all(isinstance(weights[name], torch.Tensor) for name in names):
        raise StateDictError(
            f"{shown(os.fspath(path))} must hold weights by name{'' if key is None else ' under ' + quoted(key)}, got "
            f"{_describe(weights)}; where one of its entries holds them, give its name as key (--key), "
            f"such as {' or '.join(map(quoted, found[:MOST])) or quoted('state_dict')}"
        )
    # a tensor may repeat a few numbers any number of times
    total = sum(weights[name].numel() * weights[name].element_size() for name in names)
    if total > ALWAYS + MOST_INFLATED * size:
        raise StateDictError(f"{shown(os.fspath(path))} has {size} bytes, and its tensors would take {total}")
    return {name.removeprefix(prefix): values(weights[name], shown(name)) for name in names}


def _named(error: Exception) -> str:
    """The first object that torch would not load, if its error names it."""
    found = re.search(r"GLOBAL ([\w.]+)", str(error))
    return f", first {found[1]}" if found else ""


def _entry(content: Any, key: str, path: str | os.PathLike[str]) -> Any:
    """The entry ``key`` of a checkpoint."""
    if not isinstance(content, Mapping) or key not in content:
        raise StateDictError(f"{shown(os.fspath(path))} has no entry {quoted(key)}; it holds {_describe(content)}")
    return content[key]


def _describe(content: Any) -> str:
    """The content of a file, in a few words."""
    if not isinstance(content, Mapping):
        return type(content).__name__
    # keys that are not text could be long
    keys = [quoted(k) if isinstance(k, str | int) else type(k).__name__ for k in content]
    return "the entries " + (
        listed((f"{k} ({type(v).__name__})" for k, v in zip(keys, content.values(), strict=True)), MOST) or "(none)"
    )
