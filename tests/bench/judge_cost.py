"""What a verdict on a dead letter costs: without rules beyond the broker's, with them, with fields.

Run: `python -m bench.judge_cost` in `tests/`; it prints µs of processor time a verdict, and ratios:
the least of several rounds that take turns.
"""

import json
import time
from collections.abc import Callable, Mapping
from typing import Final

from amqsidecar.broker import BrokerKind, Delivery
from amqsidecar.config.load import load_config
from amqsidecar.engine.judging.death_groups import DeathGroups, no_note
from amqsidecar.engine.judging.judge import Judge, Readers
from amqsidecar.engine.judging.send_rules import SendRules
from amqsidecar.messages.facts import delivery_facts
from amqsidecar.model.destination import queue
from amqsidecar.model.provenance import Provenance
from amqsidecar.plugin import RuleSource
from amqsidecar.plugin_loader import load_plugins
from amqsidecar.policy_source.load import compile_policy
from amqsidecar.policy_source.policy_yaml import read_policy_mapping
from amqsidecar.wiring.rules import load_grouping
from support.wires import openwire as wire
from support.wires.openwire import WireMessage

VERDICTS: Final = 5_000
ROUNDS: Final = 7
_CAUSE: Final = "java.lang.IllegalStateException: order {} has no customer"
_BODY: Final = json.dumps({"kind": "order", "items": ["x" * 20] * 40}).encode()
_RULES: Final[list[Mapping[str, object]]] = [
    {"queue": f"other.{number}.>", "cause_class": "X", "action": "park"} for number in range(100)
] + [
    {"queue": "orders.>", "least_redelivery_count": 9, "action": "exhaust"},
    {"queue": "orders.>", "cause_class": "ConnectException", "action": "park"},
    {"queue": "orders.>", "properties": {"code": "E9"}, "action": "park"},
]


def deliveries(count: int) -> list[Delivery]:
    message = WireMessage(
        content=len(_BODY).to_bytes(4, "big") + _BODY,
        properties=wire.property_map(
            wire.text_entry("code", "E1"), *(wire.int_entry(f"n{n}", n) for n in range(8))
        ),
    ).encoded()
    return [
        Delivery(
            number,
            queue("DLQ"),
            message,
            Provenance(origin=queue(f"orders.{number % 50}"), cause=_CAUSE.format(number)),
            "openwire/12",
        )
        for number in range(count)
    ]


def judge_of(*plugins: Mapping[str, object], group_by: str = "{}") -> Judge:
    installed = load_plugins()
    content = {"plugins": [{"redelivery": {"default_entry": {}}}, *plugins]}
    rules = compile_policy(read_policy_mapping(content, RuleSource("p"), installed), installed)
    config = load_config(None, (f"intake.group_by={group_by}",), {})
    return Judge(
        rules,
        SendRules(BrokerKind.CLASSIC, lambda _: False, ".exhausted"),
        lambda: 0.5,
        Readers(
            death_group=DeathGroups(load_grouping(config), no_note).of_delivery,
            facts=delivery_facts if getattr(rules, "asks", ()) else None,
        ),
        keeps_exhausted=True,
    )


def seconds(judge: Judge, dead: list[Delivery]) -> float:
    began = time.process_time()
    for number, one in enumerate(dead):
        judge.judge(one, "i1", number, 1_000, is_backlog=False)
    return time.process_time() - began


def main(
    write: Callable[[str], None] = print, verdicts: int = VERDICTS, rounds: int = ROUNDS
) -> None:
    judges = {
        "off": judge_of(),
        "103 rules": judge_of({"rules": {"rules": _RULES}}),
        "a property": judge_of(group_by="{default_entry: {fields: [property:code]}}"),
        "a path": judge_of(group_by='{default_entry: {fields: ["json:/kind"]}}'),
    }
    dead = deliveries(verdicts)
    best = {
        name: min(times)
        for name, times in zip(
            judges,
            zip(
                *([seconds(judge, dead) for judge in judges.values()] for _ in range(rounds)),
                strict=True,
            ),
            strict=True,
        )
    }
    for name, taken in best.items():
        write(f"{name}: {taken / verdicts * 1e6:.2f} µs, {taken / best['off']:.2f} times")


if __name__ == "__main__":
    main()
