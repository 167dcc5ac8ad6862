"""No public argument is taken silently for what it is not.

Two tables: what each argument of every public callable is, by its name, and how to call the callables that compute.
The first fails on an argument that nobody has said anything about; the second gives every argument the standard bad
values of its kind and wants the class of error that :mod:`elman.validation` promises for the mistake.
"""

from __future__ import annotations

import functools
import inspect
from importlib.util import find_spec

import numpy as np
import pytest

import elman
from elman.errors import ArgumentError, DTypeError, ElmanError, NonFiniteError, ShapeError
from elman.losses import get_loss

X = np.random.default_rng(0).standard_normal((4, 3, 2))
Y = np.random.default_rng(1).standard_normal((4, 3, 1))
LONG = np.random.default_rng(2).standard_normal(200)


def masked(good):
    return np.ma.masked_invalid(np.array(good, dtype=float))


BAD = {
    "array": {
        "masked": masked,
        "list of masked": lambda good: [masked(row) for row in good],
        "complex": lambda good: np.asarray(good) + 0j,
        "strings": lambda good: np.asarray(good).astype(str),
        "objects": lambda good: np.asarray(good).astype(object),
        "text": lambda good: "1.0",
        "NaN": lambda good: np.full(np.shape(good), np.nan),
    },
    "flag": {"text": "no", "None": None, "number": 0.5, "integer": 1, "array": np.array([True])},
    "size": {"text": "2", "None": None, "half": 1.5, "truth": True, "negative": -1, "array": np.array([1, 2])},
    "number": {
        "text": "0.5",
        "complex": 0.5 + 0j,
        "NaN": float("nan"),
        "array": np.array([0.5, 0.5]),
        "negative": -1.0,
    },
    "choice": {"nonsense": "nonsense", "None": None, "number": 1},
    "dtype": {"text": "nonsense", "integer": "int64", "half": "float16", "complex": "complex128"},
}
BAD["linear"] = {name: make for name, make in BAD["array"].items() if name != "NaN"}  # NaN goes through a product
BAD["flag or none"] = {name: value for name, value in BAD["flag"].items() if name != "None"}
BAD["size or none"] = {name: value for name, value in BAD["size"].items() if name != "None"}
BAD["any number"] = {name: value for name, value in BAD["number"].items() if name != "negative"}

OUTSIDE = {"NaN", "negative", "nonsense"}
"""Bad values of the right kind; all others are of another kind."""


def promised(argument, title):
    """The class of error for a bad value: the same mistake raises the same class everywhere."""
    if title == "NaN" and argument in ("theta", "gradient", "x_t"):
        return NonFiniteError
    if title == "NaN" and argument in ("lengths", "reset"):
        return DTypeError  # NaN makes the array one of floating-point numbers
    if title == "list of masked" and argument in ("d_output", "d_states", "reset"):
        return ShapeError, DTypeError  # a list where one array is due
    if title == "number" and argument == "plot_forecast(years)":
        return ShapeError  # an array without axes
    if argument == "mapping":
        return ElmanError  # StateDictError for what a mapping of weights lacks
    return ArgumentError if title in OUTSIDE else DTypeError


KINDS = {
    "array": (
        "start h0 d_output d_hn lengths reset state x_t W v u s0 inputs states series frame start jacobians "
        "gains input_variances x_const starts window trajectories levels input_mean input_sd "
        "input_autocorrelation lags theta gradient weights mapping norms y x sample_weight d_states"
    ),
    "flag": (
        "clear bias batch_first bidirectional learn_initial_state reset_after training need_x keep_output reverse "
        "readout_only bounds singular_values nesterov progress initial_state restore_best best_only"
    ),
    "number": (
        "dropout recurrent_dropout zoneout forget_bias lr momentum eps betas max_norm clip_norm threshold "
        "tolerance target gain radius input_variance bias_variance noise_variance slow tol separation "
        "probability amount rtol factor clip_value weight_decay alpha min_delta temperature"
    ),
    "size": (
        "input_size hidden_size output_size num_layers proj_size batch_size epochs truncation checkpoint "
        "n_steps T n t t0 t1 sequence layer vectors every sequences length stride delay symbols bits k warmup "
        "settle interval blocks max_lag max_iterations max_runs max_sequences points point split directions patience "
        "washout accumulate steps"
    ),
    "choice": "nonlinearity at loss level lever at variant activation recurrent_activation method missing",
    "dtype": "dtype dtypes",
    "rng": "rng",
    "initializer": "weight_ih_init weight_hh_init bias_init weight_init initializer weight_ih weight_hh",
    "object": (
        "trace buffers optimizer callbacks validation net model readout update cells lin step jvp vjp cell "
        "metadata source node branch key prefix path name options ax axes default d_state rows batch d a "
        "packed layout version parameters gates shape output output_shape args kwargs history scaler notes cells "
        "info monitor record ridge frozen metrics regularizers resume schedule train"
    ),
}
"""What an argument of this name is. The errors for ``rng``, initialisers and objects are tested where they belong."""

