"""Keras on the JAX backend: ``jax.jit`` of a layer's ``stateless_call``, and its ``vjp``."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from ..cases import Array, Case
from .side import Side

LAYERS: dict[str, tuple[str, dict[str, bool]]] = {
    "RNN": ("SimpleRNN", {}),
    "LSTM": ("LSTM", {}),
    "GRU": ("GRU", {"reset_after": True}),
}


class Keras(Side):
    """``SimpleRNN``, ``LSTM``, ``GRU`` with sequences first, (B, T, D), as Keras has them; lengths as a mask.

    In float32: on this backend Keras gives the result of its activations in float32 whatever goes in (3.15), so that
    float64 layers fail, or agree with others to seven digits.
    """

    def __init__(self, threads: int) -> None:
        os.environ["KERAS_BACKEND"] = "jax"
        import jax
        import keras

        if keras.backend.backend() != "jax":
            raise RuntimeError(f"keras was imported with the backend {keras.backend.backend()}; it must be jax")
        self.jax, self.keras = jax, keras

    def version(self) -> str:
        return f"keras {self.keras.__version__} on jax {self.jax.__version__}"

    @staticmethod
    def can(case: Case, name: str) -> bool:
        return name != "step" and case.x.dtype == np.float32

    def load(self, case: Case) -> None:
        if not self.can(case, "forward"):
            return
        import elman
        from elman.interop.keras import to_keras

        jax, keras = self.jax, self.keras
        keras.utils.clear_session()
        jax.clear_caches()
        jax.config.update("jax_enable_x64", False)
        x, d_output = (np.ascontiguousarray(a.swapaxes(0, 1)) for a in (case.x, case.d_output))
        ours = getattr(elman, case.cell)(case.input_size, case.hidden_size, dtype=case.x.dtype)
        ours.load_state_dict(case.weights)
        name, options = LAYERS[case.cell]
        layer = getattr(keras.layers, name)(
            case.hidden_size, return_sequences=True, return_state=True, zero_output_for_mask=True,
            dtype=case.x.dtype.name, **options,
        )  # fmt: skip
        layer.build(x.shape)
        layer.set_weights(to_keras(ours)[0])
        mask = None if case.lengths is None else np.arange(len(case.x)) < case.lengths[:, None]
        self.weights = [variable.value for variable in layer.trainable_variables]
        self.x, self.d_output, self.mask = jax.device_put((x, d_output, mask))
        others = [variable.value for variable in layer.non_trainable_variables]

        def run(weights: Any, x: Any, mask: Any) -> Any:
            return layer.stateless_call(weights, others, x, mask=mask)[0]

        def both(weights: Any, x: Any, mask: Any, d_output: Any) -> Any:
            output, pull = jax.vjp(lambda w, x: run(w, x, mask)[0], weights, x)
            return output, pull(d_output)

        self.compiled = jax.jit(run), jax.jit(both)

    def forward(self) -> Any:
        return self.jax.block_until_ready(self.compiled[0](self.weights, self.x, self.mask))

    def forward_backward(self) -> Any:
        return self.jax.block_until_ready(self.compiled[1](self.weights, self.x, self.mask, self.d_output))

    def arrays(self, name: str, result: Any) -> dict[str, Array]:
        output, *others = result
        if name == "forward":
            named = {key: np.asarray(state)[None] for key, state in zip(("hn", "cn"), others, strict=False)}
        else:
            ((d_weights, d_x),) = others
            named = self.gradients([np.asarray(d) for d in d_weights]) | {"d_x": np.asarray(d_x).swapaxes(0, 1)}
        return {"output": np.asarray(output).swapaxes(0, 1), **named}

    def gradients(self, d_weights: list[Array]) -> dict[str, Array]:
        """Under PyTorch's names: gradients lie as their weights do, and a single bias is the gradient of both."""
        from elman.interop.keras import from_keras

        gated = {"activation": "tanh", "recurrent_activation": "sigmoid"}
        options = {"nonlinearity": "tanh"} if self.case.cell == "RNN" else gated
        named = {f"d_{name}": d for name, d in from_keras(d_weights, **options).state_dict().items()}
        if d_weights[2].ndim == 1:
            named["d_bias_hh_l0"] = named["d_bias_ih_l0"]
        return named

    def output(self, result: Any) -> Array:
        raise NotImplementedError
