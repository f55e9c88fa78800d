"""Builds the running program: names the links, stores and journals that the settings ask for."""