KIND = {name: kind for kind, names in KINDS.items() for name in names.split()}

RECORDS = {
    "CovariantVectors", "Diagnosis", "Explanation", "FisherMemory", "FixedPoints", "GradientFlow", "History",
    "LyapunovSpectrum", "MeanField", "MeasuredMemory", "MemoryCapacity", "PartialSpectrum", "PhaseDiagram",
    "Prescription", "Pseudospectrum", "Spectrum", "SpectrumByGate", "TunedPrescription", "Verification",
    "Linearization", "Minimization", "ReadoutSolution", "Saved", "datasets.Windows",
    "interop.OnnxLayer", "interop.StatedWeights",
}  # fmt: skip
"""Results: made by the package alone, so their constructors check nothing. Their methods count."""


def public():
    """Every public callable by its dotted name: functions, constructors, and public methods of classes."""
    names = [(name, getattr(elman, name)) for name in elman.__all__]
    for module in ("interop", "tasks", "datasets"):
        home = getattr(elman, module)
        names += [(f"{module}.{name}", getattr(home, name)) for name in home.__all__]
    for name in ("check_adjoint", "check_gradients", "check_cell"):
        names.append((f"testing.{name}", getattr(elman.testing, name)))
    for name, thing in names:
        if inspect.ismodule(thing) or isinstance(thing, str):
            continue
        if not inspect.isclass(thing):
            yield name, thing
            continue
        if name not in RECORDS:
            yield name, thing
        for method in dir(thing):
            if method == "__call__" or method[0] != "_":
                inner = inspect.getattr_static(thing, method)
                if inspect.isfunction(inner):
                    yield f"{name}.{method}", inner


def test_every_public_argument_is_in_the_table():
    """A new argument needs a word on what it is, and with that the bad values it must refuse."""
    unknown = [
        f"{name}({argument})"
        for name, function in public()
        for argument in inspect.signature(function).parameters
        if argument not in KIND and argument != "self"
    ]
    assert not unknown


def rnn(**options):
    return elman.RNN(2, 5, rng=0, **options)


def network():
    return elman.Network(rnn(), elman.Readout(5, 1, rng=1))


def speaker():
    """A network that can go on from its own outputs."""
    return elman.Network(rnn(), elman.Readout(5, 2, rng=1))


def backward(model, d_output=None, **others):
    return model.backward(
        model.trace(X), np.ones(model.trace(X).output.shape) if d_output is None else d_output, **others
    )


def stack():
    return elman.JacobianStack(np.random.default_rng(3).standard_normal((6, 2, 3, 3)))


def steps(**options):
    given = {"s0": np.ones(2), "n_steps": 4, "inputs": np.ones((4, 1))} | options
    return elman.StepLinearization(lambda s, x: 0.5 * s, lambda s, V, x: 0.5 * V, vjp=lambda s, U, x: 0.5 * U, **given)


def loaded(model, name):
    return lambda value: model.load_state_dict(model.state_dict() | {name: value})


def optimizer_state(value):
    optimizer = elman.SGD(0.1, momentum=0.9)
    optimizer.step(np.ones(3), np.ones(3))
    optimizer.load_state_dict(optimizer.state_dict() | {"momentum_buffer": value})


def argument(function, name, **others):
    """The function of one of its arguments alone."""
    return lambda value: function(**{**others, name: value})


def arguments(function, table, **others):
    """For each argument of a table {kind: names}, how to call with it, and a good value for arrays."""
    return [(name, kind, argument(function, name, **others)) for kind, names in table.items() for name in names.split()]


LAYER_OPTIONS = {
    "flag": "bias batch_first bidirectional learn_initial_state",
    "size": "input_size hidden_size num_layers",
    "number": "dropout recurrent_dropout zoneout",
    "dtype": "dtype",
}
FIT = {"net": None, "x": X, "y": Y, "epochs": 1, "progress": False}
W = np.random.default_rng(4).standard_normal((5, 5)) * 0.3
STATE = np.ones((1, 3, 5))

