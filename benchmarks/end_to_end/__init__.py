"""Whole trainings: problems, packages, and what is read off their curves."""
