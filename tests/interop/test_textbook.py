"""The textbook's layout, there and back, and against its equation."""

import numpy as np
import pytest

import elman
from elman.errors import ShapeError, StateDictError
from elman.interop import textbook


def weights(rng, readout=True):
    w = {"W_xh": rng.standard_normal((3, 6)), "W_hh": rng.standard_normal((6, 6)) / 3, "b_h": rng.standard_normal(6)}
    return w | ({"W_hq": rng.standard_normal((6, 2)), "b_q": rng.standard_normal(2)} if readout else {})


def test_the_equation():
    rng = np.random.default_rng(0)
    w = weights(rng)
    net = textbook.from_textbook(w)
    X = rng.standard_normal((5, 4, 3))
    H = np.zeros((4, 6))
    output, _ = net(X)
    for t in range(5):
        H = np.tanh(X[t] @ w["W_xh"] + H @ w["W_hh"] + w["b_h"])
        np.testing.assert_allclose(output[t], H @ w["W_hq"] + w["b_q"], rtol=1e-12)


@pytest.mark.parametrize("readout", [True, False])
def test_round_trip(readout):
    w = weights(np.random.default_rng(1), readout)
    back = textbook.to_textbook(textbook.from_textbook(w, nonlinearity="relu"))
    assert back.keys() == w.keys()
    assert all(np.array_equal(back[k], w[k]) for k in w)


def test_two_biases_become_their_sum():
    layer = elman.RNN(3, 6, bias_init="uniform", rng=0)
    p = layer.params
    np.testing.assert_array_equal(textbook.to_textbook(layer)["b_h"], p["bias_ih_l0"] + p["bias_hh_l0"])
    x = np.random.default_rng(0).standard_normal((4, 2, 3))
    np.testing.assert_allclose(textbook.from_textbook(textbook.to_textbook(layer))(x)[0], layer(x)[0], rtol=1e-12)
    assert not textbook.to_textbook(elman.RNN(3, 6, bias=False))["b_h"].any()


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"W_hh": None}, StateDictError, "W_xh, W_hh, b_h"),
        ({"W_hq": None}, StateDictError, "W_hq, b_q"),
        ({"extra": np.zeros(1)}, StateDictError, "extra"),
        ({"W_xh": np.zeros(3)}, StateDictError, "two axes"),
        ({"W_hh": np.zeros((6, 5))}, ShapeError, "weight_hh_l0"),
    ],
)
def test_refusals(change, error, words):
    w = {k: v for k, v in (weights(np.random.default_rng(2)) | change).items() if v is not None}
    with pytest.raises(error, match=words):
        textbook.from_textbook(w)


def test_a_nonlinear_readout_has_no_textbook_form():
    with pytest.raises(StateDictError, match="linear"):
        textbook.to_textbook(elman.Network(elman.RNN(2, 4), elman.MLP(4, 3, 1)))


@pytest.mark.parametrize(
    "layer",
    [
        elman.GRU(2, 3),
        elman.RNN(2, 3, 2),
        elman.RNN(2, 3, bidirectional=True),
        elman.RNN(2, 3, learn_initial_state=True),
        elman.RNN(2, 3, zoneout=0.1),
    ],
    ids=repr,
)
def test_what_the_textbook_does_not_write_is_refused(layer):
    with pytest.raises(StateDictError, match="one layer of Elman cells in one direction"):
        textbook.to_textbook(layer)
