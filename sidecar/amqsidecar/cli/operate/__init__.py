"""The commands that change waiting messages."""
