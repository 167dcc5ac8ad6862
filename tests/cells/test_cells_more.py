"""LSTM with projection, GRU with the reset before the product, minimal gated unit; and the page on adding a cell."""

import importlib.util
import inspect
import re
import sys
from pathlib import Path

import naive
import numpy as np
import pytest
from pages import DOCS, blocks, words

import elman
from elman.cells import GRU, GRU_RESET_BEFORE, LSTM, LSTM_PROJECTED, MGU, mgu
from elman.errors import NonFiniteError
from elman.kernels import cache
from elman.layers.mgu import MGU as Layer
from elman.layers.recurrent import Recurrent
from elman.testing import check_adjoint, check_cell, check_gradients

CELLS = [
    pytest.param(GRU_RESET_BEFORE, naive.gru_reset_before_step, id="GRU reset before"),
    pytest.param(LSTM_PROJECTED, naive.lstm_projected_step, id="LSTM projected"),
    pytest.param(MGU, naive.mgu_step, id="MGU"),
]
PAGE = DOCS / "adding-a-cell.md"


def make(cell, D=3, H=7, rng=0, R=3, **options):
    """A layer with random weights and biases, none of them zero; R matters to a cell that projects."""
    layer = Recurrent(cell, cell.variants[0], D, H, proj_size=R if cell.projects else 0, **options)
    layer.theta[:] = np.random.default_rng(rng).uniform(-0.6, 0.6, layer.theta.size)
    return layer


def at_rest(cell, H=9, **options):
    """A layer with random weights and no bias: at zero input its zero state is a fixed point."""
    return make(cell, 1, H, bias=False, **options)


def run(layer, x, d_output):
    """Output, and the gradients by name."""
    trace = layer.trace(x)
    return trace.output, layer.backward(trace, d_output).params


@pytest.mark.parametrize(("cell", "step"), CELLS)
def test_contract(cell, step):
    check_cell(cell, step=step, rng=5)


@pytest.mark.parametrize(("H", "R"), [(1, 1), (8, 3), (16, 8), (33, 32)])
@pytest.mark.parametrize(("cell", "step"), CELLS)
def test_sizes_of_whole_vectors_and_others(cell, step, H, R):
    """Padding is none, little, or nearly a whole vector."""
    layer = make(cell, 2, H, R=R)
    layer.theta[:] /= np.sqrt(H)
    x = np.random.default_rng(H).standard_normal((5, 3, 2))
    check_gradients(layer, x, directions=1)
    lin = layer.linearize(x)
    check_adjoint(lin)
    state = np.zeros((3, lin.state_size))
    for x_t, output in zip(x, layer(x)[0], strict=True):
        state = step(layer.params, x_t, state)
        np.testing.assert_allclose(output, state[:, : output.shape[1]], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("cell", "step"), CELLS)
def test_unequal_lengths_give_the_bits_of_each_alone(cell, step):
    rng = np.random.default_rng(2)
    layer = make(cell)
    x, lengths = rng.standard_normal((6, 5, 3)), [3, 6, 0, 5, 3]
    check_gradients(layer, x, lengths=lengths, directions=2)
    padded = np.where(np.arange(6)[:, None, None] < np.array(lengths)[:, None], x, np.nan)
    output, _ = layer(padded, lengths=lengths)
    for b, n in enumerate(lengths):
        assert np.array_equal(output[:n, b], layer(x[:n, b])[0])
        assert not output[n:, b].any()


@pytest.mark.parametrize(("cell", "step"), CELLS)
def test_two_layers_in_both_directions(cell, step):
    layer = make(cell, num_layers=2, bidirectional=True, learn_initial_state=True, zoneout=0.2)
    x = np.random.default_rng(3).standard_normal((4, 3, 3))
    check_gradients(layer, x, directions=2, training=False)
    check_gradients(layer, x, directions=2, training=True)
    check_adjoint(make(cell, num_layers=2).linearize(x))


