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
from support.sidecar.process import COMMAND

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


def _names(rules: int) -> list[str]:
    """Return what the rules match: all destinations, or one of a thousand each."""
    return ["orders"] if rules == 1 else [f"orders.{number}" for number in range(rules)]


# Why: all rules decide alike, so that only their number differs between two runs.


def _classic_xml(rules: int) -> str:
    entries = "\n".join(
        f'<redeliveryPolicy queue="{name}.&gt;" maximumRedeliveries="5" '
        'initialRedeliveryDelay="1000" useExponentialBackOff="true" backOffMultiplier="2"/>'
        for name in _names(rules)
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
          <defaultEntry><redeliveryPolicy maximumRedeliveries="5"/></defaultEntry>
        </redeliveryPolicyMap></redeliveryPolicyMap>
      </redeliveryPlugin>
    </plugins>
  </broker>
</beans>
"""


def _artemis_xml(rules: int) -> str:
    settings = "\n".join(
        f'<address-setting match="{name}.#"><redelivery-delay>1000</redelivery-delay>'
        "<redelivery-delay-multiplier>2</redelivery-delay-multiplier>"
        "<max-delivery-attempts>6</max-delivery-attempts></address-setting>"
        for name in _names(rules)
    )
    return f"""
<configuration xmlns="urn:activemq">
  <core xmlns="urn:activemq:core">
    <address-settings>
      <address-setting match="#"><dead-letter-address>DLQ</dead-letter-address></address-setting>
{settings}
    </address-settings>
  </core>
</configuration>
"""
