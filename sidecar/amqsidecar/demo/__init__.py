"""`amqsidecar demo`: real messages die on a real broker, wait, and come back."""
