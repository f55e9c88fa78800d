"""The job that plans a redrive."""
