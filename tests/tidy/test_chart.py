"""The chart's schema has the chart's values and the sidecar's options."""

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from jsonschema import Draft7Validator
from pydantic import ValidationError

from amqsidecar.config.schema import Config, known_options

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "amqsidecar"


@pytest.fixture(scope="module")
def chart() -> ModuleType:
    spec = importlib.util.spec_from_file_location("chart", ROOT / "deploy" / "chart.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def options_schema() -> dict[str, Any]:
    text = (CHART / "values.schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)["properties"]["config"]
    return schema


def option_schema(key: str) -> dict[str, Any]:
    schema = options_schema()
    for name in key.split("."):
        assert schema["additionalProperties"] is False
        schema = schema["properties"][name]
    return schema


def test_the_schema_of_the_values_is_fresh(chart: ModuleType) -> None:
    written = (CHART / "values.schema.json").read_text(encoding="utf-8")
    assert written == chart.values_schema(), "run deploy/chart.py"


def test_every_value_has_help(chart: ModuleType) -> None:
    values = chart.read_values((CHART / "values.yaml").read_text(encoding="utf-8"))
    silent = [
        value.key
        for value in values
        if not (value.help or value.is_ignored or isinstance(value.default, dict))
    ]
    assert silent == []
    assert not [value.key for value in values if value.help and not value.help.endswith(".")]


def test_every_value_is_used(chart: ModuleType) -> None:
    templates = (path for path in (CHART / "templates").rglob("*") if path.is_file())
    text = "".join(path.read_text(encoding="utf-8") for path in templates)
    values = chart.read_values((CHART / "values.yaml").read_text(encoding="utf-8"))
    names = {value.key: value.key.rpartition(".")[2] for value in values}
    assert [key for key, name in names.items() if not re.search(rf"\.{name}\b", text)] == []


@pytest.mark.parametrize("key", known_options())
def test_the_schema_has_the_option_with_help_and_default(key: str) -> None:
    schema, field = option_schema(key), known_options()[key]
    assert field.description in schema["description"]
    default = json.loads(json.dumps(field.default, default=str))
    assert schema.get("default", default) == default
    if default is not None:
        Draft7Validator(schema).validate(default)


SAMPLES: tuple[Any, ...] = (
    True, 0, 1, -1, 3.5, 10**12, "", "text", "a b", "1", [], ["a b"], [1], {}, {"a": "b"}, {"a": 1},
)  # fmt: skip

TEXT_FOR_A_LIST = {"broker.sasl_mechanisms", "intake.allow_lossy", "redelivery.allow"}
"""Where the program takes one text for a list, and the schema asks for the list."""


@pytest.mark.parametrize("key", known_options())
def test_the_schema_refuses_nothing_that_the_program_takes(key: str) -> None:
    validator = Draft7Validator(option_schema(key))
    for sample in SAMPLES:
        if validator.is_valid(sample) or (sample == "" and key in TEXT_FOR_A_LIST):
            continue
        tree: Any = sample
        for name in reversed(key.split(".")):
            tree = {name: tree}
        try:
            Config.model_validate(tree)
        except ValidationError:
            continue
        pytest.fail(f"{key}: {sample!r}")


def test_the_lines_for_a_brokers_chart_are_those_that_are_tested() -> None:
    def lines(path: Path) -> list[str]:
        text = path.read_text(encoding="utf-8")
        return [line for line in text.splitlines() if 'include "amqsidecar.' in line]

    tested = ROOT / "tests" / "helm" / "broker" / "templates" / "statefulset.yaml"
    assert lines(CHART / "README.md") == lines(tested)
