"""PyTorch's modules and files: parity of outputs, exact weights both ways, and a refusal for everything else."""

import argparse
import functools
import itertools
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

import elman
from elman.errors import ArgumentError, DTypeError, ShapeError, StateDictError
from elman.interop import from_torch, load_pt, to_torch

torch = pytest.importorskip("torch")

CELLS = ("RNN", "LSTM", "GRU")
LAYOUTS = [
    {"num_layers": 1},
    {"num_layers": 1, "bidirectional": True},
    {"num_layers": 3, "batch_first": True},
    {"num_layers": 2, "bidirectional": True, "bias": False},
]
CASES = [(cell, layout) for cell in CELLS for layout in LAYOUTS]
CASES += [("RNN", {"nonlinearity": "relu", "num_layers": 2}), ("LSTM", {"proj_size": 3, "num_layers": 2})]
CASES += [("LSTM", {"proj_size": 2, "bidirectional": True, "num_layers": 2})]


def module_of(cell, seed=0, D=4, H=5, dtype=torch.float64, **options):
    """A module with random weights and biases, none of them 0."""
    rng = np.random.default_rng(seed)
    module = getattr(torch.nn, cell)(D, H, dtype=dtype, **options)
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.from_numpy(rng.uniform(-0.8, 0.8, p.shape)))
    return module


