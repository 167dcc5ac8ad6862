"""How often diagnoses from weights were right, by what was declared about the inputs: a recorded measurement."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

Row = tuple[int, int, float]

RECORD: Mapping[str, Mapping[str, Row]] = MappingProxyType(
    {
        "white": {
            "white noise": (60, 60, 0.006),
            "AR(1) noise": (53, 60, 0.0454),
            "embedded text": (56, 60, 0.0449),
            "one-hot text": (60, 60, 0.0105),
        },
        "autocorrelation": {
            "white noise": (60, 60, 0.0063),
            "AR(1) noise": (59, 60, 0.0088),
            "embedded text": (57, 60, 0.0424),
            "one-hot text": (60, 60, 0.0117),
        },
        "sample": {
            "white noise": (60, 60, 0.0093),
            "AR(1) noise": (58, 60, 0.0155),
            "embedded text": (59, 60, 0.0112),
            "one-hot text": (60, 60, 0.0084),
        },
    }
)
"""Right verdicts, networks, and mean error of the rate (nats per step), by what was declared and by the real input.

Written by ``benchmarks/commands/weights_inputs.py``: 30 networks of 32 units (tanh, GRU, LSTM) for each input,
untrained at five scales of W_hh and trained on the next token or a delay of three steps (60 snapshots); T = 100;
samples of four.
"""

_TOLD = {
    "white": "white noise (right mean and deviation)",
    "autocorrelation": "noise of the right autocorrelation",
    "sample": "stretches of a sample (four sequences)",
}
_CURE = {
    "white": "inputs that are not white noise: give a sample of them (x), or input_autocorrelation",
    "autocorrelation": "inputs that are not Gaussian, such as text: give a sample of them (x)",
    "sample": 'for a surer verdict, give more data and use level="full"',
}


def track_record(inputs: str) -> list[str]:
    """How often such a prediction was right, in lines of text.

    Parameters
    ----------
    inputs : {"white", "autocorrelation", "sample"}
        What the prediction was given.
    """
    rows = [
        f"  {name} {right} of {of} (rate off by {error:.3f})" for name, (right, of, error) in RECORD[inputs].items()
    ]
    return [
        f"record    verdicts that {_TOLD[inputs]} got right, and mean error of the rate in nats/step,",
        "  of networks with 32 units over 100 steps, by their input; networks of another kind may fare worse:",
        *rows,
        f"  {_CURE[inputs]}",
    ]
