"""Requests made out of the API's own document: each answer is documented."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import given, settings
from schemathesis import Case
from schemathesis.checks import load_all_checks
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import positive_data_acceptance
from schemathesis.specs.openapi.schemas import OpenApiSchema

from support.web.site import Site, running_site
from support.wires.fuzz import fuzz

load_all_checks()

# Why no more at length: each of some thirty endpoints gets as many.
some = settings(fuzz, max_examples=min(fuzz.max_examples, 200))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running_site(tmp_path_factory.mktemp("site")) as running:
        yield running


@pytest.fixture(scope="module")
def document(site: Site) -> OpenApiSchema:
    found = schemathesis.openapi.from_dict(site.client("token").get("/api/v1/openapi.json").json())
    found.config.update(base_url=f"http://{site.address}")
    # Why without events: that answer has no end.
    asked = found.exclude(path="/api/v1/events")
    assert isinstance(asked, OpenApiSchema)
    return asked


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_every_answer_is_documented(site: Site, document: OpenApiSchema, method: str) -> None:
    who = {"Authorization": site.client("token").headers["Authorization"]}
    operations = []
    for one in document.include(method=method).get_all_operations():
        assert isinstance(one, Ok)
        operations.append(one.ok())
    assert len(operations) > 8
    for operation in operations:

        @some
        @given(operation.as_strategy())
        def check(case: Case[Any]) -> None:
            # Why not that check: no schema tells which names, rules and edits make sense.
            case.call_and_validate(headers=who, excluded_checks=[positive_data_acceptance])

        check()
