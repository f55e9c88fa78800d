"""Each right that is missing is named, and the line that doctor prints grants it."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest

from amqsidecar.brokers.classic.link_settings import ClassicLinkSettings
from amqsidecar.brokers.openwire.link import OpenWireLink
from amqsidecar.clock import SystemClock
from amqsidecar.model.destination import queue
from support.brokers.broker_xml import artemis_xml, classic_xml
from support.brokers.real import ArtemisBroker, ClassicBroker
from support.jms.peer import JmsPeer
from support.sidecar.doctor import Verdict, run_doctors
from support.sidecar.policy import write_policy
from support.tier import at_length
from support.versions import ARTEMIS, CLASSIC_5, CLASSIC_6, classic, usual
from support.waiting import eventually

pytestmark = pytest.mark.broker

# ---------------------------------------------------------------------------- Classic

LEAST = frozenset(
    {
        *("dlq-read", "dlq-admin"),
        *("final-write", "final-admin"),
        *("origin-write", "origin-admin"),
        *("token-read", "token-write", "token-admin"),
        *("advisory-read", "advisory-admin"),
        "temporary",
    }
)
# Why `DLQ.orders.>` too: a run writes what is final into a dead-letter queue that it does not read.
MISSING_QUEUE = "intake.queues=[DLQ.orders.>, Missing.{user}]"
# What is said, and where the right is asked for only in a special case, the options for it.
CLASSIC_CASES: Mapping[str, tuple[str, str, str]] = {
    "origin-admin": ("create", "admin", ""),
    "final-admin": ("create", "admin", MISSING_QUEUE),
    "dlq-admin": ("create", "admin", MISSING_QUEUE),
    "token-admin": ("create", "admin", ""),
    "advisory-admin": ("create", "admin", MISSING_QUEUE),
    "dlq-read": ("read from", "read", ""),
    "final-write": ("write to", "write", ""),
    "origin-write": ("write to", "write", ""),
    "token-read": ("read from", "read", ""),
    "token-write": ("write to", "write", ""),
    "advisory-read": ("read from", "read", ""),
}
SCOPES = {
    "origin": "queue://orders.",
    "final": ("queue://DLQ.orders.", "queue://ActiveMQ.DLQ.exhausted", "queue://Missing."),
    "dlq": ("queue://DLQ.orders.", "queue://ActiveMQ.DLQ", "queue://Missing."),
    "token": "queue://amqsidecar.token.>",
    "advisory": "topic://ActiveMQ.Advisory.>",
    "temporary": "temp-queue://>",
}
# On which versions these are taken away over which wires, besides all of them over OpenWire on 5.
CORE = at_length(
    ("dlq-read", "final-write", "origin-write", "token-read", "token-write", "token-admin"),
    # Why few: over OpenWire each is taken away, and who looks is the same over each wire.
    otherwise=("dlq-read", "origin-write", "token-admin"),
)
# AMQP alone needs temporary queues.
RIGHTS = {"openwire": CORE, "stomp": CORE, "amqp": (*CORE, "temporary")}
OTHER_WIRES = {
    CLASSIC_5: ("stomp", "amqp"),
    # Why not OpenWire at once: the test before has it on Classic 5.18.
    CLASSIC_6: (*at_length(("openwire",), otherwise=()), "stomp", "amqp"),
}
PORTS = {"openwire": "OPENWIRE_PORT", "stomp": "STOMP_PORT", "amqp": "AMQP_JMS_PORT"}
CLASSIC_USERS = {
    "admin": {"admins"},
    "sidecar": LEAST,
    "nothing": set(),
    **{f"no-{right}": LEAST - {right} for right in CLASSIC_CASES},
    **{f"{wire}-no-{right}": LEAST - {right} for wire in PORTS for right in RIGHTS[wire]},
}
SECURITY = """
    <simpleAuthenticationPlugin anonymousAccessAllowed="false"><users>
      {users}
    </users></simpleAuthenticationPlugin>
    <authorizationPlugin><map><authorizationMap><authorizationEntries>
      <authorizationEntry queue=">" read="admins" write="admins" admin="admins"/>
      <authorizationEntry topic=">" read="admins" write="admins" admin="admins"/>
      <authorizationEntry queue="orders.>" read="admins" write="origin-write" admin="origin-admin"/>
      <authorizationEntry queue="ActiveMQ.DLQ" read="dlq-read" admin="dlq-admin"/>
      <authorizationEntry queue="ActiveMQ.DLQ.exhausted" write="final-write" admin="final-admin"/>
      <authorizationEntry queue="DLQ.orders.*" read="dlq-read" admin="dlq-admin"/>
      <authorizationEntry queue="DLQ.orders.*.exhausted" write="final-write" admin="final-admin"/>
      <authorizationEntry queue="Missing.*" read="dlq-read" admin="dlq-admin"/>
      <authorizationEntry queue="Missing.*.exhausted" write="final-write" admin="final-admin"/>
      <authorizationEntry queue="amqsidecar.token.>"
          read="token-read" write="token-write" admin="token-admin"/>
      <authorizationEntry topic="ActiveMQ.Advisory.>" read="advisory-read" admin="advisory-admin"/>
    </authorizationEntries>
    <tempDestinationAuthorizationEntry>
      <tempDestinationAuthorizationEntry read="admins,temporary" write="admins,temporary"
          admin="admins,temporary"/>
    </tempDestinationAuthorizationEntry>
    </authorizationMap></map></authorizationPlugin>
