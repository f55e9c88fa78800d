"""Renders whole configuration files for both brokers.

A rendered file holds marks such as `@OPENWIRE_PORT@` and `@DATA@`; the broker that is started with
it puts its own ports and data folder in their place, so that one text serves many brokers.
"""

from collections.abc import Mapping

USER = "admin"
PASSWORD = "admin"

STOCK_TOPIC_POLICY = """
<policyEntry topic=">">
  <pendingMessageLimitStrategy>
    <constantPendingMessageLimitStrategy limit="1000"/>
  </pendingMessageLimitStrategy>
</policyEntry>
"""
STOCK_CONNECTOR_OPTIONS = "maximumConnections=1000&amp;wireFormat.maxFrameSize=104857600"
CLASSIC_CONNECTORS: Mapping[str, str] = {
    "openwire": f"tcp://127.0.0.1:@OPENWIRE_PORT@?{STOCK_CONNECTOR_OPTIONS}",
    "stomp": f"stomp://127.0.0.1:@STOMP_PORT@?{STOCK_CONNECTOR_OPTIONS}",
    "amqp": f"amqp://127.0.0.1:@AMQP_PORT@?{STOCK_CONNECTOR_OPTIONS}",
    "amqp-jms": (
        f"amqp://127.0.0.1:@AMQP_JMS_PORT@?transport.transformer=jms&amp;{STOCK_CONNECTOR_OPTIONS}"
    ),
}

_CLASSIC = """\
<?xml version="1.0" encoding="UTF-8"?>
<beans xmlns="http://www.springframework.org/schema/beans"
       xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
       xsi:schemaLocation="http://www.springframework.org/schema/beans
         http://www.springframework.org/schema/beans/spring-beans.xsd
         http://activemq.apache.org/schema/core
         http://activemq.apache.org/schema/core/activemq-core.xsd">
{beans}
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="{broker_name}"
          dataDirectory="@DATA@" persistent="{persistent}"
          schedulerSupport="{scheduler_support}" {broker_attributes}>
    <destinationPolicy>
      <policyMap>
        <policyEntries>
{destination_policy}
        </policyEntries>
      </policyMap>
    </destinationPolicy>
    <managementContext>
      <managementContext createConnector="false"/>
    </managementContext>
{persistence}
{plugins}
    <systemUsage>
      <systemUsage>
        <jobSchedulerUsage>
          <jobSchedulerUsage limit="{store_limit}"/>
        </jobSchedulerUsage>
        <memoryUsage>
          <memoryUsage percentOfJvmHeap="70"/>
        </memoryUsage>
        <storeUsage>
          <storeUsage limit="{store_limit}"/>
        </storeUsage>
        <tempUsage>
          <tempUsage limit="{temp_limit}"/>
        </tempUsage>
      </systemUsage>
    </systemUsage>
    <transportConnectors>
{connectors}
    </transportConnectors>
  </broker>
</beans>
"""

_SIMPLE_AUTHENTICATION = f"""
<simpleAuthenticationPlugin anonymousAccessAllowed="false">
  <users>
    <authenticationUser username="{USER}" password="{PASSWORD}" groups="admins,users"/>
  </users>
</simpleAuthenticationPlugin>
"""


