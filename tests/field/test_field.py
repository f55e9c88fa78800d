"""A stock broker gives a newcomer the results that the record has."""

from pathlib import Path

import pytest

from field.cases import CASES
from field.field import TABLE, recorded, rows, table
from field.stock import StockClassic, stock_brokers
from support.jms.message import JmsMessage
from support.jms.peer import JmsPeer
from support.sidecar.policy import write_policy
from support.sidecar.process import SidecarProcess
from support.versions import CLASSIC_6
from support.waiting import eventually

FRAME_BYTES_MAX = 10 * 2**20
POLICY = """\
plugins:
  - redelivery:
      default_entry: {maximum_redeliveries: 3, initial_redelivery_delay_ms: 100}
"""


@pytest.mark.broker
@pytest.mark.parametrize("broker", ["Classic 5.18.3", "Artemis 2.44.0"])
def test_a_stock_broker_does_what_the_record_says(broker: str, tmp_path: Path) -> None:
    """Ready or refused, messages that came back and that are left, and the text of the message."""
    cases = [case for case in CASES if case.broker == broker and case.is_short]
    known = {row.url: row for row in recorded() if row.broker == broker}
    for row in rows(broker, cases, tmp_path, known):
        assert row == known[row.url]


@pytest.mark.broker
@pytest.mark.proof
def test_a_message_just_below_the_frame_size_of_stock_6_3_returns_or_says_why_not(
    tmp_path: Path,
) -> None:
    """With our properties one fits into its 10 MiB. The other waits with the reason, alone."""
    with StockClassic(CLASSIC_6) as broker:
        peer = JmsPeer.of(broker, "openwire")

        def die(name: str, size: int) -> JmsMessage:
            [sent] = peer.produce(name, "Bytes", body_size=size)
            peer.fail(name, messages=1)
            return sent

        fits, _ = die("fits", FRAME_BYTES_MAX - 1500), die("exceeds", FRAME_BYTES_MAX - 500)
        policy = write_policy(tmp_path, POLICY)
        with SidecarProcess(tmp_path, broker.openwire_url, policy=policy).start() as sidecar:
            [found] = peer.consume("fits", 1)
            assert found.body == fits.body

            def waiting() -> list[tuple[str, str]]:
                rows = sidecar.rows()
                return [(one["destination"], one["reason"]) for one in rows if one["reason"]]

            [(destination, reason)] = eventually(waiting, what="it waits")
            assert destination == "queue://exceeds"
            assert "wireFormat.maxFrameSize" in reason
            small = die("exceeds", 100)
            [found] = peer.consume("exceeds", 1)
            assert found.body == small.body
            assert len(waiting()) == 1
            assert "link_down" not in [line["event"] for line in sidecar.log_lines()]


def test_every_case_is_recorded_and_printed() -> None:
    """`make field` has run all of them, and the table is fresh."""
    known = recorded()
    assert [(row.broker, row.url) for row in known] == [(case.broker, case.url) for case in CASES]
    assert {row.broker for row in known} == set(stock_brokers())
    assert TABLE.read_text(encoding="utf-8") == table(known), "print it again: make field"


def test_every_refusal_has_its_sentence() -> None:
    """No case ends with an exit code alone, or with a stack trace."""
    for row in recorded():
        assert row.outcome in {"ready", "exit 69", "tries again"}, row
        assert row.outcome == "ready" or len(row.says) == 1, row
        assert not row.left or row.says, row