CALLS = {
    "RNN": arguments(elman.RNN, LAYER_OPTIONS | {"choice": "nonlinearity"}, input_size=2, hidden_size=5),
    "LSTM": arguments(
        elman.LSTM,
        LAYER_OPTIONS | {"any number": "forget_bias", "size": "input_size hidden_size num_layers proj_size"},
        input_size=2,
        hidden_size=5,
    ),
    "GRU": arguments(
        elman.GRU, LAYER_OPTIONS | {"flag": LAYER_OPTIONS["flag"] + " reset_after"}, input_size=2, hidden_size=5
    ),
    "MGU": arguments(elman.MGU, LAYER_OPTIONS, input_size=2, hidden_size=5),
    "Readout": arguments(
        elman.Readout,
        {"flag": "bias", "size": "hidden_size output_size", "dtype": "dtype"},
        hidden_size=5,
        output_size=1,
    ),
    "MLP": arguments(
        elman.MLP,
        {"size": "input_size hidden_size output_size", "dtype": "dtype", "choice": "nonlinearity"},
        input_size=2,
        hidden_size=5,
        output_size=1,
    ),
    "Network": [("at", "choice", lambda v: elman.Network(rnn(), elman.Readout(5, 1), at=v))],
    "layer": [
        ("x", "array", rnn(), X),
        ("h0", "array", lambda v: rnn()(X, v), STATE),
        ("lengths", "array", lambda v: rnn()(X, lengths=v), np.array([4, 2, 1])),
        ("reset", "array", lambda v: rnn()(X, reset=v), np.zeros((4, 3), bool)),
        ("training", "flag or none", lambda v: rnn().trace(X, training=v)),
        ("checkpoint", "size", lambda v: rnn().trace(X, checkpoint="no" if v is True else v)),
        ("keep_output", "flag", lambda v: rnn().trace(X, keep_output=v)),
        ("d_output", "array", lambda v: backward(rnn(), v), np.ones((4, 3, 5))),
        ("d_hn", "array", lambda v: backward(rnn(), d_hn=v), STATE),
        ("need_x", "flag", lambda v: backward(rnn(), need_x=v)),
        ("reverse", "flag", lambda v: rnn(bidirectional=True).concatenated_weights(reverse=v)),
        ("layer", "size", lambda v: rnn().concatenated_weights(v)),
        ("start", "array", lambda v: rnn().measure_gradient(X, v), np.ones((3, 5))),
        ("mapping", "array", loaded(rnn(), "bias_ih_l0"), np.ones(5)),
        ("batch_size", "size", lambda v: rnn().stepper(v)),
        ("x_t", "array", rnn().stepper(3), X[0]),
        ("amount", "any number", lambda v: rnn().change("recurrent", v)),
        ("lever", "choice", lambda v: rnn().change(v, 1.0)),
        ("linearize", "array", lambda v: rnn().linearize(v), X),
    ],
    "network": [
        ("x", "array", network(), X),
        ("d_output", "array", lambda v: backward(network(), v), np.ones((4, 3, 1))),
        ("need_x", "flag", lambda v: backward(network(), need_x=v)),
        ("readout_only", "flag", lambda v: backward(network(), readout_only=v)),
        ("y", "array", lambda v: network().evaluate(X, v), np.ones((4, 3, 1))),
        ("sample_weight", "array", lambda v: network().evaluate(X, np.ones((4, 3, 1)), sample_weight=v), np.ones(3)),
        ("missing", "choice", lambda v: network().evaluate(X, np.ones((4, 3, 1)), missing=v)),
        ("metrics", "choice", lambda v: network().evaluate(X, np.ones((4, 3, 1)), v)),
        ("x of predict_proba", "array", lambda v: network().predict_proba(v), X),
        ("prefix", "array", lambda v: speaker().generate(v, 2), X),
        ("steps", "size", lambda v: speaker().generate(X, v)),
        ("temperature", "number", lambda v: speaker().generate(np.zeros((4, 3), int), 2, temperature=v)),
        ("x_t", "array", network().stepper(3), X[0]),
        ("batch_size", "size", lambda v: network().stepper(v)),
        ("d_states", "array", lambda v: backward(network(), d_states=v), np.ones((4, 3, 5))),
        ("training", "flag or none", lambda v: network().trace(X, training=v)),
        ("mapping", "array", loaded(network(), "readout.bias"), np.ones(1)),
        ("y", "array", lambda v: network().loss_start(X, v), Y),
        ("loss", "choice", lambda v: network().loss_start(X, Y, loss=v)),
    ],
    "dense": [
        ("x", "array", elman.MLP(2, 5, 1), X),
        ("x", "array", elman.Readout(2, 1), X),
        ("d_output", "array", lambda v: backward(elman.MLP(2, 5, 1), v), Y),
    ],
    "products": [
        (name, kind, call, *good)
        for lin in (stack(), rnn().linearize(X[:, :2]), elman.LSTM(2, 5, 2, rng=0).linearize(X[:, :2]))
        for product in (lin.jvp, lin.vjp)
        for v in [np.ones((2, lin.state_size))]
        for name, kind, call, *good in (
            ("v", "linear", product, v),
            ("u", "linear", product, v),
            ("t0", "size", lambda t, p=product, v=v: p(v, t, 3)),
            ("t1", "size or none", lambda t, p=product, v=v: p(v, 2, t)),
            ("norms", "linear", lambda n, p=product, v=v: p(v, norms=n), np.ones((lin.n_steps, 2, 1))),
            ("t", "size", lambda t, lin=lin: lin.jacobian(t)),
            ("sequence", "size", lambda s, lin=lin: lin.jacobian(0, s)),
            ("sequence", "size", lambda s, lin=lin: lin.as_linear_operator(sequence=s)),
        )
    ],
    "JacobianStack": [("jacobians", "array", elman.JacobianStack, np.ones((4, 3, 3)))],
    "StepLinearization": [
        ("s0", "array", argument(steps, "s0"), np.ones(2)),
        ("n_steps", "size", argument(steps, "n_steps", inputs=None)),
        ("inputs", "masked", argument(steps, "inputs"), np.ones((4, 1))),
        ("v", "linear", steps().jvp, np.ones(2)),
        ("v", "linear", steps().vjp, np.ones(2)),
        ("t", "size", steps().jacobian),
    ],
    "SGD": arguments(elman.SGD, {"flag": "nesterov", "number": "lr momentum"}, lr=0.1, momentum=0.5),
    "Adam": [
        *arguments(elman.Adam, {"number": "lr eps"}),
        ("betas", "number", lambda v: elman.Adam(betas=(v, 0.9))),
        ("betas", "number", lambda v: elman.Adam(betas=(0.9, v))),
    ],
    "AdamW": [
        *arguments(elman.AdamW, {"number": "lr eps weight_decay"}),
        ("betas", "number", lambda v: elman.AdamW(betas=(v, 0.9))),
    ],
    "RMSprop": arguments(elman.RMSprop, {"number": "lr alpha eps momentum"}),
    "KeepBest": arguments(elman.KeepBest, {"number": "min_delta"}),
    "EarlyStopping": arguments(
        elman.EarlyStopping, {"size": "patience", "number": "min_delta", "flag": "restore_best"}, patience=3
    ),
    "ModelCheckpoint": arguments(elman.ModelCheckpoint, {"size": "every", "flag": "best_only"}, path="never written"),
    "Readout.solve": [
        (name, kind, lambda v, name=name: elman.Readout(2, 1).solve(**{"states": X, "y": Y, name: v}), *good)
        for name, kind, *good in (
            ("states", "array", X),
            ("y", "array", Y),
            ("washout", "size"),
            ("batch_first", "flag"),
        )
    ],
    "minimize": [
        (
            name,
            kind,
            lambda v, name=name: elman.minimize(
                **{"net": network(), "x": X, "y": Y, "max_iterations": 1, "progress": False, name: v}
            ),
            *good,
        )
        for name, kind, *good in (
            ("x", "array", X),
            ("y", "array", Y),
            ("lengths", "array", np.array([4, 2, 1])),
            ("reset", "array", np.zeros((4, 3), bool)),
            ("sample_weight", "array", np.ones(3)),
            ("missing", "choice"),
            ("method", "choice"),
            ("loss", "choice"),
            ("max_iterations", "size"),
            ("batch_size", "size"),
            ("tolerance", "number"),
            ("progress", "flag"),
        )
    ],
    "optimizer": [
        ("gradient", "array", lambda v: elman.Adam().step(np.ones(3), v), np.ones(3)),
        ("theta", "array", lambda v: elman.Adam().step(v, np.ones(3)), np.ones(3)),
        ("mapping", "array", optimizer_state, np.ones(3)),
    ],
    "clip_by_global_norm": [
        ("gradient", "array", lambda v: elman.clip_by_global_norm(v, 1.0), np.ones(3)),
        ("max_norm", "number", lambda v: elman.clip_by_global_norm(np.ones(3), v)),
    ],
    "fit": [
        (name, kind, lambda v, name=name: elman.fit(**FIT | {"net": network(), name: v}), *good)
        for name, kind, *good in (
            ("x", "array", X),
            ("y", "array", Y),
            ("progress", "flag"),
            ("epochs", "size"),
            ("batch_size", "size"),
            ("clip_norm", "number"),
            ("checkpoint", "step count"),
            ("truncation", "size or none"),
            ("lengths", "array", np.array([4, 2, 1])),
            ("reset", "array", np.zeros((4, 3), bool)),
            ("loss", "choice"),
            ("sample_weight", "array", np.ones(3)),
            ("missing", "choice"),
            ("accumulate", "size"),
            ("clip_value", "number"),
        )
    ],
    "Monitor": [
        *arguments(elman.Monitor, {"size": "every sequences", "number": "threshold"}),
        ("x", "array", elman.Monitor, X),
    ],
    "diagnose": [
        (name, kind, lambda v, name=name: elman.diagnose(network(), **{"x": X, name: v, "rng": 0}), *good)
        for name, kind, *good in (
            ("x", "array", X),
            ("y", "array", Y),
            ("h0", "array", STATE),
            ("threshold", "number"),
            ("level", "choice"),
            ("vectors", "size or none"),
            ("max_sequences", "size"),
        )
    ]
    + [("start", "array", lambda v: elman.diagnose(stack(), start=v), np.ones((2, 3)))]
    + [
        (
            name,
            "array",
            lambda v, name=name: elman.diagnose(rnn(), level="weights", length=9, **{"input_sd": 1.0, name: v}),
            np.ones(2) / 2,
        )
        for name in ("input_mean", "input_sd", "input_autocorrelation")
    ]
    + [
        ("loss", "choice or none", lambda v: elman.diagnose(network(), X, Y, loss=v, rng=0)),
        ("length", "size or none", lambda v: elman.diagnose(rnn(), level="weights", input_sd=1.0, length=v)),
    ],
    "gradient_flow": [
        ("start", "array", lambda v: elman.gradient_flow(stack(), start=v), np.ones((2, 3))),
        *arguments(elman.gradient_flow, {"flag": "bounds singular_values", "size": "vectors"}, lin=stack()),
    ],
    "lyapunov_spectrum": [
        ("frame", "array", lambda v: elman.lyapunov_spectrum(stack(), frame=v), np.eye(3)),
        *arguments(
            elman.lyapunov_spectrum, {"size or none": "k warmup interval", "size": "sequence blocks"}, lin=stack()
        ),
    ],
    "covariant_vectors": arguments(
        elman.covariant_vectors, {"size or none": "k warmup settle interval", "size": "sequence"}, lin=stack()
    ),
    "spectrum": [
        ("W", "array", elman.spectrum, W),
        ("eps", "number", elman.spectrum(W).pseudospectral_radius),
        ("points", "size", elman.spectrum(W).pseudospectrum),
        ("window", "array", lambda v: elman.spectrum(W).pseudospectrum(5, v), np.array([-1.0, 1.0, -1.0, 1.0])),
    ],
    "fixed_points": [
        ("x_const", "array", lambda v: elman.fixed_points(rnn(), v, 4), np.ones(2)),
        ("starts", "array", lambda v: elman.fixed_points(rnn(), None, v), np.ones((4, 5))),
        *arguments(
            elman.fixed_points, {"number": "slow tol separation", "size": "max_iterations"}, layer=rnn(), starts=4
        ),
    ],
    "mean_field": arguments(
        elman.mean_field, {"number": "gain input_variance bias_variance", "choice": "nonlinearity"}, gain=1.0
    ),
    "phase_diagram": [
        ("gains", "array", lambda v: elman.phase_diagram(v, [0.0, 0.1]), np.array([1.0, 2.0])),
        ("input_variances", "array", lambda v: elman.phase_diagram([1.0, 2.0], v), np.array([0.0, 0.1])),
        *arguments(
            elman.phase_diagram,
            {"number": "bias_variance", "choice": "nonlinearity"},
            gains=[1.0, 2.0],
            input_variances=[0.0, 0.1],
        ),
    ],
    "memory": [
        (name, "array", call, good)
        for function in (elman.memory_capacity, elman.fisher_memory)
        for name, call, good in (
            ("W", lambda A, f=function: f(A, np.ones(5)), W),
            ("v", lambda v, f=function: f(W, v), np.ones(5)),
        )
    ]
    + [
        ("states", "array", lambda s: elman.measured_memory(s, LONG), LONG[:, None]),
        ("inputs", "array", lambda u: elman.measured_memory(LONG[:, None], u), LONG),
        ("max_lag", "size or none", lambda n: elman.memory_capacity(W, np.ones(5), max_lag=n)),
        ("max_lag", "size or none", lambda n: elman.fisher_memory(W, np.ones(5), max_lag=n)),
        ("max_lag", "size or none", lambda n: elman.measured_memory(LONG[:, None], LONG, max_lag=n)),
        ("warmup", "size", lambda n: elman.measured_memory(LONG[:, None], LONG, warmup=n)),
        ("noise_variance", "number", lambda c: elman.fisher_memory(W, np.ones(5), noise_variance=c)),
    ],
    "tasks": arguments(elman.tasks.adding, {"size": "T n"}, T=10, n=2)
    + arguments(elman.tasks.copy_memory, {"size": "delay n symbols length"}, delay=3, n=2)
    + arguments(elman.tasks.temporal_order, {"size": "T n"}, T=10, n=2)
    + arguments(elman.tasks.flip_flop, {"size": "T n bits", "number": "probability"}, T=10, n=2),
    "windows": [
        *arguments(elman.datasets.windows, {"size": "length", "size or none": "stride"}, series=LONG, length=9),
        ("series", "linear", lambda v: elman.datasets.windows(v, 9), LONG),
    ],
    "from_torch": [
        ("source", "array", lambda v: elman.interop.from_torch({"weight": v, "bias": np.ones(2)}), np.ones((2, 3))),
        (
            "batch_first",
            "flag",
            lambda v: elman.interop.from_torch(rnn().state_dict(), nonlinearity="tanh", batch_first=v),
        ),
        ("dtype", "dtype", lambda v: elman.interop.from_torch({"weight": W, "bias": np.ones(5)}, dtype=v)),
    ],
    "from_textbook": [
        (
            "weights",
            "array",
            lambda v: elman.interop.from_textbook({"W_xh": np.ones((2, 5)), "W_hh": W, "b_h": v}),
            np.ones(5),
        ),
    ],
    "from_keras": [
        (
            "source",
            "array",
            lambda v: elman.interop.from_keras([np.ones((2, 5)), v, np.ones(5)], nonlinearity="tanh"),
            W,
        ),
        (
            "batch_first",
            "flag",
            lambda v: elman.interop.from_keras([np.ones((2, 5)), W, np.ones(5)], nonlinearity="tanh", batch_first=v),
        ),
    ],
    "to_onnx": arguments(elman.interop.to_onnx, {"flag": "lengths initial_state"}, layer=rnn()),
    "warmup": [
        ("progress", "flag", lambda v: elman.warmup("RNN", "float64", progress=v)),
        ("clear", "flag", lambda v: elman.warmup("RNN", "float64", clear=v)),
        ("dtypes", "dtype", lambda v: elman.warmup("RNN", v)),
    ],
    "check_gradients": [("x", "array", lambda v: elman.testing.check_gradients(rnn(), v), X)],
}
"""Called thing: arguments, their kinds, a function of each alone, and for an array a good one."""
BAD["object"] = {"text": "nonsense", "None": None, "number": 1.5, "class": elman.RNN}
BAD["path"] = {"None": None, "number": 1.5, "list": []}
BAD["path or none"] = {"number": 1.5, "list": []}
BAD["step count"] = {name: value for name, value in BAD["size"].items() if name != "truth"}
BAD["choice or none"] = {name: value for name, value in BAD["choice"].items() if name != "None"}
BAD["masked"] = {name: BAD["array"][name] for name in ("masked", "list of masked")}

