"""Notices to people and their programs of matters for them, sent by HTTPS from an outbox."""
