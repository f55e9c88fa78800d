"""Common parts of STOMP links to both brokers."""