CASES = [
    pytest.param(
        call, bad(good[0]) if good and callable(bad) else bad, promised(name, title), id=f"{thing}-{name}-{title}-{i}"
    )
    for thing, calls in CALLS.items()
    for i, (name, kind, call, *good) in enumerate(calls)
    for title, bad in BAD[kind].items()
]


GROUPS = {
    "memory": ("memory_capacity", "fisher_memory", "measured_memory"),
    "tasks": ("tasks.adding", "tasks.copy_memory", "tasks.temporal_order", "tasks.flip_flop"),
    "windows": ("datasets.windows",),
    "optimizer": ("Adam.step", "SGD.step"),
    "products": tuple(f"JacobianStack.{name}" for name in ("jvp", "vjp", "jacobian")),
    "layer": tuple(
        f"RNN.{name}"
        for name in ("__call__", "trace", "backward", "linearize", "measure_gradient", "load_state_dict", "stepper")
    ),
    "from_torch": ("interop.from_torch",),
    "to_onnx": ("interop.to_onnx",),
}
"""Of the things above that are not called by their own name: which public callables they are."""


MODELS = {("Network", "layer"), ("fixed_points", "layer"), ("interop.to_onnx", "layer")}
"""Here it is a layer, elsewhere the number of one."""


def test_every_argument_that_can_be_wrong_is_tried():
    functions = dict(public())
    missing = [
        f"{name}({argument})"
        for thing, calls in CALLS.items()
        for name in GROUPS.get(thing, (thing,))
        if name in functions
        for argument in inspect.signature(functions[name]).parameters
        if KIND.get(argument) in ("array", "flag", "number", "size", "choice", "dtype")
        and (name, argument) not in MODELS
        and argument not in [each for each, *_ in calls]
    ]
    assert not missing


