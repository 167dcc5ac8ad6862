"""Files of weights, recognised by their content, not their suffix, and the recurrent layer somewhere in such a file."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from ..errors import StateDictError
from ..files import check_source, listed, quoted, shown
from ..layers import GRU, RNN, Network
from ..layers.recurrent import Recurrent
from .arrays_file import read_npz
from .metadata import StatedWeights, stated_under
from .safetensors import load_safetensors
from .state_dict import cell_of, layer_from_weights, model_from_weights, numbered, prefixes
from .torch_files import load_pt

Array = NDArray[Any]
MOST = 12
"""Most names that an error lists."""
USUAL: dict[Any, dict[str, Any]] = {RNN: {"nonlinearity": "tanh"}, GRU: {"reset_after": True}}
"""Options of PyTorch's layers that their weights do not reveal, with the values assumed."""
FOREIGN = {
    b"\x89HDF": "an HDF5 file; Keras reads it: elman.interop.from_keras takes its layers, or their get_weights()",
    b"\x08": "perhaps an ONNX model: elman.interop.from_onnx takes it",
}
"""First bytes of files that other functions or packages read."""


def read_weights(path: str, key: str | None = None) -> StatedWeights:
    """Arrays of a file by name, and what the file states about them; no pickle is executed.

    Parameters
    ----------
    path : str
        A safetensors file, a file of ``torch.save`` with any suffix, or an ``.npz``; recognised by their first bytes.
    key : str, optional
        Where in a checkpoint of PyTorch the weights are.

    Raises
    ------
    StateDictError
        If it is none of these, is damaged, or ``key`` is given for a file without entries.
    MissingExtraError
        Without the package that reads it.
    ArgumentError, OSError
        If it cannot be read; see :func:`elman.files.check_source`.
    """
    check_source(path)
    with open(path, "rb") as file:
        start = file.read(9)
        members = _members(file)
    if path.endswith((".pt", ".pth")) or start[:1] == b"\x80" or any(name.endswith("data.pkl") for name in members):
        return StatedWeights(load_pt(path, key=key), {})
    if key is not None:
        raise StateDictError(
            f"{shown(path)} is not a file of torch.save: there are no entries to take {quoted(key)} from"
        )
    if path.endswith(".safetensors") or start[8:] == b"{":
        return load_safetensors(path)
    for first, what in FOREIGN.items():
        if start.startswith(first):
            raise StateDictError(f"{shown(path)} is not an .npz, .safetensors or torch.save file, but {what}")
    if not members:
        raise StateDictError(f"{shown(path)} is not an .npz of named arrays, as np.savez writes it")
    return StatedWeights(read_npz(path), {})


def _members(file: Any) -> list[str]:
    """Names in a zip archive; none if it is another kind of file."""
    if not zipfile.is_zipfile(file):
        return []
    try:
        with zipfile.ZipFile(file) as archive:
            return archive.namelist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError, struct.error):
        return []


def model_in_file(
    weights: StatedWeights, prefix: str, options: Mapping[str, Any]
) -> tuple[Recurrent | Network, dict[str, Any], list[str]]:
    """The layer, or the network with a readout, below a prefix.

    Parameters
    ----------
    weights : StatedWeights
        From :func:`read_weights`.
    prefix : str
        Such as ``"encoder.rnn."``; the last dot may be left out.
    options : mapping
        Options from the caller: ``nonlinearity``, ``reset_after``, ``zoneout``, ``batch_first``.

    Returns
    -------
    model : layer or network
    assumed : dict
        Options that neither the file stated nor the caller gave, with the values used.
    unused : list of str
        Names below the prefix that belong to other parts.

    Raises
    ------
    StateDictError
        If there is no recurrent layer right below the prefix; the message lists what the file holds, and where one is.
    ShapeError, DTypeError, ArgumentError
        If the shapes are not those of a layer, or an option contradicts the file.
    """
    if prefix and not prefix.endswith(".") and not any(name.startswith(prefix + "weight_") for name in weights):
        prefix += "."
    below = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
    starts = prefixes(below)
    network = "layer." in starts and any(name.startswith("readout.") for name in below)
    if not network and "" not in starts:
        raise StateDictError(_listing(weights, prefix))
    used = {n: v for n, v in below.items() if (n.startswith(("layer.", "readout.")) if network else "." not in n)}
    part, stated = "layer." if network else "", stated_under(weights, prefix)
    assumed: dict[str, Any] = {}
    if part not in stated:
        layer = numbered({n.removeprefix(part): v for n, v in used.items() if n.startswith(part)})
        usual = {**USUAL.get(cell_of(layer)[0], {}), "zoneout": 0.0}
        assumed = {name: value for name, value in usual.items() if name not in options}
    given = {**options, **assumed}
    if network:
        model: Any = model_from_weights(used, None, given, stated)
    else:
        model = layer_from_weights(used, {name: prefix + name for name in used}, None, given, stated.get(""))
    return model, assumed, [prefix + name for name in below if name not in used]


def _listing(weights: Mapping[str, Array], prefix: str) -> str:
    """Why nothing was found at a prefix, what the file holds, and which prefixes have a layer."""
    there = listed((f"{shown(name)} {value.shape}" for name, value in weights.items()), MOST)
    starts = prefixes(weights)
    cure = (
        f". A recurrent layer is at the prefix {' or '.join(map(quoted, starts[:MOST]))}"
        if starts
        else ". There is no recurrent layer under PyTorch's names in it"
    )
    return (
        "the weights must have PyTorch's names, weight_ih_l0, weight_hh_l0 and so on (of a cell weight_ih, weight_hh), "
        f"right after the prefix {quoted(prefix)}, or after 'layer.' beside 'readout.'; the file holds "
        f"{there or 'nothing'}{cure}"
    )
