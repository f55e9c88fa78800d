"""What all end-to-end tests share."""

from support.sidecar.logs import show_sidecar_logs

__all__ = ["show_sidecar_logs"]