@pytest.mark.parametrize(("call", "bad", "error"), CASES)
def test_bad_values_are_refused(call, bad, error):
    with pytest.raises(error):
        call(bad)


@pytest.mark.parametrize(
    ("call", "good"),
    [
        pytest.param(call, good[0], id=f"{thing}-{name}-{i}")
        for thing, calls in CALLS.items()
        for i, (name, _, call, *good) in enumerate(calls)
        if good and name not in ("norms", "x", "y", "source") and (thing, name) != ("diagnose", "h0")
    ],
)
def test_the_good_values_beside_them_are_not(call, good):
    """Else the bad ones might be refused for another reason."""
    call(good)


@pytest.mark.parametrize("n", ["2", None, 1.5, True, -1, 0])
def test_number_of_threads(n):
    """The compiled floor knows no error of the package."""
    before = elman.get_num_threads()
    with pytest.raises((ValueError, TypeError)):
        elman.set_num_threads(n)
    assert elman.get_num_threads() == before


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("cell", ["RNN", "LSTM", "GRU", "MGU"])
@pytest.mark.parametrize("run", ["__call__", "trace", "linearize"])
def test_a_sum_of_biases_that_overflows(cell, dtype, run):
    """Each bias is finite, their sum is not: our error, not NumPy's warning, which this suite makes an error."""
    layer = getattr(elman, cell)(2, 3, dtype=dtype, rng=0)
    for name in ("bias_ih_l0", "bias_hh_l0"):
        layer.params[name][...] = np.finfo(dtype).max
    with pytest.raises(elman.errors.NonFiniteError, match="bias_ih_l0 and bias_hh_l0"):
        getattr(layer, run)(np.ones((2, 1, 2)))


