"""The brokers' own words become lines of configuration; each text was seen on a real broker."""

import pytest

from amqsidecar.broker import BrokerKind
from amqsidecar.diagnosis.finding import Severity
from amqsidecar.diagnosis.permissions import (
    artemis_line,
    classic_line,
    is_reply_queue,
    read_refusal,
    scope_of,
)
from amqsidecar.diagnosis.rights import Attempt, management_attempt, permission_findings
from amqsidecar.model.destination import parse_destination, queue

CLASSIC_READ = "SecurityException: User x is not authorized to read from: queue://ActiveMQ.DLQ"
CLASSIC_CREATE = "User x is not authorized to create: queue://amqsidecar.token.doctor-1"
ARTEMIS_CONSUME = (
    "amqp:unauthorized-access: AMQ119015: not authorized to create consumer, AMQ229213: User: x "
    "does not have permission='CONSUME' for queue DLQ on address DLQ"
)
ARTEMIS_CREATE = (
    "amqp:internal-error: AMQ229032: User: x does not have permission='CREATE_ADDRESS' on address "
    "DLQ.exhausted"
)
# Over STOMP without the colon.
ARTEMIS_STOMP = (
    "the user may not manage the broker over STOMP (AMQ229032 User x does not have "
    "permission='CREATE_ADDRESS' on address amqsidecar.replies.a.b); grant it send"
)
ARTEMIS_REPLY = (
    "the user may not manage the broker over AMQP (amqp:unauthorized-access: AMQ229032: User: x "
    "does not have permission='SEND' on address 806e676f-eb69-4548-9fc9-ca9f0f3dc4dc); grant it"
)
# What Artemis 2.44 says without `manage`.
ARTEMIS_FAULT = (
    'failed: Cannot invoke "org.apache.activemq.artemis.core.transaction.Transaction.'
    'markAsRollbackOnly(ActiveMQException)" because "tx" is null'
)


@pytest.mark.parametrize(
    ("words", "operation", "permission", "destination"),
    [
        (CLASSIC_READ, "read from", "read", "queue://ActiveMQ.DLQ"),
        (CLASSIC_CREATE, "create", "admin", "queue://amqsidecar.token.doctor-1"),
        (
            "amqp:unauthorized-access: User x is not authorized to write to: topic://a.b]",
            "write to",
            "write",
            "topic://a.b",
        ),
        (ARTEMIS_CONSUME, "CONSUME", "consume", "queue://DLQ"),
        (ARTEMIS_CREATE, "CREATE_ADDRESS", "createAddress", "queue://DLQ.exhausted"),
        (ARTEMIS_STOMP, "CREATE_ADDRESS", "createAddress", "queue://amqsidecar.replies.a.b"),
        (ARTEMIS_REPLY, "SEND", "send", "queue://806e676f-eb69-4548-9fc9-ca9f0f3dc4dc"),
    ],
)
def test_a_refusal_is_read(words: str, operation: str, permission: str, destination: str) -> None:
    refusal = read_refusal(words)
    assert refusal is not None
    assert (refusal.user, refusal.operation) == ("x", operation)
    assert (refusal.permission, str(refusal.destination)) == (permission, destination)


def test_other_words_are_no_refusal_of_a_permission() -> None:
    assert read_refusal("User name [x] or password is invalid.") is None
    assert read_refusal(ARTEMIS_FAULT) is None


def test_what_is_named_by_chance_is_granted_by_pattern() -> None:
    """Token queues, advisories and reply queues have other names the next time."""
    assert str(scope_of(queue("amqsidecar.token.doctor-1"))) == "queue://amqsidecar.token.>"
    advisory = parse_destination("topic://ActiveMQ.Advisory.Consumer.Queue.DLQ")
    assert str(scope_of(advisory)) == "topic://ActiveMQ.Advisory.>"
    assert is_reply_queue("806e676f-eb69-4548-9fc9-ca9f0f3dc4dc")
    assert is_reply_queue("uuid.806e676f-eb69-4548-9fc9-ca9f0f3dc4dc")
    assert not is_reply_queue("orders.806e676f")


def test_a_line_is_xml_whatever_the_names_are() -> None:
    line = classic_line(queue('a"<&>'), "x&y", ["write", "read"])
    assert line == (
        '<authorizationEntry queue="a&quot;&lt;&amp;>" read="x&amp;y" write="x&amp;y"/>'
    )


