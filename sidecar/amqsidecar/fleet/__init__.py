"""`amqsidecar fleet`: one console over many sidecars, a client of their public API."""
