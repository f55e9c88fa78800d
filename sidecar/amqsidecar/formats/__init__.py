"""The wire formats: bytes to values and back, without input or output."""
