"""AMQP through the listener."""