@pytest.mark.parametrize(("cell", "step"), CELLS)
def test_norms_are_those_of_the_dense_jacobians(cell, step):
    """In both directions; those that the backward pass reports are of h alone, a projected one where there is one."""
    rng = np.random.default_rng(4)
    layer, x = make(cell), rng.standard_normal((6, 3, 3))
    lin = layer.linearize(x)
    J = np.array([[lin.jacobian(t, b) for b in range(3)] for t in range(6)])
    v, got, expected = rng.standard_normal((3, 2, lin.state_size)), np.empty((6, 3, 2)), np.empty((6, 3, 2))
    for product in ("jvp", "vjp"):
        getattr(lin, product)(v, norms=got)
        getattr(elman.JacobianStack(J), product)(v, norms=expected)
        np.testing.assert_allclose(got, expected, rtol=1e-11)
    trace = layer.trace(x)
    R = trace.output.shape[2]
    d_output, d_state = rng.standard_normal(trace.output.shape), np.zeros((3, lin.state_size))
    norms = layer.backward(trace, d_output).state_norms
    for t in reversed(range(6)):
        d_state[:, :R] += d_output[t]
        np.testing.assert_allclose(norms[0, t], np.linalg.norm(d_state[:, :R], axis=1), rtol=1e-11)
        d_state = np.einsum("bij,bi->bj", J[t], d_state)


@pytest.mark.parametrize(("cell", "step"), CELLS)
def test_the_trace_names_what_is_stored(cell, step):
    layer = make(cell)
    trace = layer.trace(np.random.default_rng(1).standard_normal((4, 2, 3)))
    gates = {name.removesuffix("_l0"): values for name, values in trace.gates.items()}
    assert set(gates) == set(cell.stored)
    h = trace.states["h_l0"]
    if cell is LSTM_PROJECTED:
        c = trace.states["c_l0"]
        np.testing.assert_allclose(c[1:], gates["f"] * c[:-1] + gates["i"] * gates["g"], rtol=1e-13)
        np.testing.assert_allclose(gates["m"], gates["o"] * np.tanh(c[1:]), rtol=1e-13)
        np.testing.assert_allclose(h[1:], gates["m"] @ layer.params["weight_hr_l0"].T, rtol=1e-12, atol=1e-15)
    else:
        reset, z = ("r", gates["z"]) if cell is GRU_RESET_BEFORE else ("f", 1 - gates["f"])
        assert np.array_equal(gates[reset + "h"], gates[reset] * h[:-1])
        np.testing.assert_allclose(h[1:], (1 - z) * gates["n"] + z * h[:-1], rtol=1e-12, atol=1e-15)


class TestOneCellAsAnother:
    """Weights for which two cells are the same function, by the equations."""

    x = np.random.default_rng(0).standard_normal((8, 4, 3))
    d_output = np.random.default_rng(1).standard_normal((8, 4, 7))

    def test_the_order_of_reset_and_product_is_nothing_to_a_diagonal(self):
        before, after = make(GRU_RESET_BEFORE), make(GRU)
        p = before.params
        p["weight_hh_l0"][14:] = np.diag(np.diag(p["weight_hh_l0"][14:]))
        p["bias_hh_l0"][14:] = 0
        after.load_state_dict(dict(before.state_dict()))
        (a, da), (b, db) = run(before, self.x, self.d_output), run(after, self.x, self.d_output)
        np.testing.assert_allclose(a, b, rtol=1e-12)
        # off the diagonal, and for the bias inside the reset, the two differ
        same = {name: np.ones(len(p[name]), bool) for name in p}
        same["weight_hh_l0"][14:] = same["bias_hh_l0"][14:] = False
        for name in p:
            np.testing.assert_allclose(da[name][same[name]], db[name][same[name]], rtol=1e-10, atol=1e-13)
        diagonals = [np.diag(d["weight_hh_l0"][14:]) for d in (da, db)]
        np.testing.assert_allclose(*diagonals, rtol=1e-10)
        p["weight_hh_l0"][14, 1] = 0.5
        after.load_state_dict(dict(before.state_dict()))
        assert abs(before(self.x)[0] - after(self.x)[0]).max() > 1e-3

    def test_a_minimal_gated_unit_is_a_gru_whose_gates_add_up_to_one(self):
        small, gru = make(MGU), make(GRU_RESET_BEFORE)
        for name, value in small.params.items():
            f, n = np.split(value, 2)
            gru.params[name][...] = np.concatenate([f, -f, n])
        (a, da), (b, db) = run(small, self.x, self.d_output), run(gru, self.x, self.d_output)
        np.testing.assert_allclose(a, b, rtol=1e-12)
        for name in da:
            r, z, n = np.split(db[name], 3)
            np.testing.assert_allclose(da[name], np.concatenate([r - z, n]), rtol=1e-10, atol=1e-13)

    def test_a_projection_on_everything_is_none(self):
        """Products with ones and zeros are exact: not a bit differs."""
        projected, plain = make(LSTM_PROJECTED, R=7), make(LSTM)
        projected.params["weight_hr_l0"][...] = np.eye(7)
        for name, value in plain.params.items():
            value[...] = projected.params[name]
        (a, da), (b, db) = run(projected, self.x, self.d_output), run(plain, self.x, self.d_output)
        assert np.array_equal(a, b)
        assert all(np.array_equal(da[name], db[name]) for name in db)
        one, other = projected.linearize(self.x), plain.linearize(self.x)
        v = np.random.default_rng(2).standard_normal((4, 2, 14))
        assert np.array_equal(one.jvp(v), other.jvp(v))
        assert np.array_equal(one.vjp(v), other.vjp(v))
        np.testing.assert_allclose(one.jacobian(3, 1), other.jacobian(3, 1), rtol=1e-14, atol=1e-16)


