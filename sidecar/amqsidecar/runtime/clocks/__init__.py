"""The clock that the engine reads, and what happens at set times."""
