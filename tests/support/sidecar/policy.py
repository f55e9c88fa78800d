"""Files of rules."""

from pathlib import Path

FOUR_ATTEMPTS = """\
address_settings:
  - match: "#"
    dead_letter_address: DLQ
    max_delivery_attempts: 4
    redelivery_delay_ms: 100
"""
"""Rules of Artemis: three redeliveries, one soon after the other."""


def write_policy(folder: Path, text: str) -> Path:
    """Write rules to a file of this folder and return it."""
    path = folder / "policy.yaml"
    path.write_text(text, encoding="utf-8")
    return path
