"""The STOMP link to Artemis."""