class TestClosedForms:
    """At a zero state that stays, gates are 1/2 and n is 0: the Jacobian is known."""

    zero = np.zeros((1, 1, 1))

    def test_gru_with_the_reset_before(self):
        layer = at_rest(GRU_RESET_BEFORE)
        J = layer.linearize(self.zero).jacobian(0)
        np.testing.assert_allclose(J, np.eye(9) / 2 + layer.params["weight_hh_l0"][18:] / 4, atol=1e-14)

    def test_minimal_gated_unit(self):
        layer = at_rest(MGU)
        J = layer.linearize(self.zero).jacobian(0)
        np.testing.assert_allclose(J, np.eye(9) / 2 + layer.params["weight_hh_l0"][9:] / 4, atol=1e-14)

    def test_lstm_projected(self):
        layer = at_rest(LSTM_PROJECTED, R=4)
        W_g, W_hr = layer.params["weight_hh_l0"][18:27], layer.params["weight_hr_l0"]
        J = layer.linearize(self.zero).jacobian(0)
        expected = np.block([[W_hr @ W_g / 4, W_hr / 4], [W_g / 2, np.eye(9) / 2]])
        np.testing.assert_allclose(J, expected, atol=1e-14)
        # of the thirteen eigenvalues nine are those of c: 1/2 + W_g W_hr / 4
        nonzero = np.linalg.eigvals(np.eye(9) / 2 + W_g @ W_hr / 4)
        assert np.isclose(abs(np.linalg.eigvals(J)).max(), abs(nonzero).max(), rtol=1e-10)

    def test_one_unit_with_the_reset_before(self):
        """h' = (tanh(w s(a h) h) + h) / 2 for W_z = 0."""
        layer, a, w, h = at_rest(GRU_RESET_BEFORE, 1), 1.7, -2.3, 0.4
        layer.params["weight_hh_l0"][:, 0] = a, 0, w
        s = naive.sigmoid(a * h)
        slope = 1 - np.tanh(w * s * h) ** 2
        J = layer.linearize(self.zero, np.full((1, 1, 1), h)).jacobian(0)
        assert np.isclose(J[0, 0], (slope * w * (s + h * a * s * (1 - s)) + 1) / 2, rtol=1e-14)


def test_an_output_that_overflows_where_c_does_not_is_found_at_its_step():
    layer = at_rest(LSTM_PROJECTED, R=2)
    layer.params["weight_ih_l0"][...] = 1
    layer.params["weight_hr_l0"][1] = 1.7e308
    x = np.zeros((4, 3, 1))
    x[2:, 1] = 50.0  # opens every gate: m = tanh(1) in each unit
    with pytest.raises(NonFiniteError, match="state h") as raised:
        layer(x)
    assert (raised.value.gate, raised.value.step, raised.value.sample) == ("h", 2, 1)


