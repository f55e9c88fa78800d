"""Kept messages opened for people: shown and edited, on every wire."""
