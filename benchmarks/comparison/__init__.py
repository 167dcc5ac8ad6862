"""Packages beside each other: one case in turns, rows of times, their tables."""
