"""The AMQP link to Artemis."""
