"""Schedules: torch's learning rates, closed forms, state."""

import json
import math

import numpy as np
import pytest

import elman
from elman.errors import ArgumentError, DTypeError, StateDictError
from elman.training.schedules import (
    Cosine,
    ExponentialDecay,
    OnPlateau,
    StepDecay,
    WarmUp,
    checked_lr,
    get_schedule,
)

E = 20


@pytest.mark.parametrize(
    ("schedule", "name", "options"),
    [
        (StepDecay(4, factor=0.3), "StepLR", {"step_size": 4, "gamma": 0.3}),
        (ExponentialDecay(0.9), "ExponentialLR", {"gamma": 0.9}),
        (Cosine(E, lr_min=0.01), "CosineAnnealingLR", {"T_max": E, "eta_min": 0.01}),
    ],
)
def test_torch(schedule, name, options):
    torch = pytest.importorskip("torch")
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.2)
    other = getattr(torch.optim.lr_scheduler, name)(optimizer, **options)
    for epoch in range(E):
        assert schedule.lr(7 * epoch, epoch, 0.2) == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-12)
        optimizer.step()
        other.step()


def test_closed_forms():
    assert [StepDecay(2, 0.5).lr(0, e, 8.0) for e in range(5)] == [8, 8, 4, 4, 2]
    assert [ExponentialDecay(0.5).lr(0, e, 8.0) for e in range(4)] == [8, 4, 2, 1]
    for e in range(50):
        expected = 0.1 + 0.9 * (1 + math.cos(math.pi * e / 50)) / 2
        assert Cosine(50, 0.1).lr(0, e, 1.0) == pytest.approx(expected, rel=4e-16)
    assert [WarmUp(4).lr(s, 0, 1.0) for s in range(6)] == [0.25, 0.5, 0.75, 1, 1, 1]
    assert WarmUp(4, StepDecay(1, 0.5)).lr(1, 1, 1.0) == 0.25


def test_cosine_stays_above_zero_beyond_its_end():
    schedule = Cosine(10)
    assert schedule.lr(0, 99, 1.0) == schedule.lr(0, 9, 1.0) > 0


def test_plateau_waits_and_lowers():
    schedule, history, rates = OnPlateau(patience=2, factor=0.5, lr_min=0.2), elman.History(), []
    for loss in (5.0, 4.0, 4.0, 4.5, 3.9, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0):
        history.loss.append(0.0)
        history.validation_loss.append(loss)
        schedule.observe(history)
        rates.append(schedule.lr(0, len(rates), 1.0))
    assert rates == [1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.2, 0.2, 0.2]


def test_the_same_plateau_can_be_used_for_another_training():
    schedule = OnPlateau(patience=1)
    for _ in range(2):
        history = elman.History()
        assert schedule.lr(0, 0, 1.0) == schedule.lr(5, 0, 1.0) == 1.0
        for loss, scale in ((1.0, 1.0), (2.0, 0.1), (2.0, 0.01)):
            history.loss.append(loss)
            history.validation_loss.append(loss)
            schedule.observe(history)
            assert schedule.scale == pytest.approx(scale)


def test_plateau_of_a_metric_looks_for_the_largest():
    schedule, history = OnPlateau(1, monitor="validation_r2"), elman.History(metrics={"validation_r2": []})
    for value, scale in ((0.1, 1.0), (0.2, 1.0), (0.15, 0.1)):
        history.loss.append(0.0)
        history.metrics["validation_r2"].append(value)
        schedule.observe(history)
        assert schedule.scale == pytest.approx(scale)


@pytest.mark.parametrize("wrap", [lambda inner: inner, lambda inner: WarmUp(3, inner)])
def test_a_plateau_goes_on_from_its_state(wrap):
    losses = list(np.random.default_rng(0).uniform(size=30))
    one, history = wrap(OnPlateau(2, 0.7)), elman.History()
    other = None
    for i, loss in enumerate(losses):
        if i == 11:
            other = wrap(OnPlateau(2, 0.7))
            other.load_state_dict(json.loads(json.dumps(one.state_dict())))
        history.loss.append(0.0)
        history.validation_loss.append(loss)
        one.observe(history)
        if other is not None:
            other.observe(history)
            assert other.lr(i, i, 1.0) == one.lr(i, i, 1.0)
    assert one.lr(30, 30, 1.0) < 0.5


def test_a_wrong_state_is_refused_and_changes_nothing():
    schedule = OnPlateau(2)
    before = json.dumps(schedule.state_dict())
    for state, error in (
        ({"scale": 1.0}, StateDictError),
        ({"scale": -1.0, "waited": 0, "best": {"monitor": "validation_loss", "value": 1.0}}, ArgumentError),
        ({"scale": 0.5, "waited": 1, "best": {"monitor": "loss", "value": 1.0}}, StateDictError),
        ([], StateDictError),
    ):
        with pytest.raises(error):
            schedule.load_state_dict(state)
        assert json.dumps(schedule.state_dict()) == before
    with pytest.raises(StateDictError, match="WarmUp"):
        WarmUp(3).load_state_dict({"then": {}})


def test_by_name():
    assert get_schedule("step", 10, 100).lr(0, 9, 1.0) == pytest.approx(0.1**2)
    exponential = get_schedule("exponential", 40, 100)
    assert exponential.lr(0, 40, 1.0) == pytest.approx(0.01, rel=1e-12)
    assert get_schedule("cosine", 10, 100).lr(0, 5, 1.0) == pytest.approx(0.5, rel=1e-15)
    assert get_schedule("warm-up", 10, 100).lr(4, 0, 1.0) == 0.5
    assert isinstance(get_schedule("plateau", 10, 100), OnPlateau)
    own = Cosine(3)
    assert get_schedule(own, 10, 100) is own


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: get_schedule("linear", 1, 1), ArgumentError, "schedule must be one of 'step'.*got 'linear'"),
        (lambda: get_schedule(Cosine, 1, 1), DTypeError, "schedule must be a schedule such as"),
        (lambda: get_schedule(0.1, 1, 1), DTypeError, "schedule must be a schedule such as"),
        (lambda: WarmUp(5, then=0.1), DTypeError, "then must be a schedule"),
        (lambda: WarmUp(0), ArgumentError, "updates must be at least 1"),
        (lambda: StepDecay("3"), DTypeError, "every must be an integer"),
        (lambda: ExponentialDecay(0.0), ArgumentError, "factor must be a positive"),
        (lambda: Cosine(10, -1.0), ArgumentError, "lr_min must be finite and at least 0"),
        (lambda: OnPlateau(factor=1.5), ArgumentError, "factor must lie in 0 < factor < 1"),
        (lambda: OnPlateau(monitor=3), DTypeError, "monitor must be a name"),
        (lambda: checked_lr(0.0, Cosine(3)), ArgumentError, "Cosine.lr must be a positive"),
        (lambda: OnPlateau().observe(elman.History(loss=[1.0])), ArgumentError, "validation_loss.*which are .'loss'"),
    ],
)
def test_refusals(make, error, words):
    with pytest.raises(error, match=words):
        make()
