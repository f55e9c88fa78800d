"""The schema of a bill of materials, from the package that CycloneDX publishes."""

import json
from importlib.metadata import distribution
from pathlib import Path
from urllib.parse import urljoin

from jsonschema import Draft7Validator
from referencing import Registry
from referencing.jsonschema import DRAFT7


def cyclonedx_schema() -> Draft7Validator:
    """Return the validator of version 1.5, with which ours say that they comply."""
    packaged = Path(str(distribution("cyclonedx-python-lib").locate_file("cyclonedx/schema/_res")))
    schemas = {
        f"{name}.SNAPSHOT.schema.json": json.loads(
            (packaged / f"{name}.SNAPSHOT.schema.json").read_text(encoding="utf-8")
        )
        for name in ("bom-1.5", "jsf-0.82", "spdx")
    }
    whole = schemas["bom-1.5.SNAPSHOT.schema.json"]
    # Why by the file's name: that is how one of them names another.
    registry = Registry().with_resources(
        [
            (urljoin(whole["$id"], name), DRAFT7.create_resource(one))
            for name, one in schemas.items()
        ]
    )
    return Draft7Validator(whole, registry=registry)
