"""Links find the tokens of other instances, over every wire, whichever wire has left them."""

from collections.abc import Mapping
from contextlib import ExitStack, closing
from time import time

from amqsidecar.broker import ForeignToken, Link, LookSession, TakeSession
from amqsidecar.clock import SystemClock
from amqsidecar.config.load import load_config
from amqsidecar.engine.recovery import TOKEN_QUEUE_PREFIX
from amqsidecar.wiring.links import LinkMaker
from support.brokers import Broker, ClassicBroker
from support.waiting import eventually


def urls_of(broker: Broker) -> Mapping[str, str]:
    urls = {"amqp": broker.amqp_url, "stomp": broker.stomp_url}
    if isinstance(broker, ClassicBroker):
        urls |= {"amqp": broker.amqp_jms_url, "openwire": broker.openwire_url}
    return urls


def link_to(url: str, instance: str) -> Link:
    return LinkMaker(load_config(None, [f"broker.url={url}"], {}), SystemClock()).make(instance)


def begun(url: str, instance: str) -> TakeSession:
    link = link_to(url, instance).take(TOKEN_QUEUE_PREFIX + instance)
    link.create_token(7)
    assert link.take_token(20) == 7
    return link


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

            def found(finds: LookSession = link) -> dict[str, ForeignToken]:
                tokens = finds.foreign_tokens(())
                return {one.instance: one for one in tokens if one.instance.startswith(unique)}

            expected = {f"{unique}-{one}-gone": False for one in urls}
            expected |= {f"{unique}-{one}-works": True for one in urls}
            eventually(
                lambda found=found, expected=expected: (
                    {name: one.is_held for name, one in found().items()} == expected
                ),
                what=f"all tokens over {wire}",
                last=lambda _, found=found: str(found()),
            )
            for token in found().values():
                if not token.is_held:
                    assert token.sent_at_ms is not None, (wire, token)
                    assert began_ms - 1000 <= token.sent_at_ms <= time() * 1000 + 1000
            known = [one for one in expected if "gone" in one]
            left = {one.instance for one in link.foreign_tokens(known)}
            assert left >= set(expected) - set(known)
            assert not left & set(known)
