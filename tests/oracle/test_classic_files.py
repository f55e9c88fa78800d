"""Files of Classic as people write them, read by the broker's own factory and by us.

Each file mixes what Spring offers: inheritance, references, aliases, imports, placeholders and
overrides. Both must take it, with the same decisions, or both must refuse it.
"""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from amqsidecar.errors import ConfigError
from amqsidecar.model.dead_letter import DeadLetter
from amqsidecar.model.destination import parse_destination
from amqsidecar.plugin_loader import load_plugins
from amqsidecar.policy.chain import compile_classic
from amqsidecar.policy.classic_rules import ClassicRules
from amqsidecar.policy_source.load import load_policy
from oracle.test_classic_oracle import ask_broker, describe
from support import versions
from support.tier import at_length

pytestmark = pytest.mark.oracle

FILES = at_length(10_000, otherwise=100)
CASES = [(f"queue://{name}", count) for name in ("orders", "news") for count in (0, 1, 3)]
_SPRING = "http://www.springframework.org/schema"
_CORE = "http://activemq.apache.org/schema/core"
HEAD = (
    f'<beans xmlns="{_SPRING}/beans" xmlns:p="{_SPRING}/p" xmlns:util="{_SPRING}/util" '
    f'xmlns:context="{_SPRING}/context" xmlns:amq="{_CORE}" '
    'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:schemaLocation="'
    + " ".join(
        f"{_SPRING}/{one} {_SPRING}/{one}/spring-{one}.xsd" for one in ("beans", "util", "context")
    )
    + f' {_CORE} {_CORE}/activemq-core.xsd">\n'
)
_CONFIG = "org.springframework.beans.factory.config."
_PLACEHOLDERS = f"{_CONFIG}PropertyPlaceholderConfigurer"
_SOURCES = "org.springframework.context.support.PropertySourcesPlaceholderConfigurer"
_POLICY = "org.apache.activemq.RedeliveryPolicy"
_MAP = "org.apache.activemq.broker.region.policy.RedeliveryPolicyMap"
_STRATEGY = "org.apache.activemq.broker.region.policy.IndividualDeadLetterStrategy"
_NUMBERS = {
    "maximumRedeliveries": (0, 1, 2, 5),
    "initialRedeliveryDelay": (1000, 2000, 5000),
    "redeliveryDelay": (1500, 7000),
}