"""
STRATEGY = """
    <policyEntry queue="orders.>"><deadLetterStrategy>
      <individualDeadLetterStrategy queuePrefix="DLQ." processNonPersistent="true"/>
    </deadLetterStrategy></policyEntry>
"""
REDELIVERY = """
    <redeliveryPlugin><redeliveryPolicyMap><redeliveryPolicyMap><redeliveryPolicyEntries>
      <redeliveryPolicy queue="orders.>" maximumRedeliveries="1"/>
    </redeliveryPolicyEntries></redeliveryPolicyMap></redeliveryPolicyMap></redeliveryPlugin>
"""
ALIVE, GONE = "orders.alive", "orders.gone"


class SecuredClassic(ClassicBroker):
    """Classic that admits these users; authorization entries can be added."""

    def __init__(self, version: str) -> None:
        super().__init__(version, destination_policy=STRATEGY, plugins="<!-- security -->")
        self._template = self.activemq_xml

    def _prepare(self) -> None:
        users = "\n".join(
            f'<authenticationUser username="{user}" password="{user}" '
            f'groups="{",".join((user, *groups))}"/>'
            for user, groups in CLASSIC_USERS.items()
        )
        security = SECURITY.format(users=users)
        self.activemq_xml = self._template.replace("<!-- security -->", security)
        super()._prepare()

    def grant(self, lines: Sequence[str]) -> None:
        """Add entries as doctor printed them, and start again."""
        end = "</authorizationEntries>"
        text = self.config_path.read_text(encoding="utf-8")
        entries = [line for line in lines if line.startswith("<authorizationEntry ")]
        for line in {*lines} - {*entries}:
            found = re.search(r'Entry read="(.*?)" write="\1" admin="\1"/>', line)
            assert found is not None
            text = text.replace('"admins,temporary', f'"admins,temporary,{found[1]}')
        text = text.replace(end, "\n".join((*entries, end)))
        self.config_path.write_text(text, encoding="utf-8")
        self.restart()


def classic_policy(folder: Path) -> Path:
    path = folder / "activemq.xml"
    path.write_text(classic_xml(destination_policy=STRATEGY, plugins=REDELIVERY), encoding="utf-8")
    return path


def die(broker: ClassicBroker, *queues: str) -> None:
    """Leave a dead letter of each queue."""
    peer = JmsPeer.of(broker, "openwire")
    for name in queues:
        peer.produce(name, "Text")
        peer.fail(name, messages=1, deliveries=1)


def remove_queue(broker: ClassicBroker, name: str) -> None:
    link = OpenWireLink(
        ClassicLinkSettings(
            broker.endpoint("OPENWIRE_PORT"),
            clock=SystemClock(),
            instance="test",
        )
    ).look()
    assert link.trials().remove(queue(name)) is None
    link.close()


def lines_of(verdict: Verdict) -> list[str]:
    """Return the lines as a person adds them, who knows the group or role of the user."""
    mends = [one["mend"] for one in verdict.of("permissions") if one["mend"]]
    return [re.sub("(GROUP|ROLE)-OF-", "", mend) for mend in mends]


def test_each_right_on_classic_is_named_and_the_line_grants_it(tmp_path: Path) -> None:
    """One user per right that is missing; the printed lines are added, and nothing is missing."""
    policy = classic_policy(tmp_path)

    def ask(users: Iterable[str]) -> dict[str, Verdict]:
        wishes = {}
        for user in users:
            case = CLASSIC_CASES.get(user.removeprefix("no-"), ("", "", ""))
            sets = [case[2].format(user=user)] if case[2] else []
            url = f"openwire://{user}:{user}@127.0.0.1:{broker.ports['OPENWIRE_PORT']}"
            wishes[user] = (url, sets)
        return run_doctors(wishes, tmp_path, policy)

    with SecuredClassic(CLASSIC_5) as broker:
        # 5.18 asks who logs in first for the right to make the advisory topic, and hangs up.
        first = ask(["nothing"])["nothing"]
        die(broker, ALIVE, GONE)
        remove_queue(broker, GONE)
        users = [f"no-{right}" for right in CLASSIC_CASES]
        before = ask([*users, "nothing"])
        complete = ask(["sidecar"])["sidecar"]
        broker.grant([line for verdict in before.values() for line in lines_of(verdict)])
        after = ask(before)

    assert complete.problems == []
    assert complete.code == 0
    [advisory] = first.problems
    assert advisory["mend"] == (
        '<authorizationEntry topic="ActiveMQ.Advisory.>" admin="GROUP-OF-nothing"/>'
    )
    for user in users:
        right = user.removeprefix("no-")
        operation, permission, _ = CLASSIC_CASES[right]
        assert before[user].code == 78, user
        for problem in before[user].problems:
            assert problem["subject"].startswith(SCOPES[right.partition("-")[0]]), user
            assert f"user {user} may not {operation} " in problem["what"], user
            assert f"(permission {permission})" in problem["what"], user
            assert f'{permission}="GROUP-OF-{user}"' in problem["mend"], user
    everything = {one["subject"] for one in before["nothing"].problems}
    assert everything == {
        "topic://ActiveMQ.Advisory.>",
        "queue://amqsidecar.token.>",
        "queue://orders.>",
    } | {one for one in everything if "DLQ" in one}
    # What needs a right that was missing could not be seen before: the queues of the wildcard.
    hidden = {one["subject"] for one in after.pop("nothing").problems}
    assert hidden == {
        f"queue://DLQ.{name}{suffix}" for name in (ALIVE, GONE) for suffix in ("", ".exhausted")
    }
    for user, verdict in after.items():
        assert verdict.problems == [], user
        assert verdict.code == 0, user


@pytest.mark.parametrize("version", [pytest.param(CLASSIC_5, marks=pytest.mark.proof), CLASSIC_6])
def test_rights_over_each_wire_of_classic(tmp_path: Path, version: str) -> None:
    """As above; AMQP shows only the queues that are named, and where their messages died by name.

    Nothing is left of what was sent for a trial.
    """
    policy = classic_policy(tmp_path)
    wires = [one for one in OTHER_WIRES[version] if one in classic(version).wires]

    def ask() -> dict[str, Verdict]:
        wishes = {
            f"{wire}-no-{right}": (
                f"{wire}://{wire}-no-{right}:{wire}-no-{right}"
                f"@127.0.0.1:{broker.ports[PORTS[wire]]}",
                [f"intake.queues=[DLQ.{ALIVE}]"] if wire == "amqp" else [],
            )
            for wire in wires
            for right in RIGHTS[wire]
        }
        return run_doctors(wishes, tmp_path, policy)

    with SecuredClassic(version) as broker:
        die(broker, ALIVE)
        before = ask()
        broker.grant([line for verdict in before.values() for line in lines_of(verdict)])
        after = ask()
        peer = JmsPeer.of(broker, "openwire")
        for name in (ALIVE, f"DLQ.{ALIVE}.exhausted"):
            assert peer.browse(name) == []
        # Why waited for: under load a browser of Classic has shown nothing.
        eventually(lambda: len(peer.browse(f"DLQ.{ALIVE}")) == 1, what="the dead letter is there")

    for user, verdict in before.items():
        right = user.partition("-no-")[2]
        operation, permission, _ = CLASSIC_CASES.get(right, ("read from", "read", ""))
        assert verdict.code == 78, user
        for problem in verdict.problems:
            assert problem["subject"].startswith(SCOPES[right.partition("-")[0]]), user
            assert f"user {user} may not {operation} " in problem["what"], user
            assert f'{permission}="GROUP-OF-{user}"' in problem["mend"], user
    for user, verdict in after.items():
        assert (verdict.code, verdict.problems) == (0, []), user


# ---------------------------------------------------------------------------- Artemis

KINDS = (
    *("createNonDurableQueue", "deleteNonDurableQueue", "createDurableQueue"),
    *("deleteDurableQueue", "createAddress", "deleteAddress"),
    *("consume", "browse", "send", "manage"),
)
CREATE = ("createAddress", "createDurableQueue")
MANAGED = {
    "orders.#": ("send",),
    "DLQ": ("consume",),
    "DLQ.exhausted": ("send",),
    "amqsidecar.token.#": ("send", "consume"),
    "activemq.management": ("send", "manage"),
    "uuid.#": ("createNonDurableQueue", "createAddress", "consume", "send"),
}
UNMANAGED = {
    "orders.#": ("send",),
    "DLQ": ("consume", "browse"),
    "DLQ.exhausted": ("send", *CREATE),
    "amqsidecar.token.#": ("send", "consume", *CREATE),
}
UNMANAGED_SETS = ("intake.queues=DLQ",)
ARTEMIS_POLICY = """
address_settings:
  - match: "#"
    dead_letter_address: "DLQ"
    max_delivery_attempts: 2
