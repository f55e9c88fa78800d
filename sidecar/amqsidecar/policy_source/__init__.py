"""Readers and writers of policies: the brokers' XML, connection URIs, and our own YAML."""
