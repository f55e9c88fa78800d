"""Kept messages opened for people: shown and edited, whatever wire they came over."""
