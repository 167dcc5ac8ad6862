"""Exceptions: what they also are, what they carry, and that they survive the way to another process."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

from elman import errors

BUILT_IN = {
    "ElmanError": Exception,
    "ShapeError": ValueError,
    "DTypeError": TypeError,
    "ArgumentError": ValueError,
    "ReadOnlyError": AttributeError,
    "MissingNameError": KeyError,
    "MissingAttributeError": AttributeError,
    "StateDictError": ValueError,
    "WriteError": OSError,
    "NonFiniteError": FloatingPointError,
    "MissingExtraError": ImportError,
}
"""The built-in exception that a caller may catch instead."""


def all_classes():
    classes = {name: c for name, c in vars(errors).items() if inspect.isclass(c) and issubclass(c, Exception)}
    return {name: c for name, c in classes.items() if not issubclass(c, Warning)}


def test_every_exception_is_listed_here():
    assert set(all_classes()) == set(BUILT_IN)


@pytest.mark.parametrize("name", BUILT_IN)
def test_an_exception_is_also_the_built_in_one(name):
    assert issubclass(all_classes()[name], errors.ElmanError)
    assert issubclass(all_classes()[name], BUILT_IN[name])


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "name",
    ["ElmanError", "ShapeError", "DTypeError", "ArgumentError", "ReadOnlyError", "MissingNameError", "StateDictError"],
)
def test_plain_exceptions_are_pickled_with_their_words(name, protocol):
    error = all_classes()[name]("x must have shape (T, B, D) = (5, 2, 3), got (5, 3)")
    again = pickle.loads(pickle.dumps(error, protocol))
    assert type(again) is type(error)
    assert str(again) == str(error)


def rebuilt(error):
    """The exception after every way a process pool or a debugger may take it."""
    yield copy.copy(error)
    yield copy.deepcopy(error)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        yield pickle.loads(pickle.dumps(error, protocol))


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"what": "loss"},
        {"what": "gradient", "layer": "rnn_l0", "gate": "h", "step": 0, "sample": 0},
        {"layer": "lstm_l1_reverse", "step": 17},
    ],
)
def test_a_non_finite_error_keeps_where_it_happened(attributes):
    error = errors.NonFiniteError("the state h must stay finite", **attributes)
    wanted = {"what": "state", "layer": None, "gate": None, "step": None, "sample": None} | attributes
    for each in (error, *rebuilt(error)):
        assert type(each) is errors.NonFiniteError
        assert str(each) == "the state h must stay finite"
        assert {name: getattr(each, name) for name in wanted} == wanted


def test_a_missing_extra_names_the_package_and_how_to_install_it():
    error = errors.MissingExtraError("matplotlib", "plot", "plotting")
    for each in (error, *rebuilt(error)):
        assert type(each) is errors.MissingExtraError
        assert str(each) == 'plotting needs matplotlib, which is not installed: pip install "elman[plot]"'
        assert (each.package, each.extra, each.purpose) == ("matplotlib", "plot", "plotting")


def test_the_place_is_given_by_keyword_only():
    with pytest.raises(TypeError):
        errors.NonFiniteError("message", "loss")
