"""Executes a plan of bulk redelivery in the cycles of a service."""
