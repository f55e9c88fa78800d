"""Groups of failures: found, described, annotated, and solved."""
