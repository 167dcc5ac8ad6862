"""Lyapunov exponents and covariant vectors."""