def plotted(plot, thing):
    """A plot of something, with a good value for what else it needs."""
    parameters = list(inspect.signature(plot).parameters.values())[1:]
    others = {"ax": None, "length": 3, "actual": [1.0], "forecasts": {}}
    return plot(thing, **{p.name: others[p.name] for p in parameters if p.default is p.empty})


OUTPUT, CLASSES = np.random.default_rng(6).standard_normal((4, 3)), np.array([0, 1, 2, 0])
ELSEWHERE = {
    "mse(output)": ("array", lambda v: get_loss("mse").value_and_gradient(v, OUTPUT), OUTPUT),
    "mse(target)": ("array", lambda v: get_loss("mse").value_and_gradient(OUTPUT, v), OUTPUT),
    "cross_entropy(output)": ("array", lambda v: get_loss("cross_entropy").value_and_gradient(v, CLASSES), OUTPUT),
    "cross_entropy(target)": ("array", lambda v: get_loss("cross_entropy").value_and_gradient(OUTPUT, v), CLASSES),
    "scale_to_radius(W)": ("array", lambda v: elman.initializers.scale_to_radius(v, 0.5), np.eye(3)),
    "scale_to_radius(radius)": ("number", lambda v: elman.initializers.scale_to_radius(np.eye(3), v)),
    "gaussian(gain)": ("number", elman.initializers.gaussian),
    "spectral_radius(radius)": ("number", elman.initializers.spectral_radius),
    "Spectrum.pseudospectral_radius(eps)": ("number", lambda v: elman.spectrum(W).pseudospectral_radius(v)),
    "Spectrum.pseudospectrum(points)": ("size", lambda v: elman.spectrum(W).pseudospectrum(v)),
    "Spectrum.pseudospectrum(window)": ("linear", lambda v: elman.spectrum(W).pseudospectrum(3, v), [-1.0, 1, -1, 1]),
    "FixedPoints.modes(point)": ("size", lambda v: elman.fixed_points(rnn(), starts=2, rng=0).modes(v)),
    "check_adjoint(rtol)": ("any number", lambda v: elman.testing.check_adjoint(stack(), rtol=v)),
    "check_adjoint(vectors)": ("size", lambda v: elman.testing.check_adjoint(stack(), vectors=v)),
}
"""What is public and not walked above: losses and initialisers called by themselves, methods of results."""
DIAGNOSIS = functools.cache(lambda: elman.diagnose(rnn(), X, rng=0))
ELSEWHERE |= {
    "verify(x)": ("array", lambda v: DIAGNOSIS().verify(v), X[::-1]),
    "verify(h0)": ("array", lambda v: DIAGNOSIS().verify(X[::-1], h0=v), STATE),
    "verify(start)": (
        "array",
        lambda v: elman.diagnose(stack(), start=np.ones((2, 3))).verify(stack(), start=v),
        np.ones((2, 3)),
    ),
    "prescribe(target)": ("any number", lambda v: DIAGNOSIS().prescribe(v)),
    "prescribe(tolerance)": ("number", lambda v: DIAGNOSIS().prescribe(0.0, tolerance=v)),
    "prescribe(max_runs)": ("size", lambda v: DIAGNOSIS().prescribe(0.0, max_runs=v)),
    "prescribe(lever)": ("choice", lambda v: DIAGNOSIS().prescribe(0.0, v)),
    "angles(split)": ("size", lambda v: elman.covariant_vectors(stack()).angles(v)),
    "save_safetensors(path)": ("path", lambda v: elman.interop.save_safetensors(rnn(), v)),
    "load_safetensors(path)": ("path", elman.interop.load_safetensors),
    "load_pt(path)": ("path", elman.interop.load_pt),
    "from_onnx(model)": ("path", elman.interop.from_onnx),
    "to_onnx(layer)": ("object", elman.interop.to_onnx),
    "to_onnx(path)": ("path or none", lambda v: elman.interop.to_onnx(rnn(), v)),
    "save_safetensors(model)": ("object", lambda v: elman.interop.save_safetensors(v, "never written")),
    "CSVLog(path)": ("path", elman.CSVLog),
    "ModelCheckpoint(path)": ("path", elman.ModelCheckpoint),
    "minimize(net)": ("object", lambda v: elman.minimize(v, X, Y)),
    "mse(output, metric)": ("array", lambda v: elman.metrics.mse(v, OUTPUT), OUTPUT),
    "rmse(target)": ("array", lambda v: elman.metrics.rmse(OUTPUT, v), OUTPUT),
    "mae(weight)": ("array", lambda v: elman.metrics.mae(OUTPUT, OUTPUT, v), np.ones(4)),
    "accuracy(output)": ("array", lambda v: elman.metrics.accuracy(v, CLASSES), OUTPUT),
    "Cosine(epochs)": ("size", elman.schedules.Cosine),
    "StepDecay(factor)": ("number", lambda v: elman.schedules.StepDecay(2, v)),
    "OnPlateau(patience)": ("size", elman.schedules.OnPlateau),
    "check_cell(cell)": ("object", elman.testing.check_cell),
    "astype(dtype)": ("dtype", lambda v: network().astype(v)),
    "save(path)": ("path", lambda v: elman.save(v, rnn())),
    "save(net)": ("object", lambda v: elman.save("never written", v)),
    "load(path)": ("path", elman.load),
}
NEEDS = {"load_pt": "torch", "from_onnx": "onnx", "to_onnx": "onnx"}
PLOTS = {name: getattr(elman.plotting, name) for name in elman.plotting.__all__}
ELSEWHERE |= {
    f"{name}({next(iter(inspect.signature(plot).parameters))})": ("object", functools.partial(plotted, plot))
    for name, plot in PLOTS.items()
}


def needed(thing):
    """Skip what needs a package that is not installed."""
    package = NEEDS.get(thing.partition("(")[0])
    return [] if package is None or find_spec(package) else [pytest.mark.skip(reason=f"{package} is not installed")]


LOSS_OF_NAN = ("mse(output)", "mse(target)", "cross_entropy(output)", "cross_entropy(target)")


@pytest.mark.parametrize(
    ("call", "bad", "error"),
    [
        pytest.param(
            call,
            bad(good[0]) if good and callable(bad) else bad,
            promised(thing, title),
            id=f"{thing}-{title}",
            marks=needed(thing),
        )
        for thing, (kind, call, *good) in ELSEWHERE.items()
        for title, bad in BAD[kind].items()
        if title != "NaN" or thing not in LOSS_OF_NAN  # whose loss is NaN, which training refuses
    ],
)
def test_bad_values_are_refused_elsewhere(call, bad, error):
    with pytest.raises(error):
        call(bad)
