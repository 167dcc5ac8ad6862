"""Forward passes that others have published, with their inputs, weights and results; each case has its source.

Arrays are X (T, B, I), W (directions, G, I), R (directions, G, H), Wb and Rb (directions, G), h0 and c0 (directions,
B, H); results Y (T, directions, B, H), Y_h and Y_c (directions, B, H). The gates stand in the case's ``gate_order``;
``lbr`` is whether a GRU's reset acts after the product.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import elman
from elman.errors import ArgumentError
from elman.interop.onnx.read import from_onnx

CASES = json.loads((Path(__file__).parents[1] / "data" / "golden.json").read_text())
FOREIGN = {
    "ort_lstm_peephole_nobias": "P='P', peephole weights, cannot be expressed",
    "ort_lstm_input_forget(coupled)": "input_forget=1 cannot be expressed",
    "ort_lstm_acts_tanh_sigm_tanh": r"activations=\['tanh', 'sigmoid', 'tanh'\] cannot be expressed",
}
"""Networks that elman does not have, and how they are refused."""
OURS = [case for case in CASES if case["name"] not in FOREIGN]
WEIGHTS = {"W": "weight_ih", "R": "weight_hh", "Wb": "bias_ih", "Rb": "bias_hh"}
ONNX_GATES = {"RNN": "h", "LSTM": "iofc", "GRU": "zrn"}


def arrays(case, gates):
    """W, R and, where the case has one of them, Wb and Rb, with the gates in the given order."""
    given = case.get("gate_order", "h")
    out = {name: np.array(case[name]) for name in WEIGHTS if name in case}
    if "Wb" in out or "Rb" in out:
        zero = np.zeros(out["W"].shape[:2])
        out = {"Wb": zero, "Rb": zero, **out}
    order = [given.index(gate) for gate in gates]
    return {name: a.reshape(len(a), len(given), -1, *a.shape[2:])[:, order].reshape(a.shape) for name, a in out.items()}


def build(case, dtype):
    """The layer, and how many directions come before those of the case: for a reverse one, a forward one of zeros."""
    cell = getattr(elman, case["cell"])
    gates = "".join(getattr(cell, "GATES", "h")).replace("g", "c")
    values, direction = arrays(case, gates), case.get("direction", "forward")
    options = {"reset_after": case.get("lbr", False)} if case["cell"] == "GRU" else {}
    layer = cell(
        values["W"].shape[2],
        values["R"].shape[2],
        bias="Wb" in values,
        bidirectional=direction != "forward",
        dtype=dtype,
        **options,
    )
    suffixes = {"forward": [""], "reverse": ["_reverse"], "bidirectional": ["", "_reverse"]}[direction]
    named = {
        f"{WEIGHTS[name]}_l0{suffix}": block
        for name, array in values.items()
        for suffix, block in zip(suffixes, array, strict=True)
    }
    layer.load_state_dict({name: named.get(name, np.zeros(p.shape)).astype(dtype) for name, p in layer.params.items()})
    return layer, int(direction == "reverse")


def states(case, skipped):
    """(h0, c0) as far as the cell has them, or None for zero; ``skipped`` directions before those of the case."""
    given = [np.array(case[name]) for name in ("h0", "c0") if name in case]
    if not given:
        return None
    if case["cell"] == "LSTM" and len(given) == 1:
        given.append(np.zeros_like(given[0]))
    padded = tuple(np.concatenate([np.zeros((skipped, *g.shape[1:])), g]) for g in given)
    return padded if case["cell"] == "LSTM" else padded[0]


def assert_published(case, output, hn, skipped=0):
    """Compare what the case has with elman's output (T, B, directions * H) and final states."""
    finals = hn if isinstance(hn, tuple) else (hn,)
    T, B, _ = output.shape
    H = finals[0].shape[2]
    by_direction = output.reshape(T, B, -1, H).swapaxes(1, 2)[:, skipped:]
    got = {"Y": by_direction, **{n: f[skipped:] for n, f in zip(("Y_h", "Y_c"), finals, strict=False)}}
    assert case["expect"]
    for name, values in case["expect"].items():
        expected = np.array(values)
        assert got[name].shape == expected.shape
        # the values have been published with six decimals or more, or as many as the tolerance says
        assert abs(got[name] - expected).max() <= case["tol"], name


@pytest.mark.parametrize("case", OURS, ids=lambda case: case["name"])
def test_published(case, dtype):
    layer, skipped = build(case, dtype)
    output, hn = layer(np.array(case["X"]), states(case, skipped), lengths=case.get("seq_lens"))
    assert_published(case, output, hn, skipped)


def node(case):
    """The case as an ONNX model of one node with constants."""
    onnx = pytest.importorskip("onnx")
    values = arrays(case, ONNX_GATES[case["cell"]])
    constants = {"W": values["W"], "R": values["R"]}
    if "Wb" in values:
        constants["B"] = np.concatenate([values["Wb"], values["Rb"]], axis=1)
    constants |= {name: np.array(case[name]) for name in ("h0", "c0", "P") if name in case}
    if "seq_lens" in case:
        constants["lengths"] = np.array(case["seq_lens"], np.int32)
    inputs = [n if n in constants else "" for n in ("W", "R", "B", "lengths", "h0", "c0", "P")]
    attributes = {"direction": case.get("direction", "forward"), "hidden_size": constants["R"].shape[2]}
    optional = {"linear_before_reset": int(case.get("lbr", False)), "input_forget": int(case.get("coupled", False))}
    attributes |= {name: value for name, value in optional.items() if value}
    if "acts" in case:
        attributes["activations"] = case["acts"]
    real = onnx.TensorProto.DOUBLE
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(case["cell"], ["X", *inputs], ["Y"], name="node", **attributes)],
        case["name"],
        [onnx.helper.make_tensor_value_info("X", real, ["T", "B", constants["W"].shape[2]])],
        [onnx.helper.make_tensor_value_info("Y", real, None)],
        [onnx.numpy_helper.from_array(np.ascontiguousarray(a), name) for name, a in constants.items()],
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 14)])


@pytest.mark.parametrize("case", OURS, ids=lambda case: case["name"])
def test_published_through_onnx(case):
    """The same as a node with constant states and lengths: calling the result with X alone is enough."""
    loaded = from_onnx(node(case))
    assert loaded.reverse == (case.get("direction") == "reverse")
    assert_published(case, *loaded(np.array(case["X"])))


@pytest.mark.parametrize("case", [case for case in CASES if case["name"] in FOREIGN], ids=lambda case: case["name"])
def test_other_networks_are_refused_by_name(case):
    alone = {k: v for k, v in case.items() if k != "P"} if case.get("coupled") else case
    with pytest.raises(ArgumentError, match=FOREIGN[case["name"]]):
        from_onnx(node(alone))


def test_every_case_is_there():
    assert len(OURS) == 21
    assert len(FOREIGN) == 3
    assert all(case["source"] for case in CASES)
