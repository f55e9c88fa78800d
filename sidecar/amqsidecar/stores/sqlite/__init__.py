"""The schedule in one SQLite file."""
