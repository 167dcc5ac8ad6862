"""The record of a training: plain values and back, tables."""

import json
import math
import sys

import pytest

from elman import History
from elman.errors import DTypeError, MissingExtraError, StateDictError

FULL = History(
    loss=[3.0, 2.0, 1.0], validation_loss=[3.5, 2.5, 2.6], gradient_norm=[1.0, 2.0, 0.1, 0.2, 0.3, 0.4],
    lr=[0.1, 0.1, 0.05], metrics={"validation_r2": [0.2, 0.4]}, clip_norm=1.5, seconds=2.0, stopped=True,
)  # fmt: skip


def test_there_and_back():
    record = json.loads(json.dumps(FULL.to_dict()))
    assert record["clipped_fraction"] == pytest.approx(1 / 6)
    again = History.from_dict(record)
    assert again == FULL
    assert again.seconds == FULL.seconds
    again.metrics["validation_r2"].append(0.5)
    again.loss.append(9.0)
    assert record["metrics"]["validation_r2"] == [0.2, 0.4]
    assert len(record["loss"]) == 3
    assert History.from_dict({}) == History()


@pytest.mark.parametrize(
    ("record", "error", "words"),
    [
        ([], DTypeError, "record must be a mapping"),
        ({"losses": []}, StateDictError, "unknown names .'losses'"),
        ({"loss": "abc"}, DTypeError, "loss must be a list"),
        ({"loss": ["1"]}, DTypeError, r"loss\[0\] must be a number"),
        ({"metrics": [1]}, DTypeError, "metrics must be a mapping"),
        ({"stopped": 1}, DTypeError, "stopped must be True or False"),
        ({"clip_norm": "1"}, DTypeError, "clip_norm must be a number"),
    ],
)
def test_a_wrong_record_is_refused(record, error, words):
    with pytest.raises(error, match=words):
        History.from_dict(record)


def test_frame():
    pandas = pytest.importorskip("pandas")
    frame = FULL.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == ["loss", "validation_loss", "lr", "validation_r2"]
    assert frame.index.name == "epoch"
    assert list(frame["lr"]) == FULL.lr
    column = list(frame["validation_r2"])
    assert math.isnan(column[0])
    assert column[1:] == [0.2, 0.4]
    assert History().to_frame().empty


def test_without_pandas_the_message_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r'needs pandas.*pip install "elman\[pandas\]"'):
        FULL.to_frame()


def test_summary_names_metrics_and_a_rate_that_changed():
    text = str(FULL)
    assert "validation_r2    0.2 -> 0.4" in text
    assert "learning rate    0.1 -> 0.05" in text
    assert "learning rate" not in str(History(lr=[0.1, 0.1]))
