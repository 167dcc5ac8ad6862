"""What a cell is: data and five kernels. The contract for whoever adds one.

Sizes: ``T`` steps, ``B`` rows of the batch, ``D`` inputs, ``H`` units, ``R`` numbers in the output (H, or fewer for a
cell that projects), ``K`` tangent vectors. ``Hp`` is H padded to whole vectors (``elman.kernels.tile.padded``). All
arrays are flat; rows are ``rs`` places apart.

Rows stand in descending order of their lengths, so that the first ``active[t]`` rows are those that have a step t: no
kernel knows what a length is.

======== ================================== ==============================================================
array    rows                               a row holds
======== ================================== ==============================================================
X        T * B                              D inputs
out      T * B                              R outputs
states   slots * B                          ``[state][Hp]``, in the order of ``Cell.states``; of the first, R count
gates    T * B, or B if ``slots`` is 2      ``[block][Hp]``, what backward needs besides the states
delta    T * B * K (or B * K)               ``[block][Hp]``, gradients of the pre-activations; then that of the output,
                                            for a cell that projects
d_state  B * K                              ``[state][Hp]``, gradient of the state; likewise tangents
P_ih     panels ``[block][Hp/lanes][D]``    W_ih packed along its gates (``layers.affine.panels_of``)
P_hh     panels ``[block][Hp/lanes][R]``    W_hh likewise; then W_hr, for a cell that projects
P_back   panels ``[Rp/lanes][block, Hp]``   W_hh packed along its columns, for ``delta @ W_hh`` (``pack_back``),
                                            of the last block H only; then W_hr likewise
active   T                                  int64: how many rows have step t
init     T * B, or one                      ``[block][Hp]``, where the sums of a step start: the bias of each block
                                            (b_ih and b_hh, summed where both enter it), perhaps with what x adds
         T * B * K, or one                  for tangents: what the tangent of x adds, or zeros
======== ================================== ==============================================================

A *block* is a pre-activation of H units. W_ih feeds the first blocks and W_hh the last ones; where they overlap, both
enter one sum. ``Cell.x_blocks`` and ``Cell.h_blocks`` name the gate of each, so that a product reads neighbouring
blocks only.

The contract:

1. Kernels are plain functions of arrays, sizes, a window of steps ``[t0, t1)`` and a slab of batch rows ``[b0, b1)``.
   They allocate nothing, raise nothing, keep nothing. Slabs never share a written row. Those that walk through a window
   are made from one step by the decorators of :mod:`elman.cells.steps`; the others are decorated by
   :func:`elman.kernels.compile.kernel`.
2. State slot 0 is the initial state; step t reads slot ``t`` and writes slot ``t + 1``, both modulo ``slots``. With
   ``slots = T + 1`` everything is kept; with 2 only what streaming needs.
3. ``forward`` returns -1, or the first step whose state is not finite, and stops there.
4. ``backward`` is linear in ``d_state`` and ``dY``; K vectors share a row's states. It leaves the gradient of the
   state at t0.
5. Lanes from H to Hp hold finite numbers, and zero in ``delta``, ``d_state`` and tangents: no loop has a remainder.
6. Sums are ``product`` or ``two_products`` of :mod:`elman.kernels.tile`, so that no bit depends on the batch, the
   window or the slab. With at most ``FEW`` rows, every other step takes its columns from the other end.
7. :func:`elman.testing.check_cell` passes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from ..kernels.activations import NONLINEARITIES


@dataclass(frozen=True)
class Gate:
    """What a block of H rows of ``weight_ih`` and ``weight_hh`` computes, and what that does to the old state.

    Attributes
    ----------
    name : str
        As in the equation: ``"f"``. Not ``"all"``, ``"below"`` or ``"carry"``, other paths of a gradient.
    nonlinearity : {"tanh", "relu", "sigmoid", "identity"} or None
        What its sum goes through; None where the variant's name says it, and for a function that is none of these.
    role : {"keep", "renew"} or None
        What the old state is multiplied by on its way past all weights: ``"keep"`` for the gate, as f of an LSTM and z
        of a GRU; ``"renew"`` for one minus the gate, as f of a minimal gated unit; None for a gate that does neither,
        as i of an LSTM, which lets in what is new whatever becomes of the old.
    word : str, optional
        What its bias is called after if it has a role, as in ``"forget_bias"``; its name by default.

    Raises
    ------
    ValueError
        Naming the field.
    """

    name: str
    nonlinearity: str | None
    role: Literal["keep", "renew"] | None = None
    word: str = ""

    def __post_init__(self) -> None:
        if self.name in ("all", "below", "carry"):
            raise ValueError(f"the name of a gate must not be {self.name!r}, which names another path of the gradient")
        for field, known in (("nonlinearity", NONLINEARITIES), ("role", ("keep", "renew"))):
            value = getattr(self, field)
            if value is not None and value not in known:
                raise ValueError(f"{field} of gate {self.name} must be None or one of {known}, got {value!r}")

    @property
    def bias(self) -> str:
        """The lever that moves its bias: one of its own if it has a role, else that of all biases together."""
        return f"{self.word or self.name}_bias" if self.role else "bias"


@dataclass(frozen=True)
class Cell:
    """A recurrent cell.

    Attributes
    ----------
    name : str
        Lower case, as in parameter-independent messages: ``"rnn"``.
    gates : tuple of Gate
        Blocks of H rows in ``weight_ih`` and ``weight_hh``, in order.
    states : tuple of str
        Parts of the state in order: first the output, of R numbers, then others of H.
    stored : tuple of str
        What a row of ``gates`` holds.
    variants : tuple of str
        Names of the variants; kernels take the index.
    x_blocks, h_blocks : tuple of str
        The gate of each block that W_ih feeds, and of each that W_hh feeds.
    blocks : int
        Number of pre-activations, which is that of blocks in a row of ``delta``.
    projects : bool
        Whether the output is a product ``W_hr m`` of R numbers, ``weight_hr (R, H)``: a row of ``delta`` then has one
        more block, the gradient of the output.
    forward : callable
        ``forward(variant, X, x_rs, P_ih, P_hh, init, i_rs, states, s_rs, gates, g_rs, out, o_rs, D, H, R, B, slots,
        active, t0, t1, b0, b1)`` fills states (and gates, if ``slots > 2``) and, if ``out`` is not empty, the first R
        numbers of its row ``t * B + b`` with the output. The sums of step t start from row ``(t - t0) * B + b`` of
        ``init`` (``i_rs`` is 0 where it is one row); D is 0 where that has what x adds. Returns a status, see 3.
    backward : callable
        ``backward(variant, dY, y_rs, P_back, states, s_rs, gates, g_rs, delta, d_rs, d_state, squares, H, R, B,
        K, keep, active, t0, t1, b0, b1)`` adds row ``(t * B + b) * K + k`` of dY (if not empty) to the gradient of the
        output at step t, writes ``|dL/ds_{t+1}|^2`` of the i-th state to ``squares[((t * B + b) * K + k) * n_states +
        i]`` and delta to row ``(keep * t * B + b) * K + k``.
    gradients : callable
        ``gradients(X, x_rs, states, s_rs, gates, g_rs, delta, d_rs, D, H, R, x1, h0, r0, r1, v0, v1, dW, w_rs)``
        adds ``[x, h]^T delta`` over rows r0..r1 to ``dW`` (D + R rows), vectors v0..v1 of each; of those, x
        enters the vectors below x1 and h those from h0 on. H further rows belong to W_hr, where there is one.
        :func:`elman.cells.gradients.gradients` serves every cell whose products all read x or h.
    tangent : callable
        ``tangent(variant, P_hh, init, i_rs, states, s_rs, gates, g_rs, work, w_rs, V, v_rs, squares, H, R, B, K, t0,
        t1, b0, b1)`` pushes row ``b * K + k`` of V, a ring of two slots, through the window: from slot ``t0 % 2`` to
        slot ``t1 % 2``; squared norms to ``squares[(((t - t0) * B + b) * K + k) * n_states + i]``. The sums of step t
        start from row ``((t - t0) * B + b) * K + k`` of ``init`` (``i_rs`` is 0 where it is one row of zeros). ``work``
        has B * K rows for the blocks.
    jacobian : callable
        ``jacobian(variant, W_hh, states, s_rs, gates, g_rs, H, R, B, t, b, J)`` fills all of ``J`` (S * S), where S
        counts R numbers of the first state and H of each other; ``W_hh`` is followed by ``W_hr``, where there is one.
    factors : callable or None
        ``factors(variant_name, output)`` is the array of slopes if ``J = diag(slopes) W_hh``, from an array of outputs.
    max_slope : callable or None
        ``max_slope(variant_name)``: the largest slope there can be.
    """

    name: str
    gates: tuple[Gate, ...]
    states: tuple[str, ...]
    stored: tuple[str, ...]
    variants: tuple[str, ...]
    x_blocks: tuple[str, ...]
    h_blocks: tuple[str, ...]
    blocks: int
    forward: Callable[..., int]
    backward: Callable[..., None]
    gradients: Callable[..., None]
    tangent: Callable[..., None]
    jacobian: Callable[..., None]
    factors: Callable[..., Any] | None = None
    max_slope: Callable[..., float] | None = None
    projects: bool = False

    def __post_init__(self) -> None:
        """Refuse a record that contradicts itself: kernels would read and write where nothing is.

        Raises
        ------
        ValueError
            Naming the field.
        """
        if not all(isinstance(gate, Gate) for gate in self.gates):
            raise ValueError(f'{self.name}: gates must be a tuple of Gate, as Gate("r", "sigmoid"), got {self.gates!r}')
        gates = self.gate_names
        for names in (gates, tuple(gate.bias for gate in self.gates if gate.role)):
            if len(set(names)) < len(names):
                raise ValueError(f"{self.name}: gates must have different names and words, got {names}")
        for name in ("x_blocks", "h_blocks"):
            if sorted(getattr(self, name)) != sorted(gates):
                raise ValueError(
                    f"{self.name}: {name} must name each of the gates {gates} once, got {getattr(self, name)}"
                )
        if not len(gates) <= self.blocks <= 2 * len(gates):
            raise ValueError(
                f"{self.name}: blocks must lie in {len(gates)} .. {2 * len(gates)}, since W_ih feeds the first and "
                f"W_hh the last {len(gates)} of them, got {self.blocks}"
            )
        if not self.states or not self.variants:
            raise ValueError(f"{self.name}: states and variants must each name one at least")

    @property
    def gate_names(self) -> tuple[str, ...]:
        """Names of the gates: the public constant of their order in the weights."""
        return tuple(gate.name for gate in self.gates)
