"""Outputs and all gradients against torch.nn.RNN: recorded values always, live ones where torch is installed."""

import itertools
import json
from pathlib import Path

import naive
import numpy as np
import pytest

import elman

RECORDED = json.loads((Path(__file__).parents[1] / "data" / "torch_rnn.json").read_text())["cases"]
RTOL = {"float64": 1e-12, "float32": 1e-5}


def assert_close(got, expected, dtype, name):
    expected = np.asarray(expected)
    error = abs(got - expected).max(initial=0) / max(abs(expected).max(initial=0), 1e-300)
    assert error <= RTOL[dtype], f"{name}: {error:.1e} of the largest entry"


def compare(layer, x, h0, d_output, d_hn, expected):
    """Run both passes and compare with arrays by name."""
    dtype = layer.dtype.name
    output, hn = layer(x, h0)
    grads = layer.backward(layer.trace(x, h0), d_output, d_hn)
    got = {"output": output, "hn": hn, "d_x": grads.x} | {f"d_{k}": v for k, v in grads.params.items()}
    if h0 is not None:
        got["d_h0"] = grads.h0
    for name, value in got.items():
        assert value.dtype == layer.dtype
        assert_close(value, expected[name], dtype, name)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("case", RECORDED, ids=lambda c: f"{c['nonlinearity']}-bias{c['bias']}-h0{c['h0']}-H{c['H']}")
def test_recorded(case, dtype):
    layer = elman.RNN(case["D"], case["H"], nonlinearity=case["nonlinearity"], bias=case["bias"], dtype=dtype)
    layer.load_state_dict({name: np.array(case[name]) for name in layer.params})
    h0 = np.array(case["h0_value"]) if case["h0"] else None
    compare(layer, np.array(case["x"]), h0, np.array(case["d_output"]), np.array(case["d_hn"]), case)


SHAPES = [(7, 5, 3, 10), (12, 1, 2, 33), (3, 33, 1, 1), (1, 4, 28, 64), (40, 16, 7, 100)]


def away_from_the_kink(nonlinearity, bias, given, shape, dtype):
    """A random problem; for relu one where rounding cannot move a pre-activation across 0 and change its slope."""
    T, B, D, H = shape
    for seed in range(100):
        rng = np.random.default_rng([seed, *shape])
        layer = elman.RNN(D, H, nonlinearity=nonlinearity, bias=bias, dtype=dtype)
        layer.theta[:] = rng.uniform(-1, 1, layer.theta.size) / np.sqrt(H)
        x, h0, d_output, d_hn = (
            rng.standard_normal(s).astype(dtype) for s in ((T, B, D), (1, B, H), (T, B, H), (1, B, H))
        )
        params = {k: v.astype(np.float64) for k, v in layer.params.items()}
        a, _ = naive.rnn_forward(params, x.astype(np.float64), given * h0[0].astype(np.float64), nonlinearity)
        if nonlinearity != "relu" or dtype == "float64" or abs(a).min() > 1e-5:
            return layer, x, h0, d_output, d_hn
    raise AssertionError("no problem without a pre-activation near 0 among 100")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    ("nonlinearity", "bias", "given", "shape"),
    list(itertools.product(["tanh", "relu"], [True, False], [True, False], SHAPES)),
)
def test_live(nonlinearity, bias, given, shape, dtype):
    torch = pytest.importorskip("torch")
    _T, _B, D, H = shape
    layer, x, h0, d_output, d_hn = away_from_the_kink(nonlinearity, bias, given, shape, dtype)
    # torch computes in float64 from the same rounded numbers, so that the difference is ours alone
    reference = torch.nn.RNN(D, H, nonlinearity=nonlinearity, bias=bias).double()
    reference.load_state_dict({k: torch.from_numpy(v.astype(np.float64)) for k, v in layer.state_dict().items()})
    tx, th = (torch.from_numpy(a.astype(np.float64)).requires_grad_() for a in (x, h0))
    output, hn = reference(tx, th if given else None)
    (output * torch.from_numpy(d_output.astype(np.float64))).sum().backward(retain_graph=True)
    (hn * torch.from_numpy(d_hn.astype(np.float64))).sum().backward()
    expected = {"output": output, "hn": hn, "d_x": tx.grad} | {
        f"d_{n}": p.grad for n, p in reference.named_parameters()
    }
    if given:
        expected["d_h0"] = th.grad
    expected = {k: v.detach().numpy() for k, v in expected.items()}
    compare(layer, x, h0 if given else None, d_output, d_hn, expected)
