"""The cell's contract, checked by the public functions; and that those functions catch what is wrong."""

from dataclasses import replace

import naive
import numpy as np
import pytest

import elman
from elman.cells import ELMAN, GRU, LSTM_PROJECTED, Gate
from elman.cells import elman as module
from elman.errors import ArgumentError
from elman.layers.recurrent import Recurrent
from elman.testing import check_adjoint, check_cell, check_gradients


def step(variant):
    def one(params, x, h):
        _, states = naive.rnn_forward(params, x[None], h, variant)
        return states[1]

    return one


@pytest.mark.parametrize("variant", ELMAN.variants)
def test_elman(variant):
    check_cell(ELMAN, variant, step=step(variant), rng=3)


def test_gate_order_is_public():
    assert ELMAN.gate_names == ("h",)
    assert ELMAN.states == ("h",)


def wrong(**kernels):
    return replace(ELMAN, **kernels)


def test_check_cell_catches_a_wrong_equation():
    with pytest.raises(AssertionError, match="forward pass"):
        check_cell(ELMAN, "tanh", step=step("sigmoid"))


def test_check_cell_catches_a_wrong_backward():
    def backward(variant, *args):
        # the slopes of another nonlinearity
        module.backward(3, *args)

    with pytest.raises(AssertionError, match="differ by"):
        check_cell(wrong(backward=backward), "tanh")


def test_check_cell_catches_a_wrong_jacobian():
    def jacobian(variant, W_hh, *args):
        H = args[4]
        module.jacobian(variant, np.ascontiguousarray(W_hh.reshape(H, H).T).reshape(-1), *args)

    with pytest.raises(AssertionError, match="Jacobian"):
        check_cell(wrong(jacobian=jacobian), "tanh")


def test_check_cell_catches_wrong_weight_gradients():
    def gradients(X, x_rs, states, s_rs, gates, g_rs, delta, d_rs, D, H, R, x1, h0, r0, r1, *rest):
        # the one-step mistake: the last row of states is never read
        module.gradients(X, x_rs, states, s_rs, gates, g_rs, delta, d_rs, D, H, R, x1, h0, r0, r1 - 1, *rest)

    with pytest.raises(AssertionError, match="theta"):
        check_cell(wrong(gradients=gradients), "tanh")


def test_check_cell_catches_bits_that_depend_on_the_batch():
    def forward(variant, *args):
        status = module.forward(variant, *args)
        states, b1 = args[6], args[-1]
        if b1 > 4:
            states += np.spacing(states)
        return status

    with pytest.raises(AssertionError, match="bits|differ"):
        check_cell(wrong(forward=forward), "tanh")


def test_check_gradients_catches_one_wrong_entry():
    layer = elman.RNN(3, 5, rng=0)
    right = layer.backward

    def backward(*args, **options):
        grads = right(*args, **options)
        grads.theta[7] *= 1.001
        return grads

    x = np.random.default_rng(0).standard_normal((4, 2, 3))
    check_gradients(layer, x)
    layer.backward = backward
    with pytest.raises(AssertionError, match="theta"):
        check_gradients(layer, x)


def test_check_adjoint_catches_a_transposed_product():
    lin = elman.JacobianStack(np.random.default_rng(0).standard_normal((5, 4, 4)))
    check_adjoint(lin)
    lin._vjp = lin._jvp
    with pytest.raises(AssertionError, match="over the steps"):
        check_adjoint(lin)


def test_check_adjoint_refuses_what_is_wrong_in_the_eleventh_digit():
    """One unit, so that nothing else is in the difference: 3e-11 is refused at 1e-12, rounding is not."""
    jacobians = np.random.default_rng(0).uniform(0.5, 1.5, (6, 2, 1, 1))
    for error, refused in ((3e-11, True), (3e-14, False)):
        lin = elman.JacobianStack(jacobians)
        exact = lin._vjp
        lin._vjp = lambda *arguments, exact=exact, error=error: exact(*arguments) * (1 + error)
        if refused:
            with pytest.raises(AssertionError, match="differ by 3.00e-11"):
                check_adjoint(lin)
            check_adjoint(lin, rtol=1e-10)
        else:
            check_adjoint(lin)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x_blocks": ("r", "z")}, "x_blocks must name each of the gates"),
        ({"h_blocks": ("r", "z", "z")}, "h_blocks must name each of the gates"),
        ({"blocks": 2}, "blocks must lie in 3 .. 6"),
        ({"states": ()}, "states and variants"),
        ({"gates": ("r", "z", "n")}, "gates must be a tuple of Gate"),
        ({"gates": GRU.gates[:2] * 2}, "gates must have different names"),
        ({"gates": (GRU.gates[1], Gate("r", None, "renew", "update"), Gate("n", None))}, "different names and words"),
    ],
)
def test_records_that_contradict_themselves_are_refused(change, words):
    with pytest.raises(ValueError, match=words):
        replace(GRU, **change)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("f", "tahn"), "nonlinearity of gate f must be None or one of .*'sigmoid'.*, got 'tahn'"),
        (("f", "sigmoid", "forget"), "role of gate f must be None or one of .*'renew'.*, got 'forget'"),
        (("carry", "sigmoid", "keep"), "must not be 'carry', which names another path"),
    ],
)
def test_gates_that_nothing_can_be_told_from_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        Gate(*arguments)


@pytest.mark.parametrize(
    ("z", "words"),
    [
        (Gate("z", "sigmoid", "renew"), "a larger z carries more of the old state on, which is not to renew it"),
        (Gate("z", "tanh", "keep"), "what is stored as z and the tanh of its sum"),
    ],
)
def test_check_cell_catches_a_gate_that_is_something_else(z, words):
    r, _, n = GRU.gates
    with pytest.raises(AssertionError, match=words):
        check_cell(replace(GRU, gates=(r, z, n)))


def test_a_size_of_projection_is_for_cells_that_project():
    for cell, proj_size in ((GRU, 3), (LSTM_PROJECTED, 0)):
        with pytest.raises(ArgumentError, match="proj_size must be"):
            Recurrent(cell, cell.variants[0], 3, 5, proj_size=proj_size)


BROKEN = {
    "slabs": ("forward", lambda f: lambda *a: f(*a[:-2], 0, a[-1])),
    "norms of gradients": ("backward", lambda f: lambda *a: (f(*a), a[11].__imul__(2))[0]),
    "norms of tangents": ("tangent", lambda f: lambda *a: (f(*a), a[12].__imul__(2))[0]),
    "what x adds to tangents": ("tangent", lambda f: lambda *a: f(*a[:3], 0, *a[4:])),
    "status": ("forward", lambda f: lambda *a: (f(*a), -1)[1]),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_check_cell_finds_broken_kernels(fault):
    """Each kernel with one fault that an earlier check let pass."""
    kernel, change = BROKEN[fault]
    with pytest.raises(AssertionError), np.errstate(all="ignore"):
        check_cell(replace(GRU, **{kernel: change(getattr(GRU, kernel))}))
