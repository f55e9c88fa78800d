"""Dead letters of twelve seeded faults, in the words of Classic and of Java applications."""

import random
from datetime import UTC, datetime
from uuid import UUID

FAULTS = (
    'java.lang.NullPointerException: Cannot invoke "com.acme.Customer.getName()" because '
    '"order.customer" is null',
    "java.sql.SQLTransientConnectionException: HikariPool-{small} - Connection is not available, "
    "request timed out after {number}ms (total={small}, active={small}, idle=0, waiting={small})",
    "org.springframework.jms.listener.adapter.ListenerExecutionFailedException: Listener method "
    "'void com.acme.Orders.on(com.acme.Order)' threw exception; nested exception is "
    "org.postgresql.util.PSQLException: ERROR: duplicate key value violates unique constraint "
    '"orders_pkey"\n  Detail: Key (id)=({uuid}) already exists.',
    "org.springframework.dao.CannotAcquireLockException: deadlock detected: process {number} waits "
    "for ShareLock on transaction {number}; blocked by process {number} at {time}",
    "java.net.ConnectException: Connection refused: {host}/{address}:{small}",
    "java.net.SocketTimeoutException: Read timed out after {number} ms from https://{host}/pay/{hex}",
    "org.springframework.web.client.HttpServerErrorException$ServiceUnavailable: 503 Service "
    "Unavailable from POST http://{address}:8080/stock/{number}",
    "com.fasterxml.jackson.core.JsonParseException: Unexpected character ('{mark}' (code "
    '{small})): was expecting comma to separate Object entries\n at [Source: (String)"{hex}"]',
    "jakarta.validation.ConstraintViolationException: order {hex}: amount must be greater than 0, "
    "was -{number}.{small}",
    "com.acme.PaymentDeclined: card of customer {mail} was declined at {date}, reference {hex}",
    "java.nio.file.NoSuchFileException: /var/lib/shop/{letter}{number}/{uuid}.pdf",
    "java.lang.IllegalStateException: message ID:{host}-36211-{number}-3:1:1:1:{small} of order "
    "{uuid} came before its customer",
)
ENVELOPE = (
    "java.lang.Throwable: Delivery[{deliveries}] exceeds redelivery policy limit:RedeliveryPolicy "
    "{{destination = null, maximumRedeliveries = {deliveries}, redeliveryDelay = 0}}, cause:{cause}"
)
BARE = "{cause}"


def say(chance: random.Random, fault: str, envelope: str = ENVELOPE) -> str:
    """Return a cause of a fault, with ids, times and addresses that no other has.

    Args:
        chance: seeded.
        fault: one of `FAULTS`.
        envelope: what Classic's client puts around it, or `BARE`.
    """
    at = datetime.fromtimestamp(chance.randrange(10**9, 2 * 10**9), UTC)
    cause = fault.format(
        small=chance.randrange(10, 100),
        number=chance.randrange(10**6),
        hex=f"{chance.getrandbits(64):016x}",
        uuid=UUID(int=chance.getrandbits(128)),
        letter=chance.choice("abcdefxyz"),
        mark=chance.choice("abcdefxyz}{"),
        host=f"{chance.choice(('db', 'pay'))}-{chance.randrange(99)}.prod.example.com",
        address=".".join(str(chance.randrange(256)) for _ in range(4)),
        mail=f"{chance.choice(('anna', 'ben.b'))}{chance.randrange(99)}@example.org",
        time=at.isoformat(),
        date=at.strftime("%a %b %d %H:%M:%S CET %Y"),
    )
    return envelope.format(deliveries=chance.randrange(1, 7), cause=cause)
