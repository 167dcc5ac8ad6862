"""Every result prints, becomes plain values, shows itself in a notebook, and draws itself."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil

import matplotlib.pyplot as plt
import numpy as np
import pytest
import scipy.sparse

import elman
from elman import precompile
from elman.results import Drawn, Result

RNG = np.random.default_rng(0)
X = RNG.standard_normal((30, 20, 2))
W = RNG.standard_normal((4, 4)) / 3


def trained():
    net = elman.Network(elman.RNN(2, 4, rng=0), elman.Readout(4, 1, rng=1))
    monitor = elman.Monitor(X, every=1, threshold=1e3)
    history = elman.fit(net, X, X[..., :1], epochs=2, callbacks=(monitor,), progress=False, rng=0)
    return history, monitor


def both_ways():
    return elman.diagnose(elman.RNN(2, 4, bidirectional=True, rng=0), X, rng=0)


DIAGNOSIS = elman.diagnose(elman.RNN(2, 4, rng=0), X, rng=0)
LIN = elman.RNN(2, 4, rng=0).linearize(X)
MADE = {
    "Diagnosis": lambda: DIAGNOSIS,
    "Verification": DIAGNOSIS.verify,
    "Explanation": DIAGNOSIS.explain,
    "TunedPrescription": DIAGNOSIS.prescribe,
    "Prescription": lambda: DIAGNOSIS.prescription,
    "GrowthCurve": lambda: DIAGNOSIS.curve,
    "Horizon": lambda: DIAGNOSIS.horizon,
    "Trial": lambda: DIAGNOSIS.explain().trials[0],
    "PathShares": lambda: elman.diagnose(elman.GRU(2, 4, rng=0), X, rng=0).explain().paths,
    "Comparison": lambda: DIAGNOSIS.verify().random,
    "WeightFacts": lambda: elman.diagnose(elman.RNN(2, 4, rng=0), X, level="weights", rng=0).facts,
    "WarmupTimes": lambda: precompile.WarmupTimes({"RNN": {"float64": 1.5}, "LSTM": {"float64": 2.0}}, None),
    "Causes": lambda: DIAGNOSIS.causes,
    "BidirectionalDiagnosis": both_ways,
    "BidirectionalVerification": lambda: both_ways().verify(),
    "GradientFlow": lambda: elman.gradient_flow(LIN, bounds=True, rng=0),
    "LyapunovSpectrum": lambda: elman.lyapunov_spectrum(LIN, rng=0),
    "CovariantVectors": lambda: elman.covariant_vectors(LIN, rng=0),
    "Spectrum": lambda: elman.spectrum(W),
    "SpectrumByGate": lambda: elman.spectrum({"<i> & f": W}),
    "PartialSpectrum": lambda: elman.spectrum(scipy.sparse.diags_array(np.linspace(0, 0.9, 3000))),
    "Pseudospectrum": lambda: elman.spectrum(W).pseudospectrum(9),
    "FixedPoints": lambda: elman.fixed_points(elman.RNN(2, 4, rng=0), starts=4, rng=0),
    "MeanField": lambda: elman.mean_field(1.5),
    "PhaseDiagram": lambda: elman.phase_diagram([0.5, 1.5], [0.0, 0.1]),
    "MemoryCapacity": lambda: elman.memory_capacity(W, np.ones(4)),
    "FisherMemory": lambda: elman.fisher_memory(W, np.ones(4)),
    "MeasuredMemory": lambda: elman.measured_memory(RNG.standard_normal((99, 3)), RNG.standard_normal(99)),
    "History": lambda: trained()[0],
    "Monitor": lambda: trained()[1],
    "Scores": lambda: elman.forecast.scores(X[..., 0], {"<zero>": 0 * X[..., 0]}),
    "Minimization": lambda: elman.minimize(elman.Readout(2, 1, rng=0), X[0], X[0, :, :1], progress=False),
    "ReadoutSolution": lambda: elman.Readout(2, 1, rng=0).solve(X, X[..., :1]),
}

ON_ONE_LINE = {"Causes", "GrowthCurve", "Horizon", "Prescription", "Trial", "WeightFacts"}


def classes(module):
    """Classes that a module defines itself."""
    return [c for _, c in inspect.getmembers(module, inspect.isclass) if c.__module__ == module.__name__]


def test_whatever_has_a_summary_and_plain_values_is_a_result():
    names = [m.name for m in pkgutil.walk_packages(elman.__path__, "elman.") if "__main__" not in m.name]
    found = [c for name in names for c in classes(importlib.import_module(name))]
    strangers = [c.__name__ for c in found if {"__str__", "to_dict"} <= vars(c).keys() and not issubclass(c, Result)]
    assert not strangers
    concrete = {c.__name__ for c in found if issubclass(c, Result) and not inspect.isabstract(c)}
    assert concrete == MADE.keys()


@pytest.mark.parametrize("name", MADE)
def test_it_prints_becomes_plain_and_shows_itself(name):
    result = MADE[name]()
    assert type(result).__name__ == name
    plain = result.to_dict()
    text = json.dumps(plain)
    assert json.dumps(json.loads(text)) == text, "keys that are not strings would not come back"
    page = result._repr_html_()
    inner = page.removeprefix('<pre style="overflow-x: auto">').removesuffix("</pre>")
    assert inner != page
    assert "<" not in inner
    assert inner.count("\n") == str(result).count("\n") > 0 or name in ON_ONE_LINE
    if isinstance(result, Drawn):
        drawn = result.plot()
        artists = [a for ax in np.ravel(getattr(drawn, "axes", drawn)) for a in np.ravel(ax)]
        assert any(ax.has_data() for ax in artists)
        plt.close("all")


def test_names_are_escaped():
    assert "&lt;i&gt; &amp; f" in MADE["SpectrumByGate"]()._repr_html_()
