"""The API's endpoints for rules: current rules, one case, and effects of other rules."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import msgspec
from msgspec import Meta

from amqsidecar.errors import ConfigError
from amqsidecar.http.access import HttpRefused
from amqsidecar.http.api.table import ApiTable, StoreCall
from amqsidecar.http.api.views import canonical
from amqsidecar.http.store_queries import QueryContext
from amqsidecar.model.dead_letter import DeadLetter
from amqsidecar.model.destination import parse_destination
from amqsidecar.operations.explain import Forecast
from amqsidecar.operations.policies import (
    MessageEffect,
    PolicyEffect,
    PolicyView,
    effect_of,
    effect_on,
    policy_view,
)


class CaseQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A dead letter to ask the rules about."""

    destination: Annotated[str, Meta(description="Its origin, such as `queue://orders`.")]
    redelivery_count: Annotated[
        int, Meta(description="Redeliveries so far, 0 = the first death.", ge=0, le=2**31 - 1)
    ] = 0
    persistent: bool = True
    expired: bool = False


class OtherRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rules to compare with the acting rules.

    Attributes:
        rules: a policy in YAML.
    """

    rules: str


class MessageRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message, and rules to compare with the acting rules.

    Attributes:
        message: row number or redelivery id.
        rules: a policy in YAML.
    """

    message: str
    rules: str


ruling = ApiTable()
"""Answers queries about rules."""


@ruling.get("/policies")
def _policies(call: StoreCall, at: QueryContext) -> PolicyView:
    """The rules that apply to each origin."""
    return policy_view(at.store, call.queries.tools(call.caller).policies, at.now_ms)


@ruling.get("/policies/explain", query=CaseQuery)
async def _explain(call: StoreCall) -> Forecast:
    """The rules' decisions on a dead letter: now and at later deaths."""
    query: CaseQuery = call.query
    acting = call.queries.tools(call.caller).policies.acting()
    destination = parse_destination(canonical(query.destination))
    forecast = acting.forecast(
        DeadLetter(destination, query.redelivery_count, query.persistent, query.expired)
    )
    if forecast is None:
        raise HttpRefused(404, acting.source_at(destination))
    return forecast


@ruling.post("/policies/explain", body=MessageRules, problems={404: "Its origin is unknown."})
def _explain_message(call: StoreCall, at: QueryContext) -> MessageEffect:
    """Decisions of other rules on a message; nothing is changed."""
    policies, asked = call.queries.tools(call.caller).policies, call.body
    opens = call.queries.may_probe(at, call.caller, asked.message)
    with _refusing_unusable():
        found = effect_on(at.store, policies, asked.message, at.state.uid, asked.rules, opens=opens)
    if found is None:
        raise HttpRefused(404, f"the origin of {asked.message} is unknown")
    return found


@ruling.post("/policies/effect", body=OtherRules)
def _effect(call: StoreCall, at: QueryContext) -> PolicyEffect:
    """Effect of other rules; nothing is changed."""
    policies, opens = (
        call.queries.tools(call.caller).policies,
        call.queries.masking.may_probe(call.caller),
    )
    with _refusing_unusable():
        return effect_of(at.store, policies, call.body.rules, at.now_ms, opens=opens)


@contextmanager
def _refusing_unusable() -> Iterator[None]:
    """Refuse rules that can't be used."""
    try:
        yield
    except ConfigError as error:
        problems = "; ".join(map(str, error.problems))
        raise HttpRefused(400, problems) from error
