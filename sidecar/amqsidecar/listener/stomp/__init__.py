"""STOMP through the listener."""