class TestLayer:
    """The minimal gated unit by name."""

    def test_gate_order_is_public(self):
        assert Layer.GATES == ("f", "n")

    def test_every_argument_arrives(self):
        options = {
            "num_layers": 2, "bias": False, "batch_first": True, "dropout": 0.1, "bidirectional": True,
            "recurrent_dropout": 0.2, "zoneout": (0.3,), "learn_initial_state": True,
        }  # fmt: skip
        layer = Layer(3, 5, dtype="float32", weight_ih_init="zeros", rng=0, **options)
        assert {name: getattr(layer, name) for name in options} == options
        assert layer.dtype == np.float32
        assert not layer.params["weight_ih_l1_reverse"].any()
        for block in layer.params["weight_hh_l1"].reshape(2, 5, 5):
            np.testing.assert_allclose(block @ block.T, np.eye(5), atol=1e-6)
        assert layer.params["weight_ih_l1"].shape == (10, 10)
        assert Layer(3, 5, bias_init="uniform", rng=0).params["bias_hh_l0"].all()

    def test_it_learns_and_is_diagnosed(self):
        rng = np.random.default_rng(4)
        x = rng.standard_normal((8, 16, 1))
        net = elman.Network(Layer(1, 8, rng=0), elman.Readout(8, 1, rng=1))
        adam = elman.Adam(3e-2)
        history = elman.fit(net, x, np.cumsum(x, axis=0), epochs=30, optimizer=adam, progress=False, rng=0)
        assert history.loss[-1] < 0.1 * history.loss[0]
        diagnosis = elman.diagnose(net, rng.standard_normal((20, 12, 1)), rng=0)
        assert diagnosis.verify().agrees

    def test_a_closed_gate_keeps_the_state(self):
        layer = Layer(3, 5, rng=0)
        layer.params["bias_ih_l0"][:5] = -40.0
        h0 = np.random.default_rng(6).standard_normal((1, 2, 5))
        output, _ = layer(np.random.default_rng(7).standard_normal((9, 2, 3)), h0)
        np.testing.assert_allclose(output, np.broadcast_to(h0, output.shape), rtol=1e-13)


@pytest.fixture
def own_cell(tmp_path, monkeypatch):
    """The cell of the page as a user's module: absolute imports, outside the package."""
    text = inspect.getsource(mgu)
    text, relative = re.subn(r"^from \.\.", "from elman.", text, flags=re.M)
    text, beside = re.subn(r"^from \.", "from elman.cells.", text, flags=re.M)
    assert relative == 6
    assert beside == 3
    path = tmp_path / "own_cell.py"
    path.write_text(text, encoding="utf-8")
    # machine code of a file that is about to vanish is not worth keeping
    monkeypatch.setattr(cache, "CACHE_FOLDER", str(tmp_path))
    spec = importlib.util.spec_from_file_location("own_cell", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "own_cell", module)
    spec.loader.exec_module(module)
    return module.MGU


def test_a_cell_outside_the_package(own_cell):
    layer, packaged = make(own_cell), make(MGU)
    x = np.random.default_rng(4).standard_normal((6, 4, 3))
    assert own_cell.forward.__module__ == "own_cell"
    assert np.array_equal(layer(x)[0], packaged(x)[0])
    check_gradients(layer, x)


class TestPage:
    text = PAGE.read_text(encoding="utf-8")

    def test_its_python_runs_and_prints_what_it_shows(self, capsys):
        namespace = {"__name__": "page"}
        for line, _, code, output in blocks(PAGE):
            exec(compile("\n" * (line - 1) + code, str(PAGE), "exec"), namespace)
            printed = capsys.readouterr().out
            assert output is None or words(printed) == words(output), f"line {line}"

    def test_it_shows_the_whole_file(self):
        (shown,) = re.findall(r"^```{literalinclude} (.*)\n((?::.*\n)*)```$", self.text, re.M)
        assert (PAGE.parent / shown[0]).resolve() == Path(mgu.__file__).resolve()
        assert shown[1] == ":language: python\n", "a part of the file is not the file"

    def test_the_names_it_speaks_of_are_in_the_file(self):
        names = set(re.findall(r"`(_\w+)`", self.text))
        assert len(names) == 6
        assert all(callable(getattr(mgu, name)) for name in names)
        for field in ("blocks", "gates", "x_blocks", "h_blocks", "states", "stored"):
            assert f"`{field}`" in self.text
            assert hasattr(MGU, field)
