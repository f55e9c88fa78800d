"""Volumes, limits, namespaces, clocks, ports and certificates of the machine."""
