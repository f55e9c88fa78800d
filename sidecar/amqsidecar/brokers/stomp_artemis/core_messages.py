"""Messages of non-STOMP clients, over STOMP on Artemis: listed, and counted where they stay."""

from collections.abc import Iterator

from amqsidecar.brokers.artemis.link_settings import ArtemisLinkSettings
from amqsidecar.brokers.artemis.management import ArtemisQuestions, of_queue
from amqsidecar.brokers.stomp_artemis.accepted_before import Suspects
from amqsidecar.brokers.stomp_artemis.selection import (
    MADE_BY_OTHERS,
    MADE_BY_STOMP,
    MEANINGS,
    TOO_LARGE,
    TOO_LARGE_BY_STOMP,
    UNSEEN,
    WITHHELD,
    ListedMessage,
    only,
    read_list,
    without,
)
from amqsidecar.brokers.stomp_artemis.subscriptions import (
    ArtemisSubscription,
    ArtemisSubscriptions,
    Stays,
)
from amqsidecar.model.left_behind import LeftBehind, Loss

_LOOK_EVERY_S = 1.0
_LOOK_PAUSES = 20
_FETCH_MAX = 100
_FETCH_LOOKS_MAX = 3
_LEFT_MAX = 2000


class UnreadQueue:
    """The state of a queue.

    Attributes:
        by_number: what stays in it, with `loss`, by the broker's numbers.
        too_large: how many STOMP made that a frame may not hold.
        forged: how many only seem to be made by STOMP, and are left out by their originals.
        unlisted: how many the management did not look at, at the last look.
        unseen: how many of these were so at the look before as well.
        waiting: how many were selected at the last look, and nothing was in hand.
        withheld: how many of these were so at the look before as well.
    """

    def __init__(self) -> None:
        self.by_number: dict[int, ListedMessage] = {}
        self.too_large = 0
        self.forged = 0
        self.unlisted = 0
        self.unseen = 0
        self.waiting = 0
        self.withheld = 0

    def counts(self, kept: int) -> Iterator[tuple[str, int]]:
        """Yield the reasons, each with the number of messages.

        Args:
            kept: how many are in hand for good since they are forged.
        """
        reasons = [one.loss for one in self.by_number.values()]
        reasons += [Loss.BODY_TYPE.value] * (self.forged + kept) + [TOO_LARGE] * self.too_large
        for reason in sorted(set(reasons)):
            yield reason, reasons.count(reason)
        for reason, count in ((UNSEEN, self.unseen), (WITHHELD, self.withheld)):
            if count:
                yield reason, count


