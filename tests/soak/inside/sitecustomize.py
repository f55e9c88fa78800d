"""Runs inside the watched sidecar: at SIGUSR1 it writes down what objects there are.

Python imports a module of this name by itself when its folder is in PYTHONPATH, so that what is
watched is the installed command and nothing else.
"""

import gc
import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path


def _write_down(_number: int, _frame: object) -> None:
    gc.collect()
    types = Counter(type(one).__qualname__ for one in gc.get_objects())
    path = Path(os.environ["SOAK_OBJECTS"])
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"blocks": sys.getallocatedblocks(), "types": types}))
    new.replace(path)


signal.signal(signal.SIGUSR1, _write_down)
