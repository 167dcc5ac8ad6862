"""Checks of arguments, and the messages about what is wrong. Compiled code checks nothing and relies on these checks.

Each message names the argument, says what it must be and what it was, and gives the likely remedy. The same mistake
raises the same class of error everywhere:

=================================================================================== =================================
what was given                                                                      raises
=================================================================================== =================================
another kind of thing: a string for a number, a float for an integer, a truth value
for either, integers for measurements, a masked array, an object of another package :class:`~elman.errors.DTypeError`
an array with other axes or lengths, a list of rows of unequal length               :class:`~elman.errors.ShapeError`
the right kind with a value outside what is allowed: too small, NaN, a name that is
not among the choices                                                               :class:`~elman.errors.ArgumentError`
=================================================================================== =================================
"""
