"""How often diagnoses from weights were right, by what they were told of their inputs: a recorded measurement."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

Row = tuple[int, int, float]

RECORD: Mapping[str, Mapping[str, Row]] = MappingProxyType(
    {
        "white": {},
        "autocorrelation": {},
        "sample": {},
    }
)
"""Right verdicts, networks, and mean error of the rate (nats per step), by what was told and by input.

Written by ``benchmarks/weights_inputs.py``: 60 networks of 32 units (tanh, GRU, LSTM) for each input, untrained at five
scales of W_hh and trained on the next token or a delay of three steps; T = 100, a sample of four sequences.
"""

_TOLD = {
    "white": "white noise of the inputs' mean and deviation",
    "autocorrelation": "Gaussian noise of the inputs' mean, deviation and autocorrelation",
    "sample": "stretches of a sample of four sequences",
}
_CURE = {
    "white": "inputs that are not white noise: give a sample of them (x), or input_autocorrelation",
    "autocorrelation": "inputs that are not Gaussian, such as text: give a sample of them (x)",
    "sample": 'for more give more data and take level="full"',
}


def track_record(inputs: str) -> list[str]:
    """How often such a prediction was right, in lines of text.

    Parameters
    ----------
    inputs : {"white", "autocorrelation", "sample"}
        What the prediction was told.
    """
    rows = [f"{name} {right} of {of} (rate off by {error:.3f})" for name, (right, of, error) in RECORD[inputs].items()]
    return [
        f"record    {_TOLD[inputs]}: verdicts right, measured on networks of 32 units over 100 steps:",
        f"  {'; '.join(rows)} nats/step",
        f"  {_CURE[inputs]}",
    ]