"""


# Over STOMP the broker asks for other rights to manage; the answers come to an address of ours.
STOMP_MANAGED = {
    **{match: kinds for match, kinds in MANAGED.items() if match != "uuid.#"},
    "activemq.management": ("manage", "createAddress"),
    "amqsidecar.replies.#": (
        *("createAddress", "deleteAddress", "createNonDurableQueue", "deleteNonDurableQueue"),
        *("consume", "send"),
    ),
}
STOMP_UNMANAGED = {**UNMANAGED, "DLQ": ("consume",)}
ARTEMIS_GROUPS = {
    group: frozenset((match, kind) for match, kinds in rights.items() for kind in kinds)
    for group, rights in (
        ("managed", MANAGED),
        ("unmanaged", UNMANAGED),
        ("stompmanaged", STOMP_MANAGED),
        ("stompunmanaged", STOMP_UNMANAGED),
    )
}
# What a run does without: the next start removes the address of the answers.
SPARED = {
    ("amqsidecar.replies.#", "deleteAddress"),
    ("amqsidecar.replies.#", "deleteNonDurableQueue"),
}
# Unknown: where dead letters came from, over STOMP without the right to manage.
UNSEEN = {("stompunmanaged", ("orders.#", "send"))}
ARTEMIS_LACKS = {
    f"{group}-no-{match.replace('.', '-').replace('#', 'all')}-{kind}": (match, kind)
    for group, held in ARTEMIS_GROUPS.items()
    for match, kind in sorted(held - SPARED)
    if (group, (match, kind)) not in UNSEEN
}
ARTEMIS_USERS = {
    **ARTEMIS_GROUPS,
    **{
        user: ARTEMIS_GROUPS[user.partition("-")[0]] - {lack}
        for user, lack in ARTEMIS_LACKS.items()
    },
    "nothing": frozenset(),
    "stompnothing": frozenset(),
}


class SecuredArtemis(ArtemisBroker):
    """Artemis with a role for each user; security settings can be added."""

    def __init__(self) -> None:
        settings = {
            match: {
                kind: [
                    "amq",
                    *(user for user, held in ARTEMIS_USERS.items() if (match, kind) in held),
                ]
                for kind in KINDS
            }
            for match in {**MANAGED, **STOMP_MANAGED}
        }
        self.settings = settings
        text = artemis_xml(core="<uuid-namespace>uuid</uuid-namespace>")
        super().__init__(text.replace("</security-settings>", "@SETTINGS@</security-settings>"))

    def _prepare(self) -> None:
        super()._prepare()
        self._write_settings()
        for name, lines in {
            "artemis-users.properties": [f"{user} = {user}" for user in ARTEMIS_USERS],
            "artemis-roles.properties": [f"{user} = {user}" for user in ARTEMIS_USERS],
        }.items():
            path = self.config_path.parent / name
            path.write_text(path.read_text(encoding="utf-8") + "\n".join(lines), encoding="utf-8")

    def _write_settings(self) -> None:
        text = "".join(
            f'<security-setting match="{match}">'
            + "".join(
                f'<permission type="{kind}" roles="{",".join(roles)}"/>'
                for kind, roles in kinds.items()
            )
            + "</security-setting>"
            for match, kinds in self.settings.items()
        )
        template = self._filled(self.broker_xml).replace("@SETTINGS@", text)
        self.config_path.write_text(template, encoding="utf-8")

    def grant(self, lines: Sequence[str]) -> None:
        """Add to each setting what doctor printed for it, and start again."""
        for line in lines:
            for match, inside in re.findall(
                r'<security-setting match="([^"]+)">(.*?)</security-setting>', line
            ):
                kinds = self.settings.setdefault(match, {})
                for kind, roles in re.findall(r'type="(\w+)" roles="([^"]+)"', inside):
                    held = kinds.setdefault(kind, [])
                    held += [role for role in roles.split(",") if role not in held]
        self._write_settings()
        self.restart()


@pytest.mark.parametrize("wire", ["amqp", pytest.param("stomp", marks=pytest.mark.proof)])
def test_each_right_on_artemis_is_named_and_the_line_grants_it(tmp_path: Path, wire: str) -> None:
    """With the right to manage and without; the lines are added, and nothing is missing."""
    policy = write_policy(tmp_path, ARTEMIS_POLICY)
    prefix = "" if wire == "amqp" else wire

    def ask(users: Iterable[str]) -> dict[str, Verdict]:
        wishes = {
            user: (
                f"{wire}://{user}:{user}@127.0.0.1:{broker.ports['PORT']}",
                UNMANAGED_SETS if "unmanaged" in user else (),
            )
            for user in users
        }
        return run_doctors(wishes, tmp_path, policy)

    # By STOMP: a later broker takes questions without an address.
    is_later = usual("artemis").version != ARTEMIS
    spared_later = {("activemq.management", "createAddress")} if is_later else set()
    with SecuredArtemis() as broker:
        peer = JmsPeer.of(broker, "qpid")
        peer.produce("orders.x", "Text")
        peer.fail("orders.x", "reject", messages=1, deliveries=1, max_redeliveries=9)
        groups = [f"{prefix}managed", f"{prefix}unmanaged"]
        lacks = {
            user: lack for user, lack in ARTEMIS_LACKS.items() if user.partition("-")[0] in groups
        }
        # What is missing is made by the first who may: first who can't make an address.
        # A later broker stops nobody by the address of the management.
        made = ("exhausted-create",) if is_later else ("exhausted-create", "management-create")
        makers = sorted(user for user in lacks if any(part in user for part in made))
        nothing = f"{prefix}nothing"
        before = ask([*makers, *(user for user in lacks if user not in makers), nothing])
        complete = ask(groups)
        broker.grant([line for verdict in before.values() for line in lines_of(verdict)])
        after = ask(before)
        assert peer.browse("orders.x") == peer.browse("DLQ.exhausted") == []
        assert len(peer.browse("DLQ")) == 1

    assert {user: verdict.problems for user, verdict in complete.items()} == {
        group: [] for group in groups
    }
    for user, (match, kind) in lacks.items():
        if kind == "browse" or (match, kind) in spared_later:
            assert before[user].code == 0  # a run does without
            continue
        assert before[user].code == 78, user
        [problem] = before[user].of("permissions", "problem")
        assert problem["subject"] == match.replace("orders.#", "orders.x"), user
        assert f"user {user} may not " in problem["what"], user
        # Without manage the broker answers with a fault of its own that names no permission.
        assert re.search(rf"\(permission [^)]*\b{kind}\b", problem["what"]), user
        assert re.search(rf'type="{kind}" roles="[^"]*\bROLE-OF-{user}"', problem["mend"]), user
    missing = {one["subject"] for one in before[nothing].of("permissions", "problem")}
    replies = {"amqp": "uuid.#", "stomp": "amqsidecar.replies.#"}[wire]
    assert missing == {"activemq.management", replies, "DLQ", "DLQ.exhausted"}
    # Only a user who may ask learns what waits for redelivery; all other lines came in one round.
    hidden = {one["subject"] for one in after.pop(nothing).problems}
    assert hidden == {"orders.x"}
    for user, verdict in after.items():
        assert verdict.problems == [], user
        assert verdict.code == 0, user