class File:
    """One file with the files that it names, out of chance."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.path = folder / "activemq.xml"
        self._random = random.Random(seed)
        self._folder = folder
        self._properties: dict[str, str] = {}
        self._heads: list[str] = []
        self._number = 0
        # Why not with two maps: the broker checks what is never used, too.
        self._has_bad_attribute = self._maybe(0.1)
        self._has_configurer = self._maybe(0.95)
        body = self._body()
        self._heads += self._configurers()
        self._random.shuffle(self._heads)
        self.path.write_text(HEAD + "\n".join([*self._heads, body]) + "\n</beans>")

    def _maybe(self, share: float = 0.5) -> bool:
        return self._random.random() < share

    def _name(self) -> str:
        self._number += 1
        return f"one{self._number}"

    def _value(self, text: object, *, may_be_placeholder: bool = True) -> str:
        """Return a value as it is, or as a placeholder."""
        # Why a text: without a configurer it stays as it is written, and a number is refused.
        may_be_placeholder &= self._has_configurer or isinstance(text, str)
        if not may_be_placeholder or self._maybe(0.6):
            return str(text)
        name = f"my.{self._name()}"
        if self._maybe(0.3):
            return f"${{{name}:{text}}}"
        self._properties[name] = str(text)
        return f"${{{name}}}"

    def _property(self, name: str, text: str) -> tuple[str, str]:
        """Return an attribute, or a child."""
        if self._maybe(0.4):
            return f' p:{name}="{text}"', ""
        if self._maybe():
            return "", f'<property name="{name}" value="{text}"/>'
        return "", f'<property name="{name}"><value>{text}</value></property>'

    def _numbers(self) -> dict[str, int]:
        return {
            name: self._random.choice(numbers)
            for name, numbers in _NUMBERS.items()
            if self._maybe(0.7)
        }

    def _bean(
        self, kind: str, values: dict[str, str], attributes: str = "", inner: str = ""
    ) -> str:
        parts = [self._property(name, text) for name, text in values.items()]
        written = "".join(one for one, _ in parts), "".join(one for _, one in parts)
        kind = f' class="{kind}"' if kind else ""
        return f"<bean{kind}{attributes}{written[0]}>{written[1]}{inner}</bean>"

    def _inherited(self, kind: str, values: Callable[[], dict[str, str]], extra: str = "") -> str:
        """Return an inner bean that may inherit from a named one."""
        if self._maybe():
            return self._bean(kind, values() | ({"queue": extra} if extra else {}))
        parent = self._name()
        is_abstract = ' abstract="true"' if self._maybe() else ""
        self._heads.append(self._bean(kind, values(), f' id="{parent}"{is_abstract}'))
        own = values() | ({"queue": extra} if extra else {})
        return self._bean(self._random.choice((kind, "")), own, f' parent="{self._called(parent)}"')

    def _called(self, name: str) -> str:
        """Return the name of a bean, or an alias of it."""
        if self._maybe(0.7):
            return name
        alias = self._name()
        self._heads.append(f'<alias name="{name}" alias="{alias}"/>')
        return alias

    def _policy(self, destination: str = "") -> str:
        def values() -> dict[str, str]:
            return {name: self._value(number) for name, number in self._numbers().items()}

        if self._maybe(0.3):
            attributes = "".join(
                f' {name}="{self._value(number, may_be_placeholder=self._has_bad_attribute)}"'
                for name, number in self._numbers().items()
            )
            queue = f' queue="{destination}"' if destination else ""
            return f"<amq:redeliveryPolicy{queue}{attributes}/>"
        return self._inherited(_POLICY, values, destination)

    def _defined(self, name: str, text: str) -> None:
        """Define a bean in this file or in an imported one."""
        if self._maybe(0.7):
            self._heads.append(text)
            return
        self._import(text)
        if self._maybe(0.3) and not self._has_bad_attribute:
            # The same name in both files: the last definition counts.
            self._heads.append(self._map(name))

    def _import(self, text: str) -> None:
        file = f"{self._name()}.xml"
        (self._folder / file).write_text(f"{HEAD}{text}\n</beans>")
        prefix = self._random.choice(("", f"file:{self._folder}/"))
        self._heads.append(f'<import resource="{prefix}{file}"/>')

    def _map(self, name: str) -> str:
        entries = f"<list>{self._policy('orders')}</list>"
        inner = f'<property name="redeliveryPolicyEntries">{entries}</property>' * self._maybe()
        if self._maybe(0.8):
            inner += f'<property name="defaultEntry">{self._policy()}</property>'
        names = f' id="{name}"' if self._maybe() else f' name="{name}, {self._name()}"'
        if self._maybe(0.3):
            parent = self._name()
            entries = f"<list>{self._policy('news')}</list>"
            self._heads.append(
                f'<bean id="{parent}" class="{_MAP}"><property name="redeliveryPolicyEntries">'
                f"{entries}</property></bean>"
            )
            names += f' parent="{parent}"'
            inner = inner.replace("<list>", '<list merge="true">')
        return f'<bean{names} class="{_MAP}">{inner}</bean>'

    def _body(self) -> str:
        self._defined("map", self._map("map"))
        strategy = ""
        if self._maybe():
            bean = self._inherited(_STRATEGY, lambda: {"queuePrefix": self._value("D.")})
            # Why: inside the broker's element the namespace is another one.
            bean = bean.replace("<bean", f'<bean xmlns="{_SPRING}/beans"', 1)
            strategy = (
                "<destinationPolicy><policyMap><policyEntries><policyEntry queue='>'>"
                f"<deadLetterStrategy>{bean}</deadLetterStrategy>"
                "</policyEntry></policyEntries></policyMap></destinationPolicy>"
            )
        return (
            f'<broker xmlns="{_CORE}" persistent="false" useJmx="false" schedulerSupport="true">'
            f'{strategy}<plugins><redeliveryPlugin redeliveryPolicyMap="#{self._called("map")}"/>'
            "</plugins></broker>"
        )

    def _configurers(self) -> Iterator[str]:
        if self._maybe(0.2):
            bean = self._name()
            self._heads.append(f'<amq:redeliveryPolicy id="{bean}" maximumRedeliveries="9"/>')
            text = f"{bean}.maximumRedeliveries=1"
            yield (
                f'<bean class="{_CONFIG}PropertyOverrideConfigurer"><property name="properties">'
                f"<value>{text}</value></property></bean>"
            )
        if not self._has_configurer:
            return
        text = "\n".join(f"{name}={value}" for name, value in self._properties.items())
        file = self._folder / "my.properties"
        if self._maybe(0.4):
            file.write_text(f"# those of this site\n{text}\n")
            if self._maybe(0.3):
                yield f'<context:property-placeholder location="file:{file}"/>'
            else:
                name = self._random.choice(("location", "locations"))
                kind = self._random.choice((_PLACEHOLDERS, _SOURCES))
                yield f'<bean class="{kind}"><property name="{name}" value="file:{file}"/></bean>'
        elif self._maybe():
            kind = self._random.choice((_PLACEHOLDERS, _SOURCES))
            yield (
                f'<bean class="{kind}"><property name="properties"><value>{text}</value></property>'
                "</bean>"
            )
        else:
            rows = "".join(
                f'<prop key="{name}">{value}</prop>' for name, value in self._properties.items()
            )
            yield f'<util:properties id="own">{rows}</util:properties>'
            yield f'<bean class="{_PLACEHOLDERS}"><property name="properties" ref="own"/></bean>'


def answer(path: Path) -> str:
    """Return our decisions on all cases; or that the file is refused."""
    plugins = load_plugins()
    try:
        rules = load_policy(path, plugins, {})
    except ConfigError:
        return "refused"
    assert isinstance(rules, ClassicRules)
    chain = compile_classic(rules, plugins)
    return "\n".join(
        describe(chain.decide(DeadLetter(parse_destination(name), count), lambda: 0.0))
        for name, count in CASES
    )


@pytest.mark.timeout(at_length(3600, otherwise=300))
@pytest.mark.parametrize(
    "version", [versions.CLASSIC_6, pytest.param(versions.CLASSIC_5, marks=pytest.mark.proof)]
)
def test_a_file_is_read_as_the_broker_reads_it(version: str, tmp_path: Path) -> None:
    files = []
    for seed in range(FILES):
        folder = tmp_path / str(seed)
        folder.mkdir()
        files.append(File(seed, folder).path)
    lines = []
    for path in files:
        lines.append(f"config\t{path}")
        lines += [
            f"case\t{name}\t{count}\ttrue\tfalse\tfalse\t\t0.25\t0.0" for name, count in CASES
        ]
    answers = iter(ask_broker(version, lines))
    refused = 0
    different = []
    for path in files:
        head = next(answers)
        decided = [next(answers).partition("\tambiguous")[0] for _ in CASES]
        expected = "refused" if head != "configured" else "\n".join(decided)
        refused += head != "configured"
        if (ours := answer(path)) != expected:
            different.append(f"{path}: broker {head} {expected!r}, sidecar {ours!r}")
    print(f"{len(files)} files, {refused} of them refused, {len(different)} differ")
    assert not different, "\n".join(different[:9])
    assert 0 < refused < len(files) / 4