def problem(module, seed=1, T=7, B=3):
    """Random x in the module's order of axes, and random initial states."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((B, T, module.input_size) if module.batch_first else (T, B, module.input_size))
    n = module.num_layers * (2 if module.bidirectional else 1)
    states = [rng.standard_normal((n, B, module.proj_size or module.hidden_size))]
    if module.mode == "LSTM":
        states.append(rng.standard_normal((n, B, module.hidden_size)))
    return x, tuple(states) if len(states) > 1 else states[0]


def run(module, x, h0):
    """Output and final states of PyTorch, as arrays in one list."""
    state = tuple(map(torch.from_numpy, h0)) if isinstance(h0, tuple) else torch.from_numpy(h0)
    with torch.no_grad():
        output, hn = module(torch.from_numpy(x), state)
    return [output.numpy(), *(s.numpy() for s in (hn if isinstance(hn, tuple) else (hn,)))]


def outputs(layer, x, h0, **options):
    """The same of a layer."""
    output, hn = layer(x, h0, **options)
    return [output, *(hn if isinstance(hn, tuple) else (hn,))]


def far(one, other):
    """Largest difference between two lists of arrays of the same shapes."""
    assert [a.shape for a in one] == [b.shape for b in other]
    return max(abs(a - b).max() for a, b in zip(one, other, strict=True))


def arrays(module):
    return {name: p.detach().numpy() for name, p in module.named_parameters()}


def ids(value):
    return "-".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else value


@pytest.mark.parametrize(("cell", "options"), CASES, ids=ids)
def test_a_module_computes_the_same_here_and_there_again(cell, options):
    module = module_of(cell, **options)
    x, h0 = problem(module)
    layer = from_torch(module)
    assert type(layer) is getattr(elman, cell)
    assert layer.dtype == np.float64
    assert far(outputs(layer, x, h0), run(module, x, h0)) < 1e-12
    back = to_torch(layer)
    assert type(back) is type(module)
    assert far(run(back, x, h0), run(module, x, h0)) == 0
    assert arrays(back).keys() == arrays(module).keys()
    assert all(np.array_equal(arrays(back)[name], value) for name, value in arrays(module).items())


@pytest.mark.parametrize(("cell", "options"), CASES, ids=ids)
def test_a_state_dict_tells_all_but_the_options(cell, options):
    module = module_of(cell, **options)
    x, h0 = problem(module)
    untold = {name: options[name] for name in ("batch_first", "nonlinearity") if name in options}
    if cell == "RNN":
        untold.setdefault("nonlinearity", "tanh")
    for source in (module.state_dict(), arrays(module)):
        assert far(outputs(from_torch(source, **untold), x, h0), run(module, x, h0)) < 1e-12


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_lengths_are_packed_sequences(cell, bidirectional):
    module = module_of(cell, bidirectional=bidirectional, num_layers=2)
    x, h0 = problem(module)
    lengths = [4, 7, 1]
    packed = torch.nn.utils.rnn.pack_padded_sequence(torch.from_numpy(x), lengths, enforce_sorted=False)
    state = tuple(map(torch.from_numpy, h0)) if isinstance(h0, tuple) else torch.from_numpy(h0)
    with torch.no_grad():
        output, hn = module(packed, state)
    output = torch.nn.utils.rnn.pad_packed_sequence(output)[0].numpy()
    expected = [output, *(s.numpy() for s in (hn if isinstance(hn, tuple) else (hn,)))]
    assert far(outputs(from_torch(module), x, h0, lengths=lengths), expected) < 1e-12


@pytest.mark.parametrize(
    ("cell", "gates"), [("LSTM", p) for p in itertools.combinations(range(4), 2)] + [("GRU", (0, 1)), ("GRU", (1, 2))]
)
def test_a_swapped_gate_would_show(cell, gates):
    """The problem of the parity tests tells any two gates apart."""
    module = module_of(cell)
    x, h0 = problem(module)
    order = list(range(4 if cell == "LSTM" else 3))
    order[gates[0]], order[gates[1]] = order[gates[1]], order[gates[0]]
    swapped = {
        name: np.concatenate([np.split(value, len(order))[i] for i in order]) for name, value in arrays(module).items()
    }
    assert far(outputs(from_torch(swapped), x, h0), run(module, x, h0)) > 1e-2


@pytest.mark.parametrize("name", ["bias_ih_l0", "bias_hh_l0"])
@pytest.mark.parametrize("cell", CELLS)
def test_a_lost_bias_would_show(cell, name):
    module = module_of(cell)
    x, h0 = problem(module)
    weights = arrays(module) | {name: np.zeros_like(arrays(module)[name])}
    options = {"nonlinearity": "tanh"} if cell == "RNN" else {}
    assert far(outputs(from_torch(weights, **options), x, h0), run(module, x, h0)) > 1e-2


@pytest.mark.parametrize("kind", ["module", "state dict", "model"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("cell", "options"), [("RNNCell", {}), ("RNNCell", {"nonlinearity": "relu"}), ("LSTMCell", {}), ("GRUCell", {})]
)
def test_a_cell_becomes_a_layer_of_whole_sequences(cell, options, bias, kind):
    """Against PyTorch's cell, called step by step."""
    module = module_of(cell, bias=bias, **options)
    rng = np.random.default_rng(1)
    x = rng.standard_normal((7, 3, 4))
    states = [rng.standard_normal((3, 5)) for _ in range(2 if cell == "LSTMCell" else 1)]
    state = [torch.from_numpy(s) for s in states]
    steps = []
    with torch.no_grad():
        for row in torch.from_numpy(x):
            new = module(row, tuple(state) if len(state) > 1 else state[0])
            state = list(new) if isinstance(new, tuple) else [new]
            steps.append(state[0].numpy())
    h0 = tuple(s[None] for s in states)
    if kind == "module":
        layer = from_torch(module)
    elif kind == "model":
        layer = from_torch(torch.nn.ModuleDict({"cell": module}), prefix="cell")
    else:
        told = {"nonlinearity": options.get("nonlinearity", "tanh")} if cell == "RNNCell" else {}
        layer = from_torch(module.state_dict(), **told)
    expected = [np.stack(steps), *(s.numpy()[None] for s in state)]
    assert far(outputs(layer, x, h0 if len(h0) > 1 else h0[0]), expected) < 1e-12


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_learned_initial_states_come_back(kind, bidirectional):
    layer = getattr(elman, kind)(4, 5, 2, learn_initial_state=True, bidirectional=bidirectional)
    layer.theta[:] = np.random.default_rng(0).uniform(-0.8, 0.8, layer.theta.size)
    told = {"nonlinearity": "tanh"} if kind == "RNN" else {}
    back = from_torch({f"net.{name}": w for name, w in layer.state_dict().items()}, prefix="net.", **told)
    assert repr(back) == repr(layer)
    assert np.array_equal(back.theta, layer.theta)
    some = {name: w for name, w in layer.state_dict().items() if name != "h0_l1"}
    with pytest.raises(StateDictError, match="missing h0_l1"):
        from_torch(some, **told)