def classic_xml(
    *,
    plugins: str = "",
    destination_policy: str = STOCK_TOPIC_POLICY,
    scheduler_support: bool = False,
    connectors: Mapping[str, str] = CLASSIC_CONNECTORS,
    persistent: bool = True,
    kahadb_attributes: str = "",
    authentication: bool = False,
    broker_name: str = "localhost",
    broker_attributes: str = "",
    beans: str = "",
    store_limit: str = "4 gb",
    temp_limit: str = "1 gb",
) -> str:
    """Return a whole activemq.xml: the stock file without web console, plus the requested parts.

    Args:
        plugins: children of `<plugins>`, in the broker's order.
        destination_policy: children of `<policyEntries>`; replaces the stock topic entry.
        connectors: URI by name, as XML text; marks such as `@OPENWIRE_PORT@` become free ports.
        authentication: admit only admin with password admin; the stock broker needs no log-in.
        broker_attributes: further attributes of `<broker>`, as XML text.
        beans: Spring beans before `<broker>`.
        store_limit: the broker lowers it by itself on a small disk.
    """
    if authentication:
        plugins = _SIMPLE_AUTHENTICATION + plugins
    return _CLASSIC.format(
        beans=beans,
        broker_name=broker_name,
        broker_attributes=broker_attributes,
        persistent=str(persistent).lower(),
        scheduler_support=str(scheduler_support).lower(),
        destination_policy=destination_policy.strip(),
        plugins=f"    <plugins>\n{plugins.strip()}\n    </plugins>" if plugins.strip() else "",
        # Why syncs: without, KahaDB answers before it writes, and kill -9 loses what it answered.
        persistence=(
            "    <persistenceAdapter>\n"
            '      <kahaDB directory="@DATA@/kahadb" enableJournalDiskSyncs="true" '
            f"{kahadb_attributes}/>\n"
            "    </persistenceAdapter>"
            if persistent
            else ""
        ),
        store_limit=store_limit,
        temp_limit=temp_limit,
        connectors="\n".join(
            f'      <transportConnector name="{name}" uri="{uri}"/>'
            for name, uri in connectors.items()
        ),
    )


STOCK_MANAGEMENT_ADDRESS_SETTING = """
<address-setting match="activemq.management.#">
  <dead-letter-address>DLQ</dead-letter-address>
  <expiry-address>ExpiryQueue</expiry-address>
  <redelivery-delay>0</redelivery-delay>
  <max-size-bytes>-1</max-size-bytes>
  <message-counter-history-day-limit>10</message-counter-history-day-limit>
  <address-full-policy>PAGE</address-full-policy>
  <auto-create-queues>true</auto-create-queues>
  <auto-create-addresses>true</auto-create-addresses>
</address-setting>
"""
STOCK_ADDRESS_SETTINGS = f"""
{STOCK_MANAGEMENT_ADDRESS_SETTING}
<address-setting match="#">
  <dead-letter-address>DLQ</dead-letter-address>
  <expiry-address>ExpiryQueue</expiry-address>
  <redelivery-delay>0</redelivery-delay>
  <message-counter-history-day-limit>10</message-counter-history-day-limit>
  <address-full-policy>PAGE</address-full-policy>
  <auto-create-queues>true</auto-create-queues>
  <auto-create-addresses>true</auto-create-addresses>
  <auto-delete-queues>false</auto-delete-queues>
  <auto-delete-addresses>false</auto-delete-addresses>
  <page-size-bytes>10M</page-size-bytes>
  <max-size-bytes>-1</max-size-bytes>
  <max-size-messages>-1</max-size-messages>
  <max-read-page-messages>-1</max-read-page-messages>
  <max-read-page-bytes>20M</max-read-page-bytes>
  <page-limit-bytes>-1</page-limit-bytes>
  <page-limit-messages>-1</page-limit-messages>
</address-setting>
"""
STOCK_ADDRESSES = """
<address name="DLQ"><anycast><queue name="DLQ"/></anycast></address>
<address name="ExpiryQueue"><anycast><queue name="ExpiryQueue"/></anycast></address>
"""
ARTEMIS_ACCEPTORS: Mapping[str, str] = {
    "artemis": (
        "tcp://127.0.0.1:@PORT@?tcpSendBufferSize=1048576;tcpReceiveBufferSize=1048576;"
        "amqpMinLargeMessageSize=102400;protocols=CORE,AMQP,STOMP,OPENWIRE;useEpoll=true;"
        "amqpCredits=1000;amqpLowCredits=300;amqpDuplicateDetection=true;"
        "supportAdvisory=false;suppressInternalManagementObjects=false"
    ),
}
_PERMISSIONS = "\n".join(
    f'        <permission type="{right}" roles="amq"/>'
    for right in (
        "createNonDurableQueue",
        "deleteNonDurableQueue",
        "createDurableQueue",
        "deleteDurableQueue",
        "createAddress",
        "deleteAddress",
        "consume",
        "browse",
        "send",
        "manage",
    )
)

