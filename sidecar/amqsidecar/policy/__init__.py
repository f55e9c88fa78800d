"""Verbs: the brokers' redelivery and dead-letter rules as pure functions, to the letter."""