def test_options_of_a_module_are_read():
    layer = from_torch(torch.nn.RNN(3, 4, 2, nonlinearity="relu", batch_first=True, dropout=0.25))
    assert (layer.nonlinearity, layer.batch_first, layer.dropout) == ("relu", True, 0.25)
    back = to_torch(layer)
    assert (back.nonlinearity, back.batch_first, back.dropout, back.training) == ("relu", True, 0.25, False)
    assert from_torch(torch.nn.GRU(3, 4), zoneout=0.1).zoneout == (0.1,)
    with pytest.warns(UserWarning, match="dropout"):
        idle = torch.nn.GRU(3, 4, dropout=0.5)
    assert from_torch(idle).dropout == 0.0


class Model(torch.nn.Module):
    """What users have: a recurrent layer inside other things."""

    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.ModuleDict({"rnn": module_of("GRU"), "rnn2": module_of("GRU", seed=1)})
        self.fc = torch.nn.Linear(5, 2, dtype=torch.float64)


@pytest.mark.parametrize("kind", ["module", "state dict"])
def test_a_prefix_chooses_a_part(kind):
    model = Model()
    source = model if kind == "module" else model.state_dict()
    layer = from_torch(source, prefix="encoder.rnn.")
    x, h0 = problem(model.encoder["rnn"])
    assert far(outputs(layer, x, h0), run(model.encoder["rnn"], x, h0)) < 1e-12
    readout = from_torch(source, prefix="fc.")
    h = np.random.default_rng(0).standard_normal((3, 5))
    np.testing.assert_allclose(readout(h), model.fc(torch.from_numpy(h)).detach().numpy(), rtol=1e-12)
    with pytest.raises(StateDictError, match=r"encoder\.rnn2"):
        from_torch(model.state_dict(), prefix="encoder.")
    with pytest.raises(StateDictError, match="decoder"):
        from_torch(source, prefix="decoder.")


@pytest.mark.parametrize("bias", [True, False])
def test_linear_and_readout(bias):
    linear = torch.nn.Linear(5, 3, bias=bias)
    readout = from_torch(linear)
    assert type(readout) is elman.Readout
    assert readout.dtype == np.float32
    back = to_torch(readout)
    assert back.state_dict().keys() == linear.state_dict().keys()
    assert all(torch.equal(value, linear.state_dict()[name]) for name, value in back.state_dict().items())


