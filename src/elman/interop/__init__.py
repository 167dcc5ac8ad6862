"""Weights to and from other layouts. Every conversion is exact, or refuses and says what it cannot express."""

from . import textbook

__all__ = ["textbook"]
