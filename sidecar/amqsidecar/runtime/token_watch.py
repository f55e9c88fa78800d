"""Looks whether the broker holds tokens of schedules that this sidecar doesn't know.

Such a token without a consumer is an orphan: no sidecar sends the messages of its schedule. It is
what a changed `store.url`, a renamed release or another volume leaves behind.
"""

import structlog

from amqsidecar.broker import LookSession
from amqsidecar.engine.foreign_tokens import (
    ORPHAN_MENDS,
    describe,
    foreign_sentence,
    has_other_rules,
    orphan_sentence,
    orphans,
)
from amqsidecar.errors import BrokerRefused, ConfigError, Problem
from amqsidecar.model.foreign_token import ForeignToken
from amqsidecar.model.schedule import StoreState
from amqsidecar.store import Store

log = structlog.get_logger("amqsidecar.service")


class TokenWatch:
    """Checks at each start and periodically, and reports changes."""

    def __init__(self, *, accepts_orphans: bool, rules_digest: str) -> None:
        self._rules_digest = rules_digest
        self._accepts_orphans = accepts_orphans
        self._told: frozenset[tuple[str, bool, str]] = frozenset()
        self._is_refused = False

    def check_start(self, link: LookSession, store: Store, state: StoreState) -> None:
        """See that a store that was never used does not begin beside an orphan.

        Raises:
            ConfigError: it would.
            LinkLost: the connection is gone.
        """
        known = _known(store, state)
        if self._accepts_orphans or state.token_created or len(known) > 1:
            return
        found = orphans(self._find(link, known))
        if found:
            what = f"this store is new, and {orphan_sentence(found)}; {ORPHAN_MENDS}"
            raise ConfigError([Problem("store.url", what)])

    def look(self, link: LookSession, store: Store, state: StoreState) -> tuple[ForeignToken, ...]:
        """Return the tokens of other schedules; logs those that are new since the last look.

        Raises:
            LinkLost: the connection is gone.
        """
        found = self._find(link, _known(store, state))
        for one in found:
            if _said_of(one) in self._told:
                continue
            if one.is_held:
                meaning = foreign_sentence(one, self._rules_digest)
                say = log.warning if has_other_rules(one, self._rules_digest) else log.info
                say("foreign_sidecar", queue=describe(one), meaning=meaning)
            else:
                meaning = f"{orphan_sentence([one])}; {ORPHAN_MENDS}"
                log.warning("orphaned_token", queue=describe(one), meaning=meaning)
        self._told = frozenset(map(_said_of, found))
        return found

    def _find(self, link: LookSession, known: frozenset[str]) -> tuple[ForeignToken, ...]:
        try:
            return link.foreign_tokens(known)
        except BrokerRefused as refused:
            if not self._is_refused:
                self._is_refused = True
                log.info("foreign_tokens_unknown", reason=str(refused))
            return ()


def _said_of(token: ForeignToken) -> tuple[str, bool, str]:
    return token.instance, token.is_held, token.rules_digest


def _known(store: Store, state: StoreState) -> frozenset[str]:
    shared = store.instances()
    return frozenset((state.instance, *(one.instance for one in shared)))