def test_a_network_becomes_a_module_dict_of_its_names():
    net = elman.Network(elman.LSTM(3, 4, rng=0, bias_init="uniform"), elman.Readout(4, 2, rng=1))
    modules = to_torch(net)
    assert list(modules.state_dict()) == list(net.params)
    x = np.random.default_rng(0).standard_normal((5, 2, 3))
    with torch.no_grad():
        hidden, _ = modules["layer"](torch.from_numpy(x))
        np.testing.assert_allclose(modules["readout"](hidden).numpy(), net(x)[0], rtol=1e-12)
    parts = (from_torch(modules.state_dict(), prefix=prefix) for prefix in ("layer.", "readout."))
    assert np.array_equal(elman.Network(*parts).theta, net.theta)


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu", "sigmoid", "identity"])
def test_perceptrons_there_and_back(nonlinearity, dtype):
    mlp = elman.MLP(3, 5, 2, nonlinearity, dtype=dtype, rng=0)
    mlp.theta[:] = np.random.default_rng(1).standard_normal(mlp.theta.size)
    module, x = to_torch(mlp), np.random.default_rng(0).standard_normal((6, 3)).astype(dtype)
    with torch.no_grad():
        expected = module(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(mlp(x), expected, rtol=1e-12 if dtype == "float64" else 1e-5, atol=1e-6)
    back = from_torch(module)
    assert repr(back) == repr(mlp)
    assert back.theta.tobytes() == mlp.theta.tobytes()
    inside = torch.nn.ModuleDict({"head": module})
    assert from_torch(inside, prefix="head.").theta.tobytes() == mlp.theta.tobytes()
    with pytest.raises(ArgumentError, match="nonlinearity must not be given"):
        from_torch(module, nonlinearity="tanh")


def test_modules_that_are_no_perceptron_and_no_network():
    n = torch.nn
    for module, error, words in (
        (
            n.Sequential(n.Linear(3, 4), n.Tanh(), n.Linear(4, 2, bias=False)),
            ArgumentError,
            'none as 2.bias.*prefix="0"',
        ),
        (n.Sequential(n.Linear(3, 4), n.GELU(), n.Linear(4, 2)), DTypeError, "parts as prefix: 0, 2"),
        (n.Sequential(n.Linear(3, 4), n.Tanh(), n.Linear(4, 2), n.Tanh()), DTypeError, "parts as prefix: 0, 2"),
        (n.ModuleDict({"layer": n.GRU(3, 4)}), DTypeError, "parts as prefix: layer"),
        (n.ModuleDict({"layer": n.GRU(3, 4), "readout": n.Linear(5, 2)}), ShapeError, "readout must read"),
        (n.ModuleDict({"layer": n.Linear(3, 4), "readout": n.Linear(4, 2)}), DTypeError, "a network is"),
    ):
        with pytest.raises(error, match=words):
            from_torch(module)


@pytest.mark.parametrize("at", ["steps", "end"])
@pytest.mark.parametrize("head", [lambda: elman.Readout(8, 2, rng=1), lambda: elman.MLP(8, 5, 2, "relu", rng=1)])
def test_networks_there_and_back(head, at):
    net = elman.Network(elman.LSTM(3, 4, 2, bidirectional=True, rng=0, bias_init="uniform"), head())
    modules, x = to_torch(net), np.random.default_rng(0).standard_normal((5, 2, 3))
    with torch.no_grad():
        hidden, _ = modules["layer"](torch.from_numpy(x))
        np.testing.assert_allclose(modules["readout"](hidden).numpy(), net(x)[0], rtol=1e-11, atol=1e-14)
    back = from_torch(modules, at=at)
    assert back.at == at
    assert repr(back.layer) == repr(net.layer)
    assert back.theta.tobytes() == net.theta.tobytes()
    narrow = from_torch(modules.float())
    assert narrow.dtype == narrow.layer.dtype == np.float32
    assert np.array_equal(narrow.theta, net.theta.astype("float32"))
    # elman's own arrays say all of it
    again = from_torch(net.state_dict())
    assert repr(again) == repr(net)
    assert again.theta.tobytes() == net.theta.tobytes()


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float8_e5m2", "float32"])
def test_narrow_numbers_become_float32_exactly(kind):
    weights = {n: p.detach().to(getattr(torch, kind)) for n, p in module_of("GRU").named_parameters()}
    layer = from_torch(weights)
    assert layer.dtype == np.float32
    assert all(np.array_equal(layer.params[n], p.double().numpy()) for n, p in weights.items())
    assert from_torch(weights, dtype="float64").dtype == np.float64


def test_a_narrower_type_rounds_where_it_is_asked_for():
    module = module_of("GRU")
    layer = from_torch(module, dtype="float32")
    assert all(np.array_equal(layer.params[n], p.astype("float32")) for n, p in arrays(module).items())
    with pytest.raises(ArgumentError, match="finite"), np.errstate(over="ignore"):
        from_torch({n: 1e300 * p for n, p in arrays(module).items()}, dtype="float32")


def test_tensors_of_any_strides_and_on_autograd():
    module = module_of("LSTM")
    weights = dict(module.named_parameters())
    assert all(p.requires_grad for p in weights.values())
    odd = {n: torch.stack([p, p], -1)[..., 1] for n, p in weights.items()}
    odd["weight_ih_l0"] = weights["weight_ih_l0"].T.contiguous().T
    assert not any(p.is_contiguous() for p in odd.values())
    assert np.array_equal(from_torch(odd).theta, from_torch(weights).theta)


def test_the_new_layer_has_its_own_weights():
    module = module_of("GRU")
    layer, back = from_torch(module), to_torch(from_torch(module))
    before = layer.theta.copy()
    with torch.no_grad():
        for p in (*module.parameters(), *back.parameters()):
            p.zero_()
    assert np.array_equal(layer.theta, before)


def test_the_random_state_of_torch_stays():
    before = torch.random.get_rng_state()
    to_torch(elman.GRU(3, 4))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_what_comes_out_trains():
    module = to_torch(elman.GRU(3, 4, dtype="float32", rng=0)).train()
    module(torch.ones(2, 1, 3))[0].sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in module.parameters())


def without(weights, *names):
    return {n: v for n, v in weights.items() if n not in names}


