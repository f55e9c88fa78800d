"""The HTTP server: console, API, metrics and health."""
