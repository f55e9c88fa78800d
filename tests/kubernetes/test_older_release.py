"""A release of an older image is upgraded to today's, and keeps what waits in its older file."""

from pathlib import Path
from shutil import copytree

import pytest

from amqsidecar.stores.sqlite.database import SCHEMA_VERSION
from kubernetes import broker_pods, images
from kubernetes.broker_pods import ARTEMIS
from kubernetes.load import Account, Load
from kubernetes.namespace import Namespace
from kubernetes.values import DELAY, SLOW, SLOW_DELAY_MS, with_a_slow_queue
from support.helm import CHART
from support.jms_peer import ALL_TYPES
from support.waiting import eventually

KIND = ARTEMIS
SAY_SCHEMA = (
    "import sqlite3; file = sqlite3.connect('/var/lib/amqsidecar/schedule.db'); "
    "print(file.execute('PRAGMA user_version').fetchone()[0])"
)
SETS_CONSOLE = (
    '{{- $_ := set $http "console" (eq (include "amqsidecar.hasWayIn" $config) "yes") -}}'
)


def older_chart(folder: Path) -> Path:
    """Return the chart as it would have been then: there was no option `http.console`."""
    chart = copytree(CHART, folder / "amqsidecar")
    options = chart / "templates" / "_options.tpl"
    text = options.read_text(encoding="utf-8")
    assert SETS_CONSOLE in text
    options.write_text(text.replace(SETS_CONSOLE, ""), encoding="utf-8")
    return chart


def schema(namespace: Namespace) -> int:
    """Return the version of the schema that the file on the volume has."""
    return int(namespace.exec(namespace.pod(), "python3", "-c", SAY_SCHEMA))


@pytest.mark.skipif(not images.has_older(), reason="no history of the project here")
def test_an_older_release_is_upgraded_with_its_data(
    namespace: Namespace, account: Account, tmp_path: Path
) -> None:
    peer = broker_pods.start(namespace, KIND)
    today = with_a_slow_queue()
    older = {"repository": images.OLDER, "tag": images.OLDER_COMMIT}
    # Why no check: that image knows none.
    then = today | {"image": older, "installCheck": {"enabled": False}}
    namespace.install(then, chart=older_chart(tmp_path))
    assert schema(namespace) == images.OLDER_SCHEMA
    with Load(peer, KIND) as load:
        load.send_hopeless()
        load.go_on()
        sent = peer.produce(SLOW, count=3)
        peer.fail(SLOW, messages=len(sent))
        eventually(
            lambda: namespace.status(namespace.pod())["total"] >= len(sent),
            every_s=0.5,
            what="the slow ones wait",
        )

        namespace.install(today)

        assert schema(namespace) == SCHEMA_VERSION > images.OLDER_SCHEMA
        load.go_on()
        back = peer.consume(SLOW, len(sent), wait_ms=SLOW_DELAY_MS)
        assert sorted(str(one.test_id) for one in back) == sorted(str(one.test_id) for one in sent)
        assert {one.value(DELAY) for one in back} == {SLOW_DELAY_MS}
        account(load.settle(namespace))
        assert peer.browse(SLOW) == []
    assert len(sent) == 3 * len(ALL_TYPES)
