"""The shell: connects, reconnects, drives the engine, and keeps the clock."""
