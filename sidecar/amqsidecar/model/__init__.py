"""Nouns: frozen values, no behaviour beyond checking themselves."""
