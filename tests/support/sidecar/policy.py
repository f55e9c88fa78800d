"""Files of rules."""

from pathlib import Path


def write_policy(folder: Path, text: str) -> Path:
    """Write rules to a file of this folder and return it."""
    path = folder / "policy.yaml"
    path.write_text(text, encoding="utf-8")
    return path
