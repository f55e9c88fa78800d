"""What STOMP links to both brokers share."""
