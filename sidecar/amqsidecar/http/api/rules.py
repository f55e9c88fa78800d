"""The API's endpoints for rules: current rules, one case, and effects of other rules."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from amqsidecar.errors import ConfigError
from amqsidecar.http.access import HttpRefused
from amqsidecar.http.api.table import ApiEndpoint, Call
from amqsidecar.http.api.views import canonical
from amqsidecar.http.store_queries import QueryContext, StoreQueries
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
    """Rules to compare with those that act.

    Attributes:
        rules: a policy in YAML.
    """

    rules: str


class MessageRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message, and rules to compare with those that act.

    Attributes:
        message: row number or redelivery id.
        rules: a policy in YAML.
    """

    message: str
    rules: str


class Ruling:
    """Answers queries about rules."""

    def __init__(self, queries: StoreQueries) -> None:
        self._queries = queries

    def endpoints(self) -> Sequence[ApiEndpoint]:
        """Return its part of the table."""
        return [
            ApiEndpoint(
                path="/policies",
                summary="The rules that apply to each origin.",
                run=self._policies,
                answer=PolicyView,
            ),
            ApiEndpoint(
                path="/policies/explain",
                summary="The rules' decisions on a dead letter: now and at later deaths.",
                run=self._explain,
                answer=Forecast,
                query=CaseQuery,
            ),
            ApiEndpoint(
                method="POST",
                path="/policies/explain",
                summary="Decisions of other rules on a message; nothing is changed.",
                run=self._explain_message,
                answer=MessageEffect,
                body=MessageRules,
                problems={404: "Its origin is unknown."},
            ),
            ApiEndpoint(
                method="POST",
                path="/policies/effect",
                summary="Effect of other rules; nothing is changed.",
                run=self._effect,
                answer=PolicyEffect,
                body=OtherRules,
            ),
        ]

    async def _policies(self, call: Call) -> PolicyView:
        policies = self._queries.tools(call.caller).policies
        return await self._queries.ask(
            call.caller, lambda at: policy_view(at.store, policies, at.now_ms)
        )

    async def _explain(self, call: Call) -> Forecast:
        query: CaseQuery = call.query
        acting = self._queries.tools(call.caller).policies.acting()
        destination = parse_destination(canonical(query.destination))
        forecast = acting.forecast(
            DeadLetter(destination, query.redelivery_count, query.persistent, query.expired)
        )
        if forecast is None:
            raise HttpRefused(404, acting.source_at(destination))
        return forecast

    async def _effect(self, call: Call) -> PolicyEffect:
        policies, text = self._queries.tools(call.caller).policies, call.body.rules
        opens = self._queries.masking.may_probe(call.caller)
        try:
            return await self._queries.ask(
                call.caller, lambda at: effect_of(at.store, policies, text, at.now_ms, opens=opens)
            )
        except ConfigError as error:
            raise _unusable(error) from error

    async def _explain_message(self, call: Call) -> MessageEffect:
        policies, asked = self._queries.tools(call.caller).policies, call.body

        def explain(at: QueryContext) -> MessageEffect | None:
            opens = self._queries.may_probe(at, call.caller, asked.message)
            return effect_on(
                at.store, policies, asked.message, at.state.uid, asked.rules, opens=opens
            )

        try:
            found = await self._queries.ask(call.caller, explain)
        except ConfigError as error:
            raise _unusable(error) from error
        if found is None:
            raise HttpRefused(404, f"the origin of {asked.message} is unknown")
        return found


def _unusable(error: ConfigError) -> HttpRefused:
    return HttpRefused(400, "; ".join(str(problem) for problem in error.problems))
