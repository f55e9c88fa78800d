"""Implementations of the store contract."""
