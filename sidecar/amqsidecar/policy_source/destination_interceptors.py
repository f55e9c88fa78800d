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
from amqsidecar.policy_source.bean_values import DESTINATION_KINDS, BeanOptions, BeanValues
from amqsidecar.policy_source.spring_beans import Bean

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


def read_interceptors(values: BeanValues, broker: Bean) -> DestinationInterceptors:
    """Return the interceptors that copy messages to a destination.

    Quirk (Classic 5.x): `useMirroredQueues` acts only where `destinationInterceptors` are not
    written. Source: org.apache.activemq.broker.BrokerService.createRegionBroker.
    """
    composites: list[CompositeDestination] = []
    virtual_topics: list[VirtualTopic] = []
    mirrored_queues: MirroredQueues | None = None
    temporary = values.flag(broker, "useTempMirroredQueues", default=True) is True
    written = broker.values.get("destinationInterceptors")
    if written is None and values.flag(broker, "useMirroredQueues", default=False):
        mirrored_queues = MirroredQueues(temporary=temporary, source=broker.source)
    if written is None and values.flag(broker, "useVirtualTopics", default=True):
        virtual_topics.append(VirtualTopic())
    for bean in values.beans.beans_of(written) if written else ():
        if bean.kind == "virtualDestinationInterceptor":
            composites += _composites(values, bean)
            virtual_topics += _virtual_topics(values, bean)
        elif bean.kind == "mirroredQueue":
            mirrored_queues = read_options(
                MirroredQueues,
                BeanOptions(values, bean),
                temporary=temporary,
                source=bean.source,
            )
        else:
            _warn_of_unknown(values, bean)
    return DestinationInterceptors(
        composites=tuple(composites),
        virtual_topics=tuple(virtual_topics),
        mirrored_queues=mirrored_queues,
    )


def _virtual_topics(values: BeanValues, interceptor: Bean) -> Iterator[VirtualTopic]:
    written = interceptor.values.get("virtualDestinations")
    for bean in values.beans.beans_of(written) if written else ():
        if bean.kind == "virtualTopic":
            # Quirk (Classic 5.x): the name of a virtual topic is `>` where none is written.
            name = values.text_or(bean, "name", ">")
            yield read_options(
                VirtualTopic,
                BeanOptions(values, bean),
                destinations=values.named(DestinationKind.TOPIC, name, bean.source),
                source=bean.source,
            )


def _composites(values: BeanValues, interceptor: Bean) -> Iterator[CompositeDestination]:
    written = interceptor.values.get("virtualDestinations")
    for bean in values.beans.beans_of(written) if written else ():
        if bean.kind in _COMPOSITE_KINDS:
            name = values.text_or(bean, "name", "")
            yield read_options(
                CompositeDestination,
                BeanOptions(values, bean),
                destinations=values.named(_COMPOSITE_KINDS[bean.kind], name, bean.source),
                forward_to=tuple(_forwards(values, bean)),
                source=bean.source,
            )
        elif bean.kind != "virtualTopic":
            _warn_of_unknown(values, bean)


def _forwards(values: BeanValues, composite: Bean) -> Iterator[ForwardTo]:
    written = composite.values.get("forwardTo")
    for bean in values.beans.beans_of(written) if written else ():
        selector: str | None = None
        if bean.kind == "filteredDestination":
            selector = values.text(bean, "selector")
            if selector is None:
                # Quirk (Classic 5.x): without a selector it matches nothing.
                continue
            found = values.destinations(bean)
        elif bean.kind in DESTINATION_KINDS:
            found = values.destinations_of(bean)
        else:
            _warn_of_unknown(values, bean)
            continue
        for destination in found:
            yield ForwardTo(destination=destination, selector=selector)


def _warn_of_unknown(values: BeanValues, bean: Bean) -> None:
    values.warn(
        bean.source,
        f"interceptor {bean.kind or 'without a class'} is not known here and left out: whether it "
        "copies redeliveries is unknown",
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