def test_a_setting_of_artemis_keeps_what_others_may_do() -> None:
    """Settings don't add up, so that a new one takes away what it does not name."""
    today = [
        {"name": "amq", "consume": True, "send": True},
        {"name": "x", "send": True},
    ]
    assert artemis_line("DLQ", "x", ["consume", "send"], today) == (
        '<security-setting match="DLQ"><permission type="send" roles="amq,x"/>'
        '<permission type="consume" roles="amq,x"/></security-setting>'
    )


def attempt(name: str, words: str | None, **more: object) -> Attempt:
    return Attempt(destination=queue(name), purpose="trying", words=words, **more)  # type: ignore[arg-type]


def test_classic_asks_for_the_right_to_create_last_so_that_its_lack_may_be_hidden() -> None:
    """A queue that is known to exist is not asked for."""
    unknown, existing = (
        permission_findings(
            BrokerKind.CLASSIC, "x", [attempt("ActiveMQ.DLQ", CLASSIC_READ, exists=exists)]
        )[0].mend
        for exists in (None, True)
    )
    assert (
        unknown == '<authorizationEntry queue="ActiveMQ.DLQ" read="GROUP-OF-x" admin="GROUP-OF-x"/>'
    )
    assert existing == '<authorizationEntry queue="ActiveMQ.DLQ" read="GROUP-OF-x"/>'


def test_artemis_names_the_first_permission_only() -> None:
    """The permissions for making the queue and for the send itself are named, too."""
    [finding] = permission_findings(
        BrokerKind.ARTEMIS, "x", [attempt("DLQ.exhausted", ARTEMIS_CREATE, wanted="send")]
    )
    assert finding.severity is Severity.PROBLEM
    assert [
        part
        for part in ("send", "createAddress", "createDurableQueue", "consume")
        if f'type="{part}" roles="ROLE-OF-x"' in finding.mend
    ] == ["send", "createAddress", "createDurableQueue"]


def test_without_manage_artemis_names_no_permission_and_we_do() -> None:
    [finding] = permission_findings(
        BrokerKind.ARTEMIS, "x", [management_attempt(ARTEMIS_FAULT, "x", "asking")]
    )
    assert "permission manage" in finding.what
    assert finding.mend == (
        '<security-setting match="activemq.management"><permission type="send" roles="ROLE-OF-x"/>'
        '<permission type="manage" roles="ROLE-OF-x"/></security-setting>'
    )


def test_the_right_to_an_answer_needs_a_name_that_a_setting_can_match() -> None:
    [finding] = permission_findings(
        BrokerKind.ARTEMIS, "x", [management_attempt(ARTEMIS_REPLY, "x", "asking")]
    )
    assert finding.subject == "uuid.#"
    assert finding.mend.startswith("<uuid-namespace>uuid</uuid-namespace> <security-setting ")
    assert "acts after a restart of the broker" in finding.what
    for kind in ("createNonDurableQueue", "createAddress", "consume", "send"):
        assert f'type="{kind}" roles="ROLE-OF-x"' in finding.mend


def test_over_stomp_the_answers_come_to_an_address_of_ours() -> None:
    unsaid = (
        "User: x does not have permission='MANAGE' on address activemq.management (over STOMP the "
        "broker does not say which)"
    )
    attempts = [management_attempt(words, "x", "asking") for words in (ARTEMIS_STOMP, unsaid)]
    replies, management = permission_findings(BrokerKind.ARTEMIS, "x", attempts)
    assert replies.subject == "amqsidecar.replies.#"
    for kind in ("createNonDurableQueue", "createAddress", "consume", "send", "deleteAddress"):
        assert f'type="{kind}" roles="ROLE-OF-x"' in replies.mend
    assert "MANAGE on activemq.management (permission manage)" in management.what
    assert management.what.count("over STOMP the broker does not say") == 1
    assert "over STOMP" not in replies.what


def test_classic_has_one_entry_for_all_temporary_destinations() -> None:
    words = "User x is not authorized to read from: temp-queue://ID:host-1-2:3:0"
    [finding] = permission_findings(BrokerKind.CLASSIC, "x", [attempt("token", words)])
    tag = "tempDestinationAuthorizationEntry"
    assert (
        finding.mend
        == f'<{tag}><{tag} read="GROUP-OF-x" write="GROUP-OF-x" admin="GROUP-OF-x"/></{tag}>'
    )
    assert "add the user to its groups" in finding.what


def test_what_is_refused_for_another_reason_is_a_problem_without_a_line() -> None:
    [finding] = permission_findings(BrokerKind.CLASSIC, "x", [attempt("DLQ", "disk full")])
    assert (finding.severity, finding.mend) == (Severity.PROBLEM, "")
    assert "disk full" in finding.what
