"""Java's regular expressions, translated to Python's."""
