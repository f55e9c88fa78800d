"""Subscribers of the event stream: metrics, log, health."""
