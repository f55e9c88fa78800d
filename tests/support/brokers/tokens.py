"""Artemis that takes the tokens of an OpenID provider, and its administrator's password."""

from support.brokers.real import ArtemisBroker
from support.versions import newest
from support.web.openid_provider import AUDIENCE, Provider

_LOGIN = """\
activemq {{
  org.apache.activemq.artemis.spi.core.security.jaas.OIDCLoginModule sufficient
    provider="{issuer}" audience="{audience}" rolesPaths="roles" maxClockSkew="0";
  org.apache.activemq.artemis.spi.core.security.jaas.PropertiesLoginModule sufficient
    org.apache.activemq.jaas.properties.user="artemis-users.properties"
    org.apache.activemq.jaas.properties.role="artemis-roles.properties";
}};
"""


class TokenArtemis(ArtemisBroker):
    """It checks a token again each second while a connection is in use."""

    def __init__(self, provider: Provider) -> None:
        """Prepare it to trust a provider that runs."""
        super().__init__(
            # Why this one: releases before 2.54.0 know no tokens.
            version=newest("artemis", "amqp").version,
            core="<security-invalidation-interval>1000</security-invalidation-interval>",
            acceptors={
                "tokens": "tcp://127.0.0.1:@PORT@?protocols=CORE,AMQP,STOMP;"
                "saslMechanisms=OAUTHBEARER,XOAUTH2,PLAIN"
            },
        )
        self._provider = provider

    def _prepare(self) -> None:
        super()._prepare()
        login = _LOGIN.format(issuer=self._provider.issuer, audience=AUDIENCE)
        (self.config_path.parent / "login.config").write_text(login, encoding="utf-8")