def gru(**changes):
    return {n: v for n, v in (arrays(module_of("GRU")) | changes).items() if v is not None}


@pytest.mark.parametrize(
    ("weights", "options", "error", "words"),
    [
        (gru(bias_hh_l0=None), {}, StateDictError, "missing bias_hh_l0"),
        (gru(weight_hh_l0=None), {}, StateDictError, "missing weight_hh_l0"),
        (gru(weight_ih_l2=np.ones((15, 5))), {}, StateDictError, "missing weight_ih_l1"),
        (gru(weight_ih_l999999999=np.ones((15, 5))), {}, StateDictError, "missing"),
        (gru(weight_ih=np.ones((15, 4))), {}, StateDictError, "unknown weight_ih"),
        (gru(weight_hh_l0_g=np.ones(15)), {}, StateDictError, "unknown weight_hh_l0_g"),
        (gru(weight_ih_l0_reverse=np.ones((15, 4))), {}, StateDictError, "missing .*weight_hh_l0_reverse"),
        (gru(weight_ih_l0=np.ones(15)), {}, ShapeError, "two axes"),
        (gru(weight_ih_l0=np.ones((10, 4)), weight_hh_l0=np.ones((10, 5))), {}, ShapeError, r"3 H .* 10"),
        (gru(weight_ih_l0=np.ones((16, 4))), {}, ShapeError, "16"),
        (gru(weight_hr_l0=np.ones((2, 5))), {}, ShapeError, "weight_hr"),
        (gru(weight_hh_l0=np.ones((15, 0))), {}, ShapeError, "H = 0"),
        (gru(bias_ih_l0=np.ones(14)), {}, ShapeError, "bias_ih_l0"),
        (gru(bias_ih_l0=np.ones(15, int)), {}, DTypeError, "bias_ih_l0 .* int64"),
        (gru(bias_ih_l0=np.ones(15, complex)), {}, DTypeError, "complex"),
        (gru(bias_ih_l0=np.full(15, np.nan)), {}, ArgumentError, "bias_ih_l0"),
        (gru(bias_ih_l0=torch.ones(15, device="meta")), {}, DTypeError, "meta"),
        (gru(bias_ih_l0=torch.ones(15).to_sparse()), {}, DTypeError, "sparse"),
        (gru(), {"num_layers": 1}, ArgumentError, "num_layers"),
        (gru(), {"forget_bias": 0.0}, ArgumentError, "forget_bias"),
        (gru(), {"reset_after": False}, ArgumentError, "reset_after"),
        (gru(), {"nonlinearity": "tanh"}, ArgumentError, "nonlinearity must not be given"),
        (gru(), {"dtype": "float16"}, DTypeError, "float16"),
        ({}, {}, StateDictError, "no weights"),
        ({0: np.ones(1)}, {}, StateDictError, "0"),
        ([1, 2], {}, DTypeError, "list"),
        (arrays(module_of("RNN")), {}, ArgumentError, "nonlinearity must be given"),
    ],
)
def test_weights_that_are_refused(weights, options, error, words):
    with pytest.raises(error, match=words):
        from_torch(weights, **options)


class Mine(torch.nn.GRU):
    """A subclass may compute anything."""


@pytest.mark.parametrize(
    ("module", "options", "error", "words"),
    [
        (Mine(3, 4), {}, DTypeError, "Mine"),
        (torch.nn.LSTMCell(3, 4), {"nonlinearity": "tanh"}, ArgumentError, "nonlinearity"),
        (torch.nn.Sequential(torch.nn.Linear(3, 4)), {}, DTypeError, "prefix: 0"),
        (torch.nn.utils.parametrizations.weight_norm(torch.nn.GRU(3, 4), "weight_hh_l0"), {}, DTypeError, "Parametr"),
        (torch.nn.GRU(3, 4), {"batch_first": True}, ArgumentError, "batch_first"),
        (torch.nn.Linear(3, 4, dtype=torch.complex64), {}, DTypeError, "complex"),
    ],
)
def test_modules_that_are_refused(module, options, error, words):
    with pytest.raises(error, match=words):
        from_torch(module, **options)


