"""The AMQP link to ActiveMQ Classic."""
