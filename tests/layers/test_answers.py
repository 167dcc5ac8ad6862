"""What a model answers to habits of other frameworks and to slips, and how traces show themselves."""

import copy
import pickle

import numpy as np
import pytest

import elman
from elman.errors import DTypeError, ElmanError, MissingAttributeError, MissingNameError, ReadOnlyError


def network(**options):
    return elman.Network(elman.GRU(3, 4, 2, **options), elman.MLP(4, 5, 2))


@pytest.mark.parametrize("name", ["layer.weight_hh_l0", "readout.bias_ho"])
def test_a_parameter_cannot_be_replaced_but_written_into(name):
    net = network()
    before, values = net.theta.copy(), np.ones(net.params[name].shape)
    with pytest.raises(ReadOnlyError) as caught:
        net.params[name] = values
    assert f"write into it, params['{name}'][...] = values of shape {values.shape}" in str(caught.value)
    with pytest.raises(ReadOnlyError, match="cannot be deleted"):
        del net.params[name]
    assert np.array_equal(net.theta, before)
    net.params[name][...] = values
    assert (net.params[name] == 1).all()


def test_names_that_are_not_there():
    net = network()
    gradients = net.backward(net.trace(np.zeros((2, 1, 3))), np.zeros((2, 1, 2)))
    for mapping in (net.params, gradients.params):
        with pytest.raises(MissingNameError) as caught:
            mapping["readout.weigth_ho"]
        assert str(caught.value).startswith(
            "no parameter is called 'readout.weigth_ho': there are layer.weight_ih_l0, "
        )
        assert str(caught.value).endswith("; did you mean 'readout.weight_ho'?")
        assert isinstance(caught.value, KeyError)
        assert "readout.weigth_ho" not in mapping
        assert mapping.get("readout.weigth_ho") is None
    with pytest.raises(MissingNameError, match="no parameter is called 'W'"):
        net.params["W"] = 3
    with pytest.raises(MissingNameError, match="no parameter is called 3"):
        net.params[3]
    with pytest.raises(MissingNameError, match="^'h' is not in this trace, which has h_l0, h_l1$"):
        net.layer.trace(np.zeros((2, 1, 3))).states["h"]


def test_methods_of_other_frameworks():
    net = network()
    with pytest.raises(DTypeError, match=r"parameters is a mapping.*net.params.values\(\).*net.theta; elman.fit"):
        net.parameters()
    for name, cure in (
        ("forward", "output, hn = net"),
        ("train", "trace"),
        ("fit", "elman.fit"),
        ("get_weights", "params"),
        ("to", "astype"),
        ("save", "elman.save"),
    ):
        with pytest.raises(MissingAttributeError, match=f"'Network' object has no attribute '{name}': .*{cure}"):
            getattr(net, name)
    with pytest.raises(MissingAttributeError, match=r"params\['weight_hh_l1'\]"):
        _ = net.layer.weight_hh_l1
    assert not hasattr(net, "cuda")


def test_any_other_name_is_python_s_own_error():
    with pytest.raises(AttributeError, match="'GRU' object has no attribute 'hiden_size'") as caught:
        _ = elman.GRU(3, 4).hiden_size
    assert not isinstance(caught.value, ElmanError)
    assert caught.value.name == "hiden_size"
    bare = object.__new__(elman.GRU)
    with pytest.raises(AttributeError, match="parameters"):
        _ = bare.parameters
    assert not hasattr(bare, "__deepcopy__")


@pytest.mark.parametrize("checkpoint", [False, 10])
def test_a_trace_shows_shapes_and_bytes_and_no_arrays(checkpoint):
    T, B = 200, 30
    net = network(dropout=0.2)
    x = np.random.default_rng(0).standard_normal((T, B, 3))
    trace = net.trace(x, training=True, rng=0, checkpoint=checkpoint)
    text = repr(trace)
    assert text.startswith("NetworkTrace(output (200, 30, 2), ")
    assert "Trace(output (200, 30, 4), " in text
    assert "checkpoint=10" in text if checkpoint else "states h_l0, h_l1, gates " in text
    assert len(text) < 250
    assert "array" not in text
    # pickling writes all of it, and little else; padding may add to the numbers of the states and gates
    least = 8 * (B * T * (4 * (1 if checkpoint else 2 * 3) + 5 + 2))
    assert least < trace.nbytes < 1.05 * len(pickle.dumps(trace))
    dense = net.readout.trace(np.zeros((7, 4)))
    assert repr(dense).startswith("DenseTrace(output (7, 2), hidden (7, 5), ")
    assert "array" not in repr(net.readout.backward(dense, np.zeros((7, 2))))
    lists = net.trace([x[:4, 0], x[:5, 0]], training=False)
    assert repr(lists).startswith("NetworkTrace(output list of 2, ")
    assert copy.deepcopy(trace).nbytes == trace.nbytes


def test_bytes_that_two_arrays_share_count_once():
    layer = elman.RNN(3, 16, rng=0)
    x = np.zeros((100, 4, 3))
    trace = layer.trace(x)
    # the states that are kept are the output: (T + 1) B H numbers, and x
    assert trace.nbytes <= 8 * (101 * 4 * 16 + 100 * 4 * 16 + x.size)
    assert trace.nbytes >= 8 * (101 * 4 * 16 + x.size)
