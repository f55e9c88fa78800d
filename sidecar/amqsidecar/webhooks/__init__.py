"""Messages to people and their programs: what needs them, sent over HTTPS out of an outbox."""
