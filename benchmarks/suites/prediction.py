"""How right a diagnosis is, followed over the history: the quick form of ``gradient_prediction.py``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

import elman

from ..commands.gradient_prediction import quick_records
from ..prediction.scores import Score, coverage, decisions, group, score

MADE = Path("prediction-records.json")  # in the folder that asv keeps for what its benchmarks share


class GradientPrediction:
    """Accuracy of ``diagnose`` over a few dozen networks."""

    params: ClassVar = ("untrained", "trained")
    param_names = ("networks",)

    def setup_cache(self) -> None:
        """Make the population once for all figures, each of which asv runs in a process of its own."""
        elman.set_num_threads(1)
        MADE.write_text(json.dumps(quick_records()), encoding="utf-8")

    def setup(self, networks: str) -> None:
        elman.set_num_threads(1)
        records = json.loads(MADE.read_text(encoding="utf-8")) if MADE.exists() else quick_records()
        self.records = group(records, networks)

    def _score(self, predictor: str, loss: bool = False) -> Score:
        made = score(self.records, predictor, loss)
        assert made is not None
        return made

    def track_slope_error(self, networks: str) -> float:
        return self._score("full 16x4").slope

    def track_decades(self, networks: str) -> float:
        return self._score("full 16x4").decades

    def track_verdicts(self, networks: str) -> float:
        return self._score("full 16x4").verdicts

    def track_loss_decades(self, networks: str) -> float:
        return self._score("loss 16", True).decades

    def track_forward_slope_error(self, networks: str) -> float:
        return self._score("forward 16x2").slope

    def track_weights_slope_error(self, networks: str) -> float:
        return self._score("weights").slope

    def track_coverage(self, networks: str) -> float:
        """Of intervals of 95 % for one more sequence."""
        covered = coverage(self.records, "full 16x4")
        assert covered is not None
        return covered.single

    def track_decided(self, networks: str) -> float:
        said = decisions(self.records)
        assert said is not None
        return said.decided

    track_slope_error.unit = track_forward_slope_error.unit = "nats/step"  # type: ignore[attr-defined]
    track_weights_slope_error.unit = "nats/step"  # type: ignore[attr-defined]
    track_decades.unit = track_loss_decades.unit = "decades"  # type: ignore[attr-defined]
    track_verdicts.unit = track_coverage.unit = track_decided.unit = "share"  # type: ignore[attr-defined]
