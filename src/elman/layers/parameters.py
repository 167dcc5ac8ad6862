"""The parameters of a layer: one flat vector, and named views into it under PyTorch's names."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import DTypeError, ShapeError, StateDictError
from ..validation import finite

Array = NDArray[Any]


class Parameters(Mapping[str, Array]):
    """Mapping from names to arrays that are views into one vector ``theta``.

    Parameters
    ----------
    shapes : mapping of str to tuple of int
        Names and shapes, in the order in which they lie in ``theta``.
    dtype : numpy.dtype
        float32 or float64.
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], dtype: np.dtype[Any]) -> None:
        self.shapes = dict(shapes)
        self._lay_out()
        self.owner: object = self
        self._bind(np.zeros(self.size, dtype))

    def _lay_out(self) -> None:
        """Place the parameters one after the other."""
        ends = np.cumsum([math.prod(s) for s in self.shapes.values()]).tolist()
        self.size: int = ends[-1] if ends else 0
        self._slices = list(zip(self.shapes, map(slice, [0, *ends], ends), self.shapes.values(), strict=False))

    def _bind(self, theta: Array) -> None:
        self.theta = theta
        self._views = self.view(theta)

    def view(self, vector: Array) -> dict[str, Array]:
        """Named views into another vector of the same layout, such as a gradient."""
        return {name: vector[place].reshape(shape) for name, place, shape in self._slices}

    def move(self, theta: Array, owner: object) -> None:
        """Continue in another vector, which takes over the present values: how a network joins its parts."""
        theta[:] = self.theta
        self._bind(theta)
        self.owner = owner

    def load(self, mapping: Mapping[str, ArrayLike]) -> None:
        """Copy values in: every name exactly once, every shape exact; on any fault nothing is changed.

        Raises
        ------
        StateDictError, ShapeError, DTypeError, ArgumentError
            For missing or unknown names, wrong shapes, values that are not real numbers or not finite.
        """
        missing = [n for n in self.shapes if n not in mapping]
        unknown = [n for n in mapping if n not in self.shapes]
        if missing or unknown:
            parts = [f"missing {', '.join(missing)}"] * bool(missing) + [
                f"unknown {', '.join(map(str, unknown))}"
            ] * bool(unknown)
            raise StateDictError(
                f"the weights must have exactly the names {', '.join(self.shapes)}; {'; '.join(parts)}. "
                "Was the layer made with the same num_layers, bidirectional and bias?"
            )
        new = np.empty_like(self.theta)
        for name, view in self.view(new).items():
            value = np.asarray(mapping[name])
            if value.dtype.kind != "f":
                raise DTypeError(f"{name} must hold real floating-point numbers, got dtype {value.dtype}")
            if value.shape != view.shape:
                cure = (
                    "; it seems transposed: PyTorch's layout is (output, input)" if value.T.shape == view.shape else ""
                )
                raise ShapeError(f"{name} must have shape {view.shape}, got {value.shape}{cure}")
            with np.errstate(over="ignore"):
                view[...] = value
            finite(view, name)
        self.theta[:] = new

    def copy(self) -> dict[str, Array]:
        """Name to array, independent of this object."""
        return {name: view.copy() for name, view in self._views.items()}

    def __getitem__(self, name: str) -> Array:
        return self._views[name]

    def __contains__(self, name: object) -> bool:
        return name in self._views

    def get(self, name: str, default: Any = None) -> Any:
        """The view called ``name``, or the default."""
        return self._views.get(name, default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)

    def __repr__(self) -> str:
        return f"Parameters({', '.join(f'{n} {s}' for n, s in self.shapes.items())})"

    def __getstate__(self) -> dict[str, Any]:
        return {"shapes": self.shapes, "theta": self.theta.copy()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.shapes = state["shapes"]
        self._lay_out()
        self.owner = self
        self._bind(state["theta"])


class Parameterised:
    """What everything with parameters has: ``params``, ``theta``, ``state_dict``, ``load_state_dict``."""

    parameters: Parameters

    @property
    def params(self) -> Mapping[str, Array]:
        """Name to live view: editing one in place changes the next call. Joining a network moves them."""
        return self.parameters

    @property
    def theta(self) -> Array:
        """All parameters as one flat vector, live."""
        return self.parameters.theta

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 or float64."""
        return self.theta.dtype

    def state_dict(self) -> dict[str, Array]:
        """Copies of the parameters under PyTorch's names."""
        return self.parameters.copy()

    def load_state_dict(self, mapping: Mapping[str, ArrayLike]) -> None:
        """Set all parameters from arrays under PyTorch's names; see :meth:`Parameters.load` for what is refused."""
        self.parameters.load(mapping)