class StompCoreFetcher:
    """Finds messages of each subscription that are whole although STOMP did not make them."""

    def __init__(
        self,
        subscriptions: ArtemisSubscriptions,
        suspects: Suspects,
        management: ArtemisQuestions,
        settings: ArtemisLinkSettings,
    ) -> None:
        self._subscriptions = subscriptions
        self._suspects = suspects
        self._management = management
        self._clock = settings.clock
        self._allowed = settings.allowed_losses
        self._look_at_s = 0.0
        self._left: dict[str, UnreadQueue] = {}

    def look_soon(self) -> None:
        """Make the next look due at once."""
        self._look_at_s = 0.0

    def look(self) -> None:
        """Release whole messages of other makers for reading; asks the broker at intervals."""
        now_s = self._clock.monotonic_s()
        if now_s < self._look_at_s:
            return
        for subscription in self._subscriptions.attached:
            subscription.looks += 1
            is_waited_for = bool(subscription.wanted) and subscription.looks <= _FETCH_LOOKS_MAX
            if not isinstance(subscription.fate, Stays) or is_waited_for:
                continue
            if subscription.has_strays:
                self._subscriptions.exchange(subscription, {})
            elif self._management.is_usable:
                self._look_into(subscription)
        # Why: the broker scans whole queues for it.
        ended_s = self._clock.monotonic_s()
        self._look_at_s = ended_s + max(_LOOK_EVERY_S, (ended_s - now_s) * _LOOK_PAUSES)

    def _look_into(self, subscription: ArtemisSubscription) -> None:
        left = self._left.setdefault(subscription.name, UnreadQueue())
        if subscription.queue.selector:
            self._count_waiting(subscription, left)
            return
        left.too_large = self._count(subscription, TOO_LARGE_BY_STOMP) or 0
        if subscription.excluded:
            left.forged = (
                self._count(subscription, f"{MADE_BY_STOMP} AND {only(subscription.excluded)}") or 0
            )
        counted = self._count(subscription, MADE_BY_OTHERS)
        listed = None if counted is None else self._list(subscription, left, counted)
        if counted is None or listed is None:
            return
        numbers = {one.number for one in listed}
        if len(numbers | left.by_number.keys()) == counted:
            held = self._subscriptions.held(subscription)
            self._suspects.clear(subscription.name, held, counted, numbers)
        for one in listed:
            if one.loss:
                self.leave(subscription, one)
        whole = {one.number: one for one in listed if not one.loss}
        known = {number: one for number, one in whole.items() if number in subscription.wanted}
        fresh = {number: one for number, one in whole.items() if number not in known}
        self._count_waiting(subscription, left)
        # Why two looks: what dies between two questions of one look is in one answer only.
        before, left.unlisted = left.unlisted, 0
        if not fresh:
            listed_or_left = len(numbers | left.by_number.keys())
            # Why: the list of ids is bounded; beyond the bound only the count is complete.
            is_kept = len(left.by_number) < _LEFT_MAX
            others = min(counted, listed_or_left) if is_kept else counted
            left.unlisted = self._count_unlisted(subscription, left, others)
        left.unseen = min(before, left.unlisted)
        if fresh or left.withheld:
            # Quirk (Artemis): a consumer may have passed messages of a group that another one had;
            # only a new one begins at the head again.
            # Why the known ones last: a message that does not come must not block others.
            most = min(_FETCH_MAX, self._subscriptions.share)
            self._subscriptions.exchange(
                subscription, dict(list({**fresh, **known}.items())[:most])
            )

    def _list(
        self, subscription: ArtemisSubscription, left: UnreadQueue, counted: int
    ) -> list[ListedMessage] | None:
        """Return messages of other makers, without those known to be left; None = not reported."""
        known = left.by_number
        if not counted:
            known.clear()
            return []
        originals = {one.original for one in known.values() if one.original is not None}
        found = self._ask_list(subscription, without(MADE_BY_OTHERS, originals))
        if found is None:
            return None
        is_full = len(known) >= _LEFT_MAX and counted > len(known)
        if known and not is_full and len({one.number for one in found} | known.keys()) != counted:
            # Why: some have the same original, or what was left is there no more.
            found = self._ask_list(subscription, MADE_BY_OTHERS)
            if found is None:
                return None
            there = {one.number for one in found}
            known = left.by_number = {key: one for key, one in known.items() if key in there}
        return [one for one in found if one.number not in known]

    def _ask_list(
        self, subscription: ArtemisSubscription, selector: str
    ) -> list[ListedMessage] | None:
        place = subscription.queue.destination
        answer = self._management.ask(of_queue(place, "listMessagesAsJSON", selector))
        return read_list(answer.value, self._allowed) if answer.is_ok and answer.value else None

    def _count(self, subscription: ArtemisSubscription, selector: str) -> int | None:
        place = subscription.queue.destination
        answer = self._management.ask(of_queue(place, "countMessages", selector))
        return int(answer.value) if answer.is_ok else None

    def _count_waiting(self, subscription: ArtemisSubscription, left: UnreadQueue) -> None:
        before, left.waiting = left.waiting, 0
        if not self._subscriptions.held(subscription):
            left.waiting = self._count(subscription, subscription.selector) or 0
        left.withheld = min(before, left.waiting)

    def _count_unlisted(
        self, subscription: ArtemisSubscription, left: UnreadQueue, others: int
    ) -> int:
        """Return how many messages the management does not list.

        Quirk (Artemis): it lists by a selector among the first 200 of a queue only, unless
        management-browse-page-size says otherwise. 2.44 counts so, too; 2.55 counts all.

        Args:
            subscription: to the queue.
            left: what stays in it.
            others: how many messages that STOMP did not make it has listed.
        """
        held = self._subscriptions.held(subscription)
        if not left.by_number or len(held) >= self._subscriptions.share:
            return 0
        total = self._management.message_count(subscription.name.rpartition("::")[2]) or 0
        seen = len(held) + subscription.kept + others + left.too_large + left.forged + left.waiting
        return max(0, total - seen)

    def leave(self, subscription: ArtemisSubscription, listed: ListedMessage) -> None:
        """Count a message, with its `loss`, as left behind."""
        by_number = self._left.setdefault(subscription.name, UnreadQueue()).by_number
        if len(by_number) < _LEFT_MAX:
            by_number[listed.number] = listed

    def left_behind(self) -> tuple[LeftBehind, ...]:
        """Return messages of the attached queues that are not taken, and why."""
        found: list[LeftBehind] = []
        for subscription in self._subscriptions.attached:
            queue = subscription.queue.destination
            if not self._management.is_usable:
                meaning = (
                    f"messages of other clients than STOMP are not taken: {MEANINGS['unknown']}"
                )
                missing = f"{meaning} ({self._management.why_unusable})"
                found.append(LeftBehind(queue, "body_type", 0, missing, at_least=True))
                continue
            left = self._left.get(subscription.name, UnreadQueue())
            found += [
                LeftBehind(
                    queue,
                    reason,
                    count,
                    MEANINGS[reason],
                    at_least=len(left.by_number) >= _LEFT_MAX,
                )
                for reason, count in left.counts(subscription.kept)
            ]
        return tuple(found)
