"""Stores for tests, real and in memory."""
