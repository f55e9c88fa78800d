"""Links: one broker contract, one module family per wire."""
