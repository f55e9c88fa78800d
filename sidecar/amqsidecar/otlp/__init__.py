"""Attempts as spans, to a receiver of OTLP."""
