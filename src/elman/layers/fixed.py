"""Objects whose options are fixed when they are built: assigning one later would have no effect."""

from __future__ import annotations

from difflib import get_close_matches
from functools import wraps
from inspect import signature
from typing import Any, ClassVar

from ..errors import ReadOnlyError


class Fixed:
    """Base of objects whose options cannot be changed once they are built.

    Sizes, memory and the choice of kernels follow from the options, so assigning to an option would have no effect, nor
    would assigning to a misspelt one. Both are refused. What takes effect can be assigned: methods, properties with a
    setter, what a class lists in ``settable``, and names with a leading underscore, in which a subclass may keep state
    that changes. In its own ``__init__`` a subclass may set any attribute.
    """

    settable: ClassVar[tuple[str, ...]] = ()
    """Names of attributes that may be assigned at any time."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Make the constructor mark what it has built; a metaclass would hide the constructor's signature."""
        super().__init_subclass__(**options)
        if "__init__" not in cls.__dict__:
            return
        inner = cls.__init__

        @wraps(inner)
        def init(self: Fixed, *args: Any, **kwargs: Any) -> None:
            inner(self, *args, **kwargs)
            if type(self).__init__ is init:  # else the constructor of a subclass is still running
                self.__dict__["_built"] = True

        cls.__init__ = init  # type: ignore[assignment, method-assign]

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute, or refuse.

        Raises
        ------
        ReadOnlyError
            After the constructor, for an option or a name that this object does not have.
        """
        if "_built" not in self.__dict__ or name[0] == "_" or self._takes(name):
            object.__setattr__(self, name, value)
            return
        raise ReadOnlyError(self._refusal(name, value))

    def __delattr__(self, name: str) -> None:
        """Delete an attribute that may be assigned, or refuse.

        Raises
        ------
        ReadOnlyError
            As for assigning it.
        """
        if name[0] != "_" and name not in self.settable and not callable(getattr(type(self), name, None)):
            raise ReadOnlyError(f"{name} of {type(self).__name__} cannot be deleted: build a new one")
        object.__delattr__(self, name)

    def _takes(self, name: str) -> bool:
        own = getattr(type(self), name, None)
        return name in self.settable or callable(own) or getattr(own, "fset", None) is not None

    def _refusal(self, name: str, value: Any) -> str:
        kind, options = type(self).__name__, list(signature(type(self)).parameters)
        if name in ("params", "theta", "parameters"):
            return (
                f"{name} of {kind} cannot be replaced: write into it in place, such as theta[:] = values, or "
                "params[name][...] = values, or use load_state_dict"
            )
        if not hasattr(self, name) and name not in options:
            near = get_close_matches(name, [*options, *(n for n in dir(self) if n[0] != "_")], 1)
            meant = f"; did you mean {near[0]}?" if near else ""
            return f"{kind} has no attribute {name!r}, and nothing would read it{meant}"
        how = f"{kind}(..., {name}={value!r})" if name in options else f"{kind}(...)"
        return (
            f"{name} of {kind} is fixed when it is built, and assigning it would compute nothing: make a new one, "
            f"{how}, and where the shapes allow it take over the weights: new.load_state_dict(dict(old.state_dict()))"
        )
