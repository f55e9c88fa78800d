"""Values of the chart in `cases.yaml`, by name."""

from pathlib import Path
from typing import Any

import msgspec

Values = dict[str, Any]

FILE: dict[str, Any] = msgspec.yaml.decode(Path(__file__).with_suffix(".yaml").read_bytes())
BROKER: Values = FILE["broker"]
POSTGRES: Values = FILE["postgres"]
MINIMAL: Values = FILE["minimal"]
SHARED: Values = FILE["shared"]
CASES: dict[str, Values] = FILE["cases"]
"""Values with which people install the chart."""
