"""Every option and every metric has a help."""

import json
import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from amqsidecar.config.reference import options_markdown
from amqsidecar.config.schema import Config, known_options
from amqsidecar.telemetry.metrics import Metrics
from amqsidecar.telemetry.metrics_table import METRICS, MetricKind, MetricSpec, metrics_markdown


@pytest.mark.parametrize("key", known_options())
def test_an_option_has_help_a_unit_where_it_is_a_number_and_a_default(key: str) -> None:
    field = known_options()[key]
    assert field.description, f"{key} has no help"
    assert field.description.rstrip().endswith("."), f"{key}: the help is no sentence"
    assert not field.is_required()
    if field.annotation is int:
        assert field.json_schema_extra["unit"], f"{key} is a number without a unit"
    if key.endswith(("_s", "_ms", "_days")):
        assert field.json_schema_extra["unit"] in ("seconds", "milliseconds", "days")
    assert f"### `{key}`" in options_markdown()


def test_every_group_of_options_has_help() -> None:
    assert all(field.description for field in Config.model_fields.values())


def test_the_options_make_a_json_schema_that_is_closed() -> None:
    schema = json.loads(json.dumps(Config.model_json_schema()))
    groups = [found for found in schema["$defs"].values() if found["type"] == "object"]
    assert all(group["additionalProperties"] is False for group in groups)


@pytest.mark.parametrize("spec", METRICS, ids=lambda spec: spec.name)
def test_a_metric_is_named_as_prometheus_wants_it(spec: MetricSpec) -> None:
    assert re.fullmatch(r"amqsidecar_[a-z][a-z_]*[a-z]", spec.name)
    assert spec.name.endswith("_total") == (spec.kind is MetricKind.COUNTER)
    assert "milli" not in spec.name
    assert spec.help.endswith(".")
    assert spec.source
    assert bool(spec.bounds) == (spec.kind is MetricKind.HISTOGRAM)
    assert f"| `{spec.name}` |" in metrics_markdown()


def test_what_is_served_is_what_the_table_says() -> None:
    served = text_string_to_metric_families(Metrics().render()[0].decode())
    kinds = {
        family.name + "_total" * (family.type == "counter"): family.type
        for family in served
        if not family.name.startswith("process_")
    }
    assert kinds == {spec.name: spec.kind.value for spec in METRICS}