@pytest.mark.parametrize(
    ("model", "error", "words"),
    [
        (lambda: elman.RNN(3, 4, nonlinearity="sigmoid"), ArgumentError, "nonlinearity = 'sigmoid'"),
        (lambda: elman.RNN(3, 4, nonlinearity="identity"), ArgumentError, "nonlinearity = 'identity'"),
        (lambda: elman.RNN(0, 4), ArgumentError, "input_size = 0"),
        (lambda: elman.GRU(3, 4, reset_after=False), ArgumentError, "reset_after = False"),
        (lambda: elman.GRU(3, 4, learn_initial_state=True), ArgumentError, "learn_initial_state = True"),
        (lambda: elman.LSTM(3, 4, zoneout=0.1), ArgumentError, r"zoneout = \(0\.1"),
        (lambda: elman.LSTM(3, 4, recurrent_dropout=0.1), ArgumentError, "recurrent_dropout = 0.1"),
        (lambda: elman.MGU(3, 4), DTypeError, "MGU: PyTorch has no such layer"),
        (lambda: elman.MLP(0, 4, 2), ArgumentError, "input_size = 0"),
        (lambda: elman.Network(elman.GRU(3, 4), elman.Readout(4, 2), at="end"), ArgumentError, "piece by piece"),
    ],
)
def test_layers_that_torch_does_not_have(model, error, words):
    with pytest.raises(error, match=words):
        to_torch(model())


def test_arrays_need_no_torch(run_script):
    out = run_script("""
        import sys
        sys.modules["torch"] = None
        import numpy as np, elman
        from elman.interop import from_torch, load_pt, to_torch
        layer = elman.GRU(3, 4, rng=0)
        assert np.array_equal(from_torch(layer.state_dict()).theta, layer.theta)
        for call in (lambda: to_torch(layer), lambda: load_pt("x.pt")):
            try:
                call()
            except elman.errors.MissingExtraError as error:
                print(error, *error.__notes__)
    """)
    assert out.count("elman[peers]") == 2
    assert out.count("whl/cpu") == 2


def test_arrays_do_not_import_torch(run_script):
    run_script("""
        import sys, elman
        from elman.interop.torch import from_torch
        from_torch(elman.LSTM(3, 4).state_dict())
        assert "torch" not in sys.modules
    """)


def test_load_pt(tmp_path):
    model, path = Model(), tmp_path / "model.pt"
    torch.save(model.state_dict(), path)
    weights = load_pt(path, prefix="encoder.rnn.")
    assert all(type(value) is np.ndarray for value in weights.values())
    assert np.array_equal(from_torch(weights).theta, from_torch(model.encoder["rnn"]).theta)
    assert load_pt(path).keys() == model.state_dict().keys()
    torch.save({"a": torch.arange(3), "b": torch.full((2,), 1.5, dtype=torch.bfloat16)}, path)
    weights = load_pt(path)
    assert weights["a"].tolist() == [0, 1, 2]
    assert weights["b"].dtype == np.float32
    assert weights["b"].tolist() == [1.5, 1.5]
    with pytest.raises(StateDictError, match=r"'decoder'.*a, b"):
        load_pt(path, prefix="decoder")


def test_a_checkpoint_is_asked_by_key(tmp_path):
    path, module = tmp_path / "checkpoint.pt", module_of("GRU")
    torch.save({"epoch": 3, "state_dict": module.state_dict()}, path)
    for key in ("state_dict", None):  # which is the only entry that holds tensors by name
        assert np.array_equal(from_torch(load_pt(path, key=key)).theta, from_torch(module).theta)
    for key, words in (("model", "'model'.*'state_dict'"), ("epoch", "int")):
        with pytest.raises(StateDictError, match=words):
            load_pt(path, key=key)
    torch.save({"epoch": 3, "state_dict": module.state_dict(), "average": module.state_dict()}, path)
    with pytest.raises(StateDictError, match="'epoch' .*give its name as key .*such as 'state_dict' or 'average'"):
        load_pt(path)
    torch.save({"epoch": 3}, path)
    with pytest.raises(StateDictError, match="'epoch' .*such as 'state_dict'"):
        load_pt(path)


class Settings(dict):
    """As the hyperparameters in a checkpoint of Lightning: a dictionary whose entries are attributes."""

    def __setstate__(self, state):
        pytest.fail("an object of the file was made")


