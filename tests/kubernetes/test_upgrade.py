"""`helm upgrade` and `rollback` while messages die and wait; an earlier chart; another password."""

from collections.abc import Iterator

import pytest

from kubernetes import broker_pods
from kubernetes.broker_pods import ARTEMIS, LOGIN, USERS
from kubernetes.images import EARLIER, earlier
from kubernetes.load import Account, Load
from kubernetes.namespace import RELEASE, Namespace, restarts
from kubernetes.values import (
    DELAY,
    DELAY_MS,
    REDELIVERIES,
    SLOW,
    SLOW_DELAY_MS,
    values,
    with_a_slow_queue,
    with_rules,
)
from support.deployment.helm import Refused
from support.jms.peer import ALL_TYPES, JmsPeer
from support.waiting import eventually

KIND = ARTEMIS
NEW_DELAY_MS = 700
OTHER_PASSWORD = "another"
BACKLOG = 200
WRONG = "max_delivery_attemps"


@pytest.fixture
def peer(namespace: Namespace) -> JmsPeer:
    return broker_pods.start(namespace, KIND)


@pytest.fixture
def load(peer: JmsPeer) -> Iterator[Load]:
    with Load(peer, KIND) as load:
        yield load


def revision(namespace: Namespace) -> list[str]:
    """Return the revisions of the release, as `helm history` numbers them."""
    lines = namespace.helm("history", RELEASE).splitlines()[1:]
    return [line.split()[0] for line in lines]


def test_changed_rules_roll_the_pod_and_hold_for_new_deaths(
    peer: JmsPeer, load: Load, namespace: Namespace, account: Account
) -> None:
    """What waits keeps its time; a rollback brings the old rules back."""
    first = with_a_slow_queue()
    namespace.install(first)
    load.send_hopeless()
    peer.produce(SLOW)
    peer.fail(SLOW, messages=len(ALL_TYPES))
    waits = f'amqsidecar_waiting{{destination="queue://{SLOW}",state="waiting"}}'
    old_pod = namespace.get("pod", namespace.pod())["metadata"]["uid"]
    eventually(
        lambda: namespace.metric(namespace.pod(), waits) == len(ALL_TYPES), what="the slow wait"
    )

    namespace.install(with_rules(first, KIND.rules(NEW_DELAY_MS, REDELIVERIES)))

    assert namespace.get("pod", namespace.pod())["metadata"]["uid"] != old_pod
    [late] = peer.produce(SLOW, "Text")
    peer.fail(SLOW, messages=1)
    [back] = peer.consume(SLOW, 1)
    assert (back.test_id, back.value(DELAY)) == (late.test_id, NEW_DELAY_MS)
    # Why awaited: a row goes with the end of its cycle, which may be written after the consumer's.
    eventually(
        lambda: namespace.metric(namespace.pod(), waits) == len(ALL_TYPES),
        what="only the late one went, the others keep their time",
    )
    load.go_on()
    assert load.newest_delays() == {NEW_DELAY_MS}

    namespace.helm("rollback", RELEASE, "1", "--wait", "--timeout=2m")

    load.go_on()
    assert load.newest_delays() == {DELAY_MS}
    slow = peer.consume(SLOW, len(ALL_TYPES), wait_ms=SLOW_DELAY_MS)
    assert [one.value(DELAY) for one in slow] == [SLOW_DELAY_MS] * len(ALL_TYPES)
    account(load.settle(namespace))


def test_a_wrong_value_is_refused_or_rolled_back(
    peer: JmsPeer, load: Load, namespace: Namespace, account: Account
) -> None:
    """What Helm or the check before an upgrade find changes nothing; else a rollback helps."""
    good = values(KIND)
    namespace.install(good)
    load.go_on()
    pod = namespace.get("pod", namespace.pod())["metadata"]["uid"]
    with pytest.raises(Refused, match="/config/cycle/max_wait_ms"):
        namespace.install(values(KIND, cycle={"max_wait_ms": "soon"}))
    with pytest.raises(Refused, match=r"config.broker.url contains a password"):
        namespace.install(values(KIND, broker={"url": "amqp://admin:admin@broker:5672"}))
    assert revision(namespace) == ["1"]
    assert namespace.get("pod", namespace.pod())["metadata"]["uid"] == pod

    wrong = with_rules(good, {"address_settings": [{"match": "#", WRONG: 3}]})
    with pytest.raises(Refused, match="pre-upgrade hooks failed") as refused:
        namespace.install(wrong)
    assert WRONG in str(refused.value)
    assert namespace.get("pod", namespace.pod())["metadata"]["uid"] == pod

    with pytest.raises(Refused, match=r"deadline|timed out|not ready"):
        namespace.install(wrong | {"upgradeCheck": {"enabled": False}}, timeout="15s")
    eventually(lambda: WRONG in namespace.logs(), every_s=0.5, what="the pod says what is wrong")
    namespace.helm("rollback", RELEASE, "1", "--wait", "--timeout=2m")
    load.go_on()
    account(load.settle(namespace))


def test_a_rotated_password_is_read_at_the_next_connect(
    peer: JmsPeer, load: Load, namespace: Namespace, account: Account
) -> None:
    """The broker has another password first, the Secret later: no sidecar is started again."""
    namespace.install(values(KIND))
    load.go_on()
    pod = namespace.pod()
    uid = namespace.get("pod", pod)["metadata"]["uid"]

    namespace.secret(USERS, **broker_pods.users(OTHER_PASSWORD))
    broker_pods.restart(namespace)
    eventually(
        lambda: namespace.readyz(pod)[0] == 503,
        within_s=60,
        every_s=0.3,
        what="the old password is refused",
    )

    namespace.secret(LOGIN, password=OTHER_PASSWORD)
    assert namespace.pod() == pod
    after = namespace.get("pod", pod)
    assert (after["metadata"]["uid"], restarts(after)) == (uid, 0)
    load.go_on()
    account(load.settle(namespace))


def test_an_earlier_release_is_upgraded_and_refuses_what_a_newer_one_wrote(
    load: Load, namespace: Namespace, account: Account
) -> None:
    """Chart and image, with a migration; a rollback changes nothing, and an upgrade ends it."""
    name, _, tag = EARLIER.partition(":")
    chart = earlier() / "helm" / "amqsidecar"
    before = values(KIND) | {"image": {"repository": name, "tag": tag}}
    del before["userNamespaces"]
    namespace.install(before, chart=chart)
    load.send_hopeless()
    load.go_on()
    load.send_backlog(BACKLOG)
    namespace.install(values(KIND))
    load.go_on()

    with pytest.raises(Refused):
        namespace.helm("rollback", RELEASE, "1", "--wait", "--timeout=15s")
    eventually(
        lambda: "a newer version wrote it" in namespace.logs(),
        every_s=0.5,
        what="the earlier release says why it does not start",
    )
    namespace.install(values(KIND))
    load.go_on()
    account(load.settle(namespace))
