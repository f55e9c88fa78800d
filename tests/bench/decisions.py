"""What a decision costs with one rule and with many, in-process and by `explain --batch`."""

import json
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from amqsidecar.model.dead_letter import DeadLetter
from amqsidecar.model.destination import queue
from amqsidecar.plugin import Decider
from amqsidecar.plugin_loader import load_plugins
from amqsidecar.policy_source.load import compile_policy, load_policy
from support.sidecar_process import COMMAND

KINDS = ("classic", "artemis")


class Decisions(NamedTuple):
    """Cost of decisions.

    Attributes:
        known_us: per decision on destinations that were seen before.
        new_us: per decision on destinations that come for the first time.
        batch_s: `explain --batch` over all cases, the start of the process included.
    """

    known_us: float
    new_us: float
    batch_s: float


def bench_decisions(folder: Path, kind: str, *, rules: int, cases: int) -> Decisions:
    policy = folder / f"{kind}-{rules}.xml"
    policy.write_text(_classic_xml(rules) if kind == "classic" else _artemis_xml(rules))
    plugins = load_plugins()
    decider = compile_policy(load_policy(policy, plugins), plugins)
    known = [f"orders.{number % 1000}.new" for number in range(cases)]
    new = [f"orders.{number % 1000}.new.{number}" for number in range(cases)]
    _each_us(decider, known[:1000])
    return Decisions(
        known_us=_each_us(decider, known),
        new_us=_each_us(decider, new),
        batch_s=_batch_s(folder, policy, kind, known),
    )


def _each_us(decider: Decider, names: list[str]) -> float:
    dead = [DeadLetter(queue(name), number % 4) for number, name in enumerate(names)]
    decide = decider.decide
    began = time.perf_counter()
    for one in dead:
        decide(one, None)
    return (time.perf_counter() - began) / len(dead) * 1e6


def _batch_s(folder: Path, policy: Path, kind: str, names: list[str]) -> float:
    lines = folder / "cases.jsonl"
    with lines.open("w") as out:
        for number, name in enumerate(names):
            case = (
                {"destination": f"queue://{name}", "redelivery_count": number % 4}
                if kind == "classic"
                else {"address": name, "delivery_count": number % 4 + 1}
            )
            out.write(json.dumps(case) + "\n")
    began = time.perf_counter()
    with lines.open("rb") as source:
        done = subprocess.run(
            [*COMMAND, "explain", "--batch", "--set", f"policy.source={policy}"],
            stdin=source,
            capture_output=True,
            check=True,
            timeout=300,
        )
    elapsed = time.perf_counter() - began
    assert done.stdout.count(b"\n") == len(names)
    return elapsed


def _classic_xml(rules: int) -> str:
    entries = "\n".join(
        f'<redeliveryPolicy queue="orders.{number}.&gt;" maximumRedeliveries="{number % 7}" '
        f'initialRedeliveryDelay="{1000 + number}" useExponentialBackOff="true" '
        'backOffMultiplier="2"/>'
        for number in range(rules)
    )
    return f"""
<beans xmlns="http://www.springframework.org/schema/beans">
  <broker xmlns="http://activemq.apache.org/schema/core" schedulerSupport="true">
    <plugins>
      <redeliveryPlugin>
        <redeliveryPolicyMap><redeliveryPolicyMap>
          <redeliveryPolicyEntries>
{entries}
          </redeliveryPolicyEntries>
          <defaultEntry>
            <redeliveryPolicy maximumRedeliveries="4" useExponentialBackOff="true"
                              backOffMultiplier="2"/>
          </defaultEntry>
        </redeliveryPolicyMap></redeliveryPolicyMap>
      </redeliveryPlugin>
    </plugins>
  </broker>
</beans>
"""


def _artemis_xml(rules: int) -> str:
    settings = "\n".join(
        f'<address-setting match="orders.{number}.#"><redelivery-delay>{1000 + number}'
        "</redelivery-delay><redelivery-delay-multiplier>2</redelivery-delay-multiplier>"
        f"<max-delivery-attempts>{number % 7 + 1}</max-delivery-attempts></address-setting>"
        for number in range(rules)
    )
    return f"""
<configuration xmlns="urn:activemq">
  <core xmlns="urn:activemq:core">
    <address-settings>
      <address-setting match="#">
        <dead-letter-address>DLQ</dead-letter-address>
        <redelivery-delay>1000</redelivery-delay>
        <redelivery-delay-multiplier>2</redelivery-delay-multiplier>
      </address-setting>
{settings}
    </address-settings>
  </core>
</configuration>
"""
