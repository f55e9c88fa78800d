"""The parts that AMQP links to both brokers share: connection, transaction, token, senders."""
