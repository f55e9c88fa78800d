"""Makes the link of a configuration: the URL's scheme gives the wire, the broker the product."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

from amqsidecar.broker import BrokerKind, LookSession
from amqsidecar.brokers.artemis.link_settings import ArtemisLinkSettings
from amqsidecar.brokers.classic.link_settings import ClassicLinkSettings, FrameLimit
from amqsidecar.brokers.classic.room import Rooms
from amqsidecar.brokers.classic.statistics import AskStatistics
from amqsidecar.brokers.connection.bearer_tokens import BearerTokens, token_in_file
from amqsidecar.brokers.connection.credentials import Credentials, Password
from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.clock import Clock, SystemClock
from amqsidecar.config.broker_url import BrokerUrl
from amqsidecar.config.load import check_wire, has_amqp
from amqsidecar.config.schema import Config
from amqsidecar.config.secrets import revealed, secret_in
from amqsidecar.config.sections.broker import BrokerOptions
from amqsidecar.config.sections.intake import Producers
from amqsidecar.config.tls_context import tls_context
from amqsidecar.engine import crash_points
from amqsidecar.engine.broker_held_queues import INSTANCE, NOT_KEPT
from amqsidecar.engine.crash_points import CrashPoint
from amqsidecar.engine.judging.dead_letter_names import DeadLetterNames
from amqsidecar.errors import BrokerRefused, ConfigError, LinkLost, Problem
from amqsidecar.formats.classic_death import always_keeps
from amqsidecar.model.send_terms import ResendEffect
from amqsidecar.policy.classic_rules import ClassicRules, VirtualTopic
from amqsidecar.policy.dead_letter_decider import DeadLetterDecider
from amqsidecar.schedule import ShowsSchedule
from amqsidecar.trials import ExaminedLink


def broker_tokens(options: BrokerOptions, clock: Clock) -> Sequence[BearerTokens]:
    """Return the tokens of these options, none or one; nothing is read yet."""
    if options.token_file is not None:
        return [token_in_file(_reader(options.token_file, "broker.token_file"), clock)]
    oidc = options.oidc
    is_key = oidc.client_key_file is not None
    proof_file = oidc.client_key_file if is_key else oidc.client_secret_file
    if not oidc.issuer or proof_file is None:
        return []
    # Why here: only this needs the libraries of OpenID Connect.
    from amqsidecar.brokers.connection.client_credentials import (  # noqa: PLC0415
        OidcClient,
        tokens_of_provider,
    )

    name = "client_key_file" if is_key else "client_secret_file"
    client = OidcClient(
        issuer=oidc.issuer,
        client_id=oidc.client_id,
        proof=_reader(proof_file, f"broker.oidc.{name}"),
        is_key=is_key,
        scopes=oidc.scopes,
        audience=oidc.audience,
    )
    return [tokens_of_provider(client, clock)]


def _reader(path: Path, key: str) -> Callable[[], str]:
    return lambda: secret_in(path, key).reveal()


if TYPE_CHECKING:
    from amqsidecar.brokers.amqp_artemis.link import AmqpArtemisLink
    from amqsidecar.brokers.artemis_pair.link import ArtemisPairLink
    from amqsidecar.brokers.artemis_pair.second_wire import SecondWireMemory
    from amqsidecar.brokers.core_artemis.link import CoreArtemisLink

# Why the imports in functions: a sidecar speaks one wire, and starts faster without the others.


class DelayingLook(LookSession, ShowsSchedule, Protocol):
    """A read-only session at a broker that keeps waiting messages."""


class DelayingLink(Protocol):
    """Opens such sessions; see `broker.Link`."""

    def look(self) -> DelayingLook:
        """See `Link.look`."""
        ...


class LinkMaker:
    """Makes links to the current one of the brokers of `broker.url`; each is not yet opened."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        crash_point: CrashPoint = crash_points.no_crash,
        rules: ClassicRules | None = None,
        rules_digest: str = "",
    ) -> None:
        """Prepare.

        Args:
            config: addresses and options of the brokers.
            crash_point: called with the point of a transaction that a link has reached.
            rules: of the broker: where the messages of a dead-letter queue died, and which are
                kept; None = none are given.
            rules_digest: of the rules that decide, shown to other sidecars by the token.

        Raises:
            ConfigError: the library of the wire is not installed.
        """
        if problems := check_wire(config):
            raise ConfigError(problems)
        self._rules = rules
        self._rules_digest = rules_digest
        self._keeps_non_persistent = (
            always_keeps
            if rules is None or not rules.dead_letter.is_known
            else DeadLetterDecider(rules.dead_letter).keeps_non_persistent
        )
        self._config = config
        self._clock = clock
        self._crash_point = crash_point
        self._number = 0
        # Why here: a message that broke one STOMP link would break the next one, too.
        self._unreadable: dict[str, str] = {}
        self._unreadable_told = 0
        self._rooms = Rooms()
        self._frame_limit = FrameLimit()
        # Why one: it is renewed for all links, also for links of other threads.
        self._tokens = broker_tokens(config.broker, SystemClock())
        self._second_wires: dict[str, SecondWireMemory] = {}

    @property
    def count(self) -> int:
        """How many brokers take over from each other."""
        return len(self._config.broker.url)

    @property
    def current(self) -> str:
        """The URL of the current one, without its password."""
        return str(self._config.broker.url[self._number])

    def go_on(self) -> None:
        """Make the next broker current; the first after the last."""
        self._number = (self._number + 1) % self.count

    def find_answering(self, instance: str) -> None:
        """Make the first broker that answers current, or the last broker if none answers.

        Raises:
            ConfigError, BrokerRefused: as `make`.
        """
        for _ in range(self.count - 1):
            with suppress(LinkLost):
                self.make(instance).look().close()
                return
            self.go_on()

    def has_learned(self) -> bool:
        """Return, once, whether the last link found a message that the next one skips."""
        told, self._unreadable_told = self._unreadable_told, len(self._unreadable)
        return self._unreadable_told > told

    def login_refused(self) -> None:
        """Log in with other tokens the next time, where there are any."""
        for tokens in self._tokens:
            tokens.refused()

    def login_outdated(self, since_s: float) -> bool:
        """Return whether a link that was up then should end, so that the next one logs in again."""
        return any(tokens.outdated(since_s) for tokens in self._tokens)

    def make(self, instance: str) -> ExaminedLink:
        """Return a link for an instance, to the product that answers at the URL.

        Raises:
            ConfigError: the password or a certificate can't be read, or the schedule is shared and
                the wire can't do that.
            LinkLost: AMQP and STOMP only, when the product has to be asked: it can't be reached.
                Each wire: the provider of tokens can't.
            BrokerRefused: as above, if it refuses us.
        """
        url = self._config.broker.url[self._number]
        if self._kind(url) is BrokerKind.ARTEMIS:
            settings = self._for_artemis(instance)
            is_stomp = url.scheme.startswith("stomp")
            return self._stomp_artemis(settings) if is_stomp else self._artemis(url, settings)
        classic = self._for_classic(instance)
        if url.scheme.startswith("openwire"):
            from amqsidecar.brokers.openwire.link import OpenWireLink  # noqa: PLC0415 - as above

            return OpenWireLink(classic)
        if url.scheme.startswith("amqp"):
            from amqsidecar.brokers.amqp_classic.link import AmqpClassicLink  # noqa: PLC0415

            return AmqpClassicLink(classic)
        from amqsidecar.brokers.stomp_classic.link import StompClassicLink  # noqa: PLC0415

        return StompClassicLink(classic)

    def make_delaying(self) -> DelayingLink:
        """Return a link to a broker that keeps waiting messages.

        Raises:
            ConfigError, LinkLost: as `make`.
            BrokerRefused: as `make`; or this broker can't keep it over this wire.
        """
        url = self._config.broker.url[self._number]
        kind = self._kind(url)
        if kind is BrokerKind.CLASSIC or url.scheme.startswith("stomp"):
            raise BrokerRefused(NOT_KEPT[kind])
        return self._artemis(url, self._for_artemis(INSTANCE))

    def _kind(self, url: BrokerUrl) -> BrokerKind:
        if url.scheme.startswith("openwire"):
            return BrokerKind.CLASSIC
        if url.scheme.startswith(("core", "artemis")):
            return BrokerKind.ARTEMIS
        ask = self._ask_over_amqp if url.scheme.startswith("amqp") else self._ask_over_stomp
        return self._config.broker.expected_kind or ask(self._endpoint())

    def _artemis(
        self, url: BrokerUrl, settings: ArtemisLinkSettings
    ) -> "CoreArtemisLink | AmqpArtemisLink | ArtemisPairLink":
        """Return a link over Core or AMQP; `artemis:` = both, where AMQP's library is installed."""
        if url.scheme.startswith("amqp"):
            from amqsidecar.brokers.amqp_artemis.link import AmqpArtemisLink  # noqa: PLC0415

            return AmqpArtemisLink(settings)
        from amqsidecar.brokers.core_artemis.link import CoreArtemisLink  # noqa: PLC0415

        if url.scheme.startswith("core"):
            return CoreArtemisLink(settings)
        if not has_amqp():
            why = 'AMQP needs pip install "amqsidecar[amqp]"'
            return CoreArtemisLink(replace(settings, why_amqp_left=lambda: why))
        from amqsidecar.brokers.amqp.knock import AmqpKnock  # noqa: PLC0415
        from amqsidecar.brokers.amqp_artemis.link import AmqpArtemisLink  # noqa: PLC0415
        from amqsidecar.brokers.artemis_pair.link import ArtemisPairLink  # noqa: PLC0415
        from amqsidecar.brokers.artemis_pair.second_wire import (  # noqa: PLC0415
            SecondWire,
            SecondWireMemory,
        )

        endpoint = settings.endpoint
        # Why not by the number: another thread may have gone on to the next broker.
        memory = self._second_wires.setdefault(endpoint.place, SecondWireMemory())
        wire = SecondWire(lambda: AmqpKnock(endpoint), endpoint.place, self._clock, memory)
        return ArtemisPairLink(
            CoreArtemisLink(replace(settings, why_amqp_left=wire.why_left)),
            AmqpArtemisLink(replace(settings, is_own_only=True)),
            second_wire=wire,
            clock=self._clock,
            crash_point=self._crash_point,
        )

    def _stomp_artemis(self, settings: ArtemisLinkSettings) -> ExaminedLink:
        from amqsidecar.brokers.stomp_artemis.link import StompArtemisLink  # noqa: PLC0415

        if self._config.store.is_shared:
            # Why: Artemis acknowledges over STOMP after the commit, one by one. What was committed
            # and not acknowledged yet comes to the others when we die, as a new dead letter.
            what = (
                "is shared with other sidecars, and over STOMP Artemis accepts dead letters "
                "outside its transactions, so some would be sent twice: use artemis:// in "
                "broker.url, or a schedule of one sidecar"
            )
            raise ConfigError([Problem("store.url", what)])
        return StompArtemisLink(settings)

    def _for_artemis(self, instance: str) -> ArtemisLinkSettings:
        return ArtemisLinkSettings(
            self._endpoint(),
            clock=self._clock,
            instance=instance,
            final_suffix=self._config.redelivery.final_suffix,
            crash_point=self._crash_point,
            rules_digest=self._rules_digest,
            allowed_effects=self._config.redelivery.allow,
            allowed_losses=frozenset(self._config.intake.allow_lossy),
        )

    def _for_classic(self, instance: str) -> ClassicLinkSettings:
        intake, redelivery = self._config.intake, self._config.redelivery
        return ClassicLinkSettings(
            self._endpoint(),
            clock=self._clock,
            instance=instance,
            final_suffix=redelivery.final_suffix,
            crash_point=self._crash_point,
            rules_digest=self._rules_digest,
            keeps_non_persistent=self._keeps_non_persistent,
            ask_counters=self._ask_counters(),
            virtual_topics=self._virtual_topics,
            demands_subscribers=ResendEffect.DROP not in redelivery.allow,
            rooms=self._rooms,
            allowed_losses=frozenset(intake.allow_lossy),
            names=DeadLetterNames(self._rules, intake.origin),
            amqp_producers_only=intake.producers is Producers.AMQP,
            unreadable=self._unreadable,
            frame_limit=self._frame_limit,
        )

    @property
    def _virtual_topics(self) -> tuple[VirtualTopic, ...]:
        interceptors = None if self._rules is None else self._rules.interceptors
        is_known = interceptors is not None and interceptors.are_known
        return interceptors.virtual_topics if interceptors and is_known else (VirtualTopic(),)

    def _ask_counters(self) -> AskStatistics | None:
        options = self._config.broker
        if not options.jolokia_url:
            return None
        from amqsidecar.brokers.classic.jolokia import JolokiaCounters  # noqa: PLC0415 - as above

        uses_tls = options.jolokia_url.startswith("https:")
        tls = tls_context(options.tls) if uses_tls else None
        return JolokiaCounters(
            options.jolokia_url, password=lambda: revealed(options.jolokia_password()), tls=tls
        ).ask

    def _endpoint(self) -> Endpoint:
        options, url = self._config.broker, self._config.broker.url[self._number]
        credentials = self._credentials(url)
        # Why: unreadable files are reported before a connection is made.
        credentials.secret()
        return Endpoint(
            url.host,
            url.port,
            user=url.user,
            credentials=credentials,
            tls=tls_context(options.tls) if url.uses_tls else None,
            mechanisms=self._mechanisms(url),
            connect_timeout_s=options.connect_timeout_s,
            idle_timeout_s=options.idle_timeout_s,
            others=tuple((other.host, other.port) for other in options.url if other != url),
        )

    def _credentials(self, url: BrokerUrl) -> Credentials:
        for tokens in self._tokens:
            return tokens
        return Password(lambda: revealed(self._config.broker.password(url)))

    def _mechanisms(self, url: BrokerUrl) -> tuple[str, ...]:
        if not url.may_speak_amqp:
            return ()
        from amqsidecar.brokers.amqp.sasl import mechanisms_for  # noqa: PLC0415 - as above

        options = self._config.broker
        return mechanisms_for(
            has_user=url.user is not None,
            has_token=options.has_token,
            has_certificate=url.uses_tls and options.tls.cert_file is not None,
            allowed=[one.value for one in options.sasl_mechanisms],
        )

    def _ask_over_stomp(self, endpoint: Endpoint) -> BrokerKind:
        """Return the product that answers over STOMP, by a separate connection."""
        from amqsidecar.brokers.stomp.connection import StompConnection  # noqa: PLC0415

        connection = StompConnection(endpoint, self._clock)
        connection.disconnect(endpoint.connect_timeout_s)
        if connection.server.startswith("ActiveMQ-Artemis/"):
            return BrokerKind.ARTEMIS
        if connection.server.startswith("ActiveMQ/"):
            return BrokerKind.CLASSIC
        raise BrokerRefused(
            f"{endpoint.place} is {connection.server or 'an unknown product'}, neither Apache "
            "Artemis nor ActiveMQ Classic"
        )

    def _ask_over_amqp(self, endpoint: Endpoint) -> BrokerKind:
        """Return the product that answers over AMQP, by a separate connection."""
        from amqsidecar.brokers.amqp.connection import AmqpConnection  # noqa: PLC0415

        connection = AmqpConnection(endpoint, self._clock, f"amqsidecar-asks-{uuid4().hex[:12]}")
        try:
            product = connection.remote_properties().get("product", "")
        finally:
            connection.close()
        if "artemis" in product.lower():
            return BrokerKind.ARTEMIS
        if "activemq" in product.lower():
            return BrokerKind.CLASSIC
        raise BrokerRefused(
            f"{endpoint.place} is {product or 'an unknown product'}, neither Apache Artemis "
            "nor ActiveMQ Classic"
        )


def look_now(links: LinkMaker, instance: str) -> LookSession:
    """Return a session at the broker that a service is using now.

    Raises:
        LinkLost: it can't be reached, or the file of a secret can't be read.
        BrokerRefused: it refuses us.
    """
    try:
        return links.make(instance).look()
    except ConfigError as error:
        # Why: a mounted secret is gone for a moment while it is replaced.
        raise LinkLost(str(error)) from error


def look_at_any(links: LinkMaker, instance: str) -> LookSession:
    """Return a session at the first broker that answers.

    Raises:
        LinkLost: none does.
        ConfigError, BrokerRefused: as `LinkMaker.make`.
    """
    links.find_answering(instance)
    return links.make(instance).look()
