"""The STOMP link to ActiveMQ Classic."""
