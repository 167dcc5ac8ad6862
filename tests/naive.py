"""Plain NumPy twins, written from the equations: nothing of elman is used here."""

import platform

import numpy as np
from numba import config

PHI = {
    "tanh": (np.tanh, lambda a: 1 / np.cosh(a) ** 2),
    "relu": (lambda a: np.maximum(a, 0), lambda a: (a > 0).astype(float)),
    "sigmoid": (lambda a: 1 / (1 + np.exp(-a)), lambda a: np.exp(-a) / (1 + np.exp(-a)) ** 2),
    "identity": (lambda a: a, np.ones_like),
}


def rnn_forward(params, x, h0, nonlinearity):
    """Pre-activations (T, B, H) and states (T + 1, B, H) of an Elman layer, step by step."""
    phi = PHI[nonlinearity][0]
    W_ih, W_hh = params["weight_ih_l0"], params["weight_hh_l0"]
    bias = params.get("bias_ih_l0", 0.0) + params.get("bias_hh_l0", 0.0)
    a, h = [], [h0]
    for x_t in x:
        a.append(np.einsum("hd,bd->bh", W_ih, x_t) + np.einsum("hk,bk->bh", W_hh, h[-1]) + bias)
        h.append(phi(a[-1]))
    return np.array(a).reshape(len(x), *h0.shape), np.array(h)


def rnn_backward(params, x, h0, nonlinearity, d_output, d_hn):
    """Gradients by name, with x, h0 and the norms of dL/dh_t, by the chain rule step by step."""
    a, h = rnn_forward(params, x, h0, nonlinearity)
    slope = PHI[nonlinearity][1]
    W_ih, W_hh = params["weight_ih_l0"], params["weight_hh_l0"]
    grads = {name: np.zeros_like(p) for name, p in params.items()}
    d_x, norms, d_h = np.zeros_like(x), np.zeros(x.shape[:2]), d_hn.copy()
    for t in reversed(range(len(x))):
        d_h = d_h + d_output[t]
        norms[t] = np.linalg.norm(d_h, axis=1)
        delta = d_h * slope(a[t])
        grads["weight_ih_l0"] += delta.T @ x[t]
        grads["weight_hh_l0"] += delta.T @ h[t]
        for name in ("bias_ih_l0", "bias_hh_l0"):
            if name in grads:
                grads[name] += delta.sum(axis=0)
        d_x[t], d_h = delta @ W_ih, delta @ W_hh
    return grads, d_x, d_h, norms


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def lstm_step(params, x, state):
    """One step of an LSTM on states (B, 2H), h then c; gates in the order i, f, g, o."""
    h, c = np.split(state, 2, axis=1)
    a = x @ params["weight_ih_l0"].T + params["bias_ih_l0"] + h @ params["weight_hh_l0"].T + params["bias_hh_l0"]
    i, f, g, o = np.split(a, 4, axis=1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return np.concatenate([sigmoid(o) * np.tanh(c), c], axis=1)


def gru_step(params, x, h):
    """One step of a GRU with the reset after the product; gates in the order r, z, n."""
    xr, xz, xn = np.split(x @ params["weight_ih_l0"].T + params["bias_ih_l0"], 3, axis=1)
    hr, hz, hn = np.split(h @ params["weight_hh_l0"].T + params["bias_hh_l0"], 3, axis=1)
    r, z = sigmoid(xr + hr), sigmoid(xz + hz)
    return (1 - z) * np.tanh(xn + r * hn) + z * h


def gru_reset_before_step(params, x, h):
    """One step of a GRU with the reset before the product; gates in the order r, z, n."""
    W_r, W_z, W_n = np.split(params["weight_hh_l0"], 3)
    xr, xz, xn = np.split(x @ params["weight_ih_l0"].T + params["bias_ih_l0"] + params["bias_hh_l0"], 3, axis=1)
    r, z = sigmoid(xr + h @ W_r.T), sigmoid(xz + h @ W_z.T)
    return (1 - z) * np.tanh(xn + (r * h) @ W_n.T) + z * h


def lstm_projected_step(params, x, state):
    """One step of an LSTM on states (B, R + H), h = W_hr m then c; gates in the order i, f, g, o."""
    W_hr = params["weight_hr_l0"]
    h, c = np.split(state, [len(W_hr)], axis=1)
    a = x @ params["weight_ih_l0"].T + params["bias_ih_l0"] + h @ params["weight_hh_l0"].T + params["bias_hh_l0"]
    i, f, g, o = np.split(a, 4, axis=1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return np.concatenate([(sigmoid(o) * np.tanh(c)) @ W_hr.T, c], axis=1)


def mgu_step(params, x, h):
    """One step of a minimal gated unit; gates in the order f, n."""
    W_f, W_n = np.split(params["weight_hh_l0"], 2)
    xf, xn = np.split(x @ params["weight_ih_l0"].T + params["bias_ih_l0"] + params["bias_hh_l0"], 2, axis=1)
    f = sigmoid(xf + h @ W_f.T)
    return (1 - f) * h + f * np.tanh(xn + (f * h) @ W_n.T)


FLUSHES = not config.DISABLE_JIT and platform.machine().lower() in ("x86_64", "amd64", "arm64", "aarch64")
"""Whether subnormal numbers count as zero: in compiled code, on processors that have a mode for it."""


def flushed_numbers(x):
    """Subnormal numbers as zeros of their sign, where they count as zero."""
    return np.where(np.abs(x) < np.finfo(x.dtype).smallest_normal, np.copysign(0, x), x) if FLUSHES else x
