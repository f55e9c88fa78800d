"""The schedule in PostgreSQL."""
