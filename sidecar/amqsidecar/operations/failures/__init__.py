"""Groups of failures: found, described, annotated, and what ended them."""
