"""Links find the tokens of other instances, over every wire, whichever wire has left them."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from time import time

from amqsidecar.broker import Link, LookSession, TakeSession
from amqsidecar.clock import SystemClock
from amqsidecar.config.load import load_config
from amqsidecar.engine.recovery import TOKEN_QUEUE_PREFIX
from amqsidecar.model.foreign_token import ForeignToken
from amqsidecar.wiring.links import LinkMaker
from support.brokers.real import ArtemisBroker, Broker, ClassicBroker
from support.waiting import PATIENCE_S, eventually


def urls_of(broker: Broker) -> Mapping[str, str]:
    urls = {"amqp": broker.amqp_url, "stomp": broker.stomp_url}
    if isinstance(broker, ClassicBroker):
        urls |= {"amqp": broker.amqp_jms_url, "openwire": broker.openwire_url}
    if isinstance(broker, ArtemisBroker):
        urls |= {"core": broker.core_url}
    return urls


def link_to(url: str, instance: str) -> Link:
    config = load_config(None, [f"broker.url={url}"], {})
    return LinkMaker(config, SystemClock(), rules_digest=f"{instance}'s").make(instance)


def begun(url: str, instance: str) -> TakeSession:
    link = link_to(url, instance).take(TOKEN_QUEUE_PREFIX + instance)
    link.token.create(7)
    assert link.token.take(PATIENCE_S) == 7
    return link


def tokens_of(link: LookSession, prefix: str) -> dict[str, ForeignToken]:
    tokens = link.foreign_tokens(())
    return {one.instance: one for one in tokens if one.instance.startswith(prefix)}


def shown(link: LookSession, prefix: str, _last: object) -> str:
    return str(tokens_of(link, prefix))


def are_held_as(link: LookSession, prefix: str, expected: Mapping[str, bool]) -> bool:
    return {name: one.is_held for name, one in tokens_of(link, prefix).items()} == expected


def have_their_digests(link: LookSession, prefix: str) -> bool:
    found = tokens_of(link, prefix)
    return all(one.rules_digest == f"{name}'s" for name, one in found.items())


def are_found_besides(link: LookSession, known: Sequence[str], others: set[str]) -> bool:
    found = {one.instance for one in link.foreign_tokens(known)}
    assert not found & set(known)
    return found >= others


def test_tokens_of_others_are_found_with_their_age_and_their_holder(
    broker: Broker, unique: str
) -> None:
    urls = urls_of(broker)
    began_ms = int(time() * 1000)
    with ExitStack() as stack:
        for wire, url in urls.items():
            begun(url, f"{unique}-{wire}-gone").close()
            stack.enter_context(closing(begun(url, f"{unique}-{wire}-works")))
        for wire, url in urls.items():
            link = stack.enter_context(closing(link_to(url, unique).look()))

            found = partial(tokens_of, link, unique)
            expected = {f"{unique}-{one}-gone": False for one in urls}
            expected |= {f"{unique}-{one}-works": True for one in urls}
            eventually(
                partial(are_held_as, link, unique, expected),
                what=f"all tokens over {wire}",
                last=partial(shown, link, unique),
            )
            eventually(
                partial(have_their_digests, link, unique),
                what=f"the digest of each one's rules over {wire}",
                last=partial(shown, link, unique),
            )
            for token in found().values():
                if not token.is_held:
                    assert token.sent_at_ms is not None, (wire, token)
                    assert began_ms - 1000 <= token.sent_at_ms <= time() * 1000 + 1000
            known = [one for one in expected if "gone" in one]
            others = set(expected) - set(known)
            eventually(
                partial(are_found_besides, link, known, others), what=f"the others over {wire}"
            )
