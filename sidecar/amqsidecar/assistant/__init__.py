"""`amqsidecar mcp`: tools for assistants (Model Context Protocol), a client of the public API."""
