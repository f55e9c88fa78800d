"""Histories with a known truth, and what analyses them."""
