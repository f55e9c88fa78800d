"""The commands that change what waits."""
