"""Reads the interceptors that copy messages sent to a destination of Classic.

That is `destinationInterceptors` in an `activemq.xml`, `destination_interceptors` in our policies.
"""

from collections.abc import Iterator

from amqsidecar.model.destination import DestinationKind
from amqsidecar.policy.classic_rules import (
    CompositeDestination,
    DestinationInterceptors,
    ForwardTo,
    MirroredQueues,
    VirtualTopic,
)
from amqsidecar.policy.option_reader import OptionReader
from amqsidecar.policy.option_table import read_options
from amqsidecar.policy_source.bean_values import DESTINATION_KINDS, BeanValues

INTERCEPTOR_WRAPPERS = {
    "virtualDestinationInterceptor": frozenset({"virtualDestinations"}),
    "compositeQueue": frozenset({"forwardTo"}),
    "compositeTopic": frozenset({"forwardTo"}),
    "filteredDestination": frozenset({"destination"}),
}
_COMPOSITE_KINDS = {
    "compositeQueue": DestinationKind.QUEUE,
    "compositeTopic": DestinationKind.TOPIC,
}


def read_interceptors(broker: BeanValues) -> DestinationInterceptors:
    """Return the interceptors that copy messages to a destination.

    Quirk (Classic 5.x): `useMirroredQueues` acts only where `destinationInterceptors` are not
    written. Source: org.apache.activemq.broker.BrokerService.createRegionBroker.
    """
    composites: list[CompositeDestination] = []
    virtual_topics: list[VirtualTopic] = []
    mirrored_queues: MirroredQueues | None = None
    temporary = broker.flag("useTempMirroredQueues", default=True) is True
    is_written = "destinationInterceptors" in broker.bean.values
    if not is_written and broker.flag("useMirroredQueues", default=False):
        mirrored_queues = MirroredQueues(temporary=temporary, source=broker.source)
    if not is_written and broker.flag("useVirtualTopics", default=True):
        virtual_topics.append(VirtualTopic())
    for one in broker.of("destinationInterceptors"):
        if one.bean.kind == "virtualDestinationInterceptor":
            composites += _composites(one)
            virtual_topics += _virtual_topics(one)
        elif one.bean.kind == "mirroredQueue":
            mirrored_queues = read_options(
                MirroredQueues, one, temporary=temporary, source=one.source
            )
        else:
            _warn_of_unknown(one)
    return DestinationInterceptors(
        composites=tuple(composites),
        virtual_topics=tuple(virtual_topics),
        mirrored_queues=mirrored_queues,
    )


def _virtual_topics(interceptor: BeanValues) -> Iterator[VirtualTopic]:
    for one in interceptor.of("virtualDestinations"):
        if one.bean.kind == "virtualTopic":
            # Quirk (Classic 5.x): the name of a virtual topic is `>` where none is written.
            destinations = one.named(DestinationKind.TOPIC, one.text("name", ">"), one.source)
            yield read_options(VirtualTopic, one, destinations=destinations, source=one.source)


def _composites(interceptor: BeanValues) -> Iterator[CompositeDestination]:
    for one in interceptor.of("virtualDestinations"):
        kind = _COMPOSITE_KINDS.get(one.bean.kind)
        if kind is not None:
            yield read_options(
                CompositeDestination,
                one,
                destinations=one.named(kind, one.text("name", ""), one.source),
                forward_to=tuple(_forwards(one)),
                source=one.source,
            )
        elif one.bean.kind != "virtualTopic":
            _warn_of_unknown(one)


def _forwards(composite: BeanValues) -> Iterator[ForwardTo]:
    for one in composite.of("forwardTo"):
        selector: str | None = None
        if one.bean.kind == "filteredDestination":
            selector = one.given("selector")
            if selector is None:
                # Quirk (Classic 5.x): without a selector it matches nothing.
                continue
            found = one.destinations()
        elif one.bean.kind in DESTINATION_KINDS:
            found = one.own_destinations()
        else:
            _warn_of_unknown(one)
            continue
        for destination in found:
            yield ForwardTo(destination=destination, selector=selector)


def _warn_of_unknown(interceptor: BeanValues) -> None:
    interceptor.warn(
        f"interceptor {interceptor.bean.kind or 'without a class'} is not known here and left out: "
        "whether it copies redeliveries is unknown"
    )


def read_interceptor_options(options: OptionReader) -> DestinationInterceptors:
    """Return the interceptors of a YAML policy; problems are noted in the reader."""
    composites = []
    for one in options.mappings("composites"):
        forwards = [forward for item in one.mappings("forward_to") for forward in _forward(item)]
        composites.append(
            read_options(
                CompositeDestination,
                one,
                destinations=one.pattern(),
                forward_to=tuple(forwards),
                source=one.source,
            )
        )
        one.finish()
    virtual_topics = []
    for one in options.mappings("virtual_topics"):
        virtual_topics.append(
            read_options(VirtualTopic, one, destinations=one.pattern(), source=one.source)
        )
        one.finish()
    mirrored_queues = None
    mirror = options.mapping("mirrored_queues")
    if mirror is not None:
        mirrored_queues = read_options(MirroredQueues, mirror, source=mirror.source)
        mirror.finish()
    options.finish()
    return DestinationInterceptors(
        # Why the condition: a problem is noted, and nothing can be matched without a name.
        composites=tuple(one for one in composites if one.destinations),
        virtual_topics=tuple(one for one in virtual_topics if one.destinations),
        mirrored_queues=mirrored_queues,
    )


def _forward(options: OptionReader) -> Iterator[ForwardTo]:
    selector = options.text("selector", "") or None
    for destination in options.pattern():
        yield ForwardTo(destination=destination, selector=selector)
    options.finish()
