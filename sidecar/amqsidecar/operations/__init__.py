"""What an operator does, once, for every surface."""
