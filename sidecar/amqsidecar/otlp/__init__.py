"""Traces, metrics and logs, to a receiver of OTLP."""