_ARTEMIS = """\
<?xml version="1.0" encoding="UTF-8"?>
<configuration xmlns="urn:activemq">
  <core xmlns="urn:activemq:core">
    <name>{broker_name}</name>
    <persistence-enabled>{persistent}</persistence-enabled>
    <max-redelivery-records>1</max-redelivery-records>
    <journal-type>NIO</journal-type>
    <paging-directory>@DATA@/paging</paging-directory>
    <bindings-directory>@DATA@/bindings</bindings-directory>
    <journal-directory>@DATA@/journal</journal-directory>
    <large-messages-directory>@DATA@/large-messages</large-messages-directory>
    <journal-datasync>@SYNC@</journal-datasync>
    <journal-min-files>2</journal-min-files>
    <journal-pool-files>10</journal-pool-files>
    <journal-device-block-size>4096</journal-device-block-size>
    <journal-file-size>10M</journal-file-size>
    <disk-scan-period>5000</disk-scan-period>
    <max-disk-usage>100</max-disk-usage>
    <critical-analyzer>false</critical-analyzer>
    <global-max-messages>-1</global-max-messages>
{core}
    <acceptors>
{acceptors}
    </acceptors>
    <security-settings>
      <security-setting match="#">
{permissions}
      </security-setting>
    </security-settings>
    <address-settings>
{address_settings}
    </address-settings>
    <addresses>
{addresses}
    </addresses>
  </core>
</configuration>
"""


DEAD_AT_ONCE = """
<address-setting match="#">
  <dead-letter-address>DLQ</dead-letter-address>
  <expiry-address>ExpiryQueue</expiry-address>
  <max-delivery-attempts>1</max-delivery-attempts>
  <auto-delete-queues>false</auto-delete-queues>
  <auto-delete-addresses>false</auto-delete-addresses>
</address-setting>
"""
"""Each failed delivery is a death, where the rules that are tested come from a policy of ours."""


def attempts_without_limit(*addresses: str) -> str:
    """Return settings of dead-letter addresses, as the README asks for them.

    What is in hand when a sidecar dies counts as a failed delivery.
    """
    return "".join(
        f'<address-setting match="{address}"><max-delivery-attempts>-1</max-delivery-attempts>'
        "</address-setting>\n"
        for address in addresses
    )


def artemis_xml(
    *,
    address_settings: str = STOCK_ADDRESS_SETTINGS,
    addresses: str = STOCK_ADDRESSES,
    acceptors: Mapping[str, str] = ARTEMIS_ACCEPTORS,
    core: str = "",
    persistent: bool = True,
    broker_name: str = "localhost",
) -> str:
    """Return a whole broker.xml: the file of `artemis create`, plus the requested parts.

    Args:
        address_settings: children of `<address-settings>`; replaces the stock ones.
        addresses: children of `<addresses>`; replaces the stock DLQ and ExpiryQueue.
        acceptors: URI by name; `@PORT@` becomes a free port.
        core: further children of `<core>`.
    """
    return _ARTEMIS.format(
        broker_name=broker_name,
        persistent=str(persistent).lower(),
        core=core.strip(),
        acceptors="\n".join(
            f'      <acceptor name="{name}">{uri}</acceptor>' for name, uri in acceptors.items()
        ),
        permissions=_PERMISSIONS,
        address_settings=address_settings.strip(),
        addresses=addresses.strip(),
    )


ARTEMIS_MANAGEMENT_XML = """\
<?xml version="1.0" encoding="UTF-8"?>
<management-context xmlns="http://activemq.apache.org/schema"/>
"""
ARTEMIS_LOGIN_CONFIG = """\
activemq {
  org.apache.activemq.artemis.spi.core.security.jaas.PropertiesLoginModule required
    org.apache.activemq.jaas.properties.user="artemis-users.properties"
    org.apache.activemq.jaas.properties.role="artemis-roles.properties";
};
"""


def artemis_bootstrap_xml(broker_xml_url: str) -> str:
    """Return the bootstrap.xml of an instance without web console."""
    return f"""\
<?xml version="1.0" encoding="UTF-8"?>
<broker xmlns="http://activemq.apache.org/schema">
  <jaas-security domain="activemq"/>
  <server configuration="{broker_xml_url}"/>
</broker>
"""