class Running:
    """Unpickling it would run text, by a function that torch's reader knows no rule for."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return exec, (f"open({str(self.mark)!r}, 'w')",)


def test_weights_beside_other_things(tmp_path):
    """What stands beside the weights is neither imported nor made nor run."""
    path, mark, module = tmp_path / "lightning.ckpt", tmp_path / "ran", module_of("GRU")
    settings = Settings(units=4)
    settings.note = "n"
    checkpoint = {
        "epoch": 3,
        "pytorch-lightning_version": "2.1.0",
        "state_dict": {f"model.rnn.{k}": v for k, v in module.state_dict().items()},
        "optimizer_states": [{"state": {0: {"exp_avg": torch.ones(3)}}, "param_groups": [{"lr": 0.1}]}],
        "hyper_parameters": argparse.Namespace(units=4, folder=Path("data"), nested=[Settings(a=1)]),
        "hparams": settings,
        "callbacks": {Running(mark): {"best": np.float64(0.5)}},
        "loops": functools.partial(print, Running(mark)),
    }
    torch.save(checkpoint, path)
    for key in (None, "state_dict"):
        weights = load_pt(path, key=key, prefix="model.rnn.")
        assert weights.keys() == module.state_dict().keys()
        assert all(np.array_equal(weights[k], v.numpy()) for k, v in module.state_dict().items())
    assert not mark.exists()
    with pytest.raises(StateDictError, match="under 'hyper_parameters', got the entries \\(none\\)"):
        load_pt(path, key="hyper_parameters")
    # nothing is left behind in torch: it refuses the file as before
    with pytest.raises(pickle.UnpicklingError):
        torch.load(path, weights_only=True)
    with torch.serialization.safe_globals([argparse.Namespace]):
        torch.save({"w": torch.ones(2), "n": argparse.Namespace(a=1)}, path)
        assert torch.load(path, weights_only=True)["n"].a == 1
    with pytest.raises(StateDictError, match=r"'w' \(Tensor\), 'n'"):
        load_pt(path)


def test_an_object_as_a_whole_stays_refused(tmp_path):
    torch.save(argparse.Namespace(w=torch.ones(2)), tmp_path / "a.pt")
    with pytest.raises(StateDictError, match="it holds other objects, first argparse.Namespace.*Nothing of it was run"):
        load_pt(tmp_path / "a.pt")


class Malicious:
    """Unpickling it would write a file."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("kind", ["torch", "pickle", "entry"])
def test_a_malicious_file_runs_nothing(kind, tmp_path):
    path, mark = tmp_path / "evil.pt", tmp_path / "ran"
    if kind == "pickle":
        path.write_bytes(pickle.dumps(Malicious(mark), protocol=2))
    else:
        torch.save(Malicious(mark) if kind == "torch" else {"weight": torch.ones(1), "x": Malicious(mark)}, path)
    with pytest.raises(StateDictError, match="Nothing of it was run"):
        load_pt(path)
    assert not mark.exists()
    if kind == "pickle":
        pickle.loads(path.read_bytes())
        assert mark.exists(), "the file would not have done anything"


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 cut"])
def test_damaged_files(content, tmp_path):
    path = tmp_path / "damaged.pt"
    path.write_bytes(content)
    with pytest.raises(StateDictError, match=r"damaged\.pt"):
        load_pt(path)
    with pytest.raises(FileNotFoundError):
        load_pt(tmp_path / "none.pt")


def test_whole_modules_are_objects(tmp_path):
    torch.save(module_of("GRU"), tmp_path / "module.pt")
    with pytest.raises(StateDictError, match=r"model\.state_dict\(\)"):
        load_pt(tmp_path / "module.pt")


@pytest.mark.filterwarnings("ignore:.*jit:DeprecationWarning")
def test_a_program_is_named(tmp_path):
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 3)), tmp_path / "program.jit")
    with pytest.raises(StateDictError, match="TorchScript.*state_dict"):
        load_pt(tmp_path / "program.jit")


@pytest.mark.parametrize("version", ["2.5.1+cpu", "2.9.1", "1.13.0"])
def test_versions_whose_loading_can_be_abused(version, tmp_path, monkeypatch):
    torch.save({"a": torch.ones(1)}, tmp_path / "a.pt")
    monkeypatch.setattr(torch, "__version__", version)
    with pytest.raises(ArgumentError, match="CVE"):
        load_pt(tmp_path / "a.pt")
