"""The version of amqsidecar."""

__version__ = "0.1.0"
