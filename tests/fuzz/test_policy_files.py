"""Whatever a policy file holds: rules, or our own error that says where; no traceback, no hang."""

import base64
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from amqsidecar.errors import ConfigError
from amqsidecar.model.dead_letter import DeadLetter
from amqsidecar.model.destination import queue
from amqsidecar.plugin_loader import load_plugins
from amqsidecar.policy_source import load
from amqsidecar.policy_source.load import PREFIX, read_jms_uri
from support.wires.fuzz import damaged, fuzz

# Why: a hang has to end before a person gives up.
pytestmark = pytest.mark.timeout(120)

PLUGINS = load_plugins()
DIGITS = "9" * 5000
BEANS = 'xmlns="http://www.springframework.org/schema/beans"'
CORE = 'xmlns="http://activemq.apache.org/schema/core"'


def parse(path: str, data: bytes) -> str:
    """Return "rules", or "refused" when each problem says where it is.

    Rules must compile and answer about a dead letter.
    """
    refusal = ConfigError([])
    try:
        rules = load.parse_policy(path, data, PLUGINS, {"HOME": "/", "a": "${a}"})
        decider = load.compile_policy(rules, PLUGINS)
    except ConfigError as error:
        refusal = error
    if refusal.problems:
        assert all(problem.where.startswith(path) for problem in refusal.problems), refusal
        assert len(str(refusal)) < 1_000_000
        return "refused"
    letter = DeadLetter(
        destination=queue("orders"),
        redelivery_count=3,
        persistent=True,
        expired=False,
        is_store_duplicate=False,
    )
    decider.decide(letter, lambda: 0.5)
    return "rules"


def classic(inner: str, head: str = "") -> bytes:
    return f"{head}<beans {BEANS}><broker {CORE}>{inner}</broker></beans>".encode()


def policy(attributes: str) -> bytes:
    return classic(
        "<plugins><redeliveryPlugin><redeliveryPolicyMap><redeliveryPolicyMap>"
        f'<redeliveryPolicyEntries><redeliveryPolicy queue="&gt;" {attributes}/>'
        "</redeliveryPolicyEntries></redeliveryPolicyMap></redeliveryPolicyMap>"
        '</redeliveryPlugin><discardingDLQBrokerPlugin dropOnly="a.* b"/></plugins>'
        "<destinationPolicy><policyMap><policyEntries><policyEntry queue='a'>"
        "<deadLetterStrategy><individualDeadLetterStrategy queuePrefix='D.'/>"
        "</deadLetterStrategy></policyEntry></policyEntries></policyMap></destinationPolicy>"
    )


def artemis(settings: str, outside: str = "", head: str = "") -> bytes:
    return (
        f'{head}<configuration><core>{outside}<address-settings><address-setting match="#">'
        f"{settings}</address-setting></address-settings></core></configuration>"
    ).encode()


def beans_that_refer(width: int, depth: int) -> bytes:
    """A page of XML that is 20 ** 12 beans when every reference is followed."""
    region = "org.apache.activemq.broker.region.policy.PolicyMap"
    beans = "".join(
        f'<bean id="b{level}" class="{region}"><property name="entries"><list>'
        + f'<ref bean="b{level + 1}"/>' * width
        + "</list></property></bean>"
        for level in range(depth)
    )
    root = f'<broker {CORE} destinationPolicy="#b0"/>'
    return f"<beans {BEANS}>{root}{beans}</beans>".encode()


def lists_that_refer(width: int, depth: int) -> bytes:
    lists = "".join(
        f'<list id="b{level}">' + f'<ref bean="b{level + 1}"/>' * width + "</list>"
        for level in range(depth)
    )
    return f'<beans {BEANS}><broker {CORE} plugins="#b0"/>{lists}</beans>'.encode()


def laughs(levels: int) -> str:
    """Nine to the power of `levels` texts in a few lines of YAML."""
    lines = ["x0: &x0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    for level in range(1, levels):
        inner = ", ".join([f"*x{level - 1}"] * 9)
        lines.append(f"x{level}: &x{level} [{inner}]")
    return "\n".join(lines) + "\n"


ENTITIES = "".join(
    f'<!ENTITY e{level} "{f"&e{level - 1};" * 10}">' if level else '<!ENTITY e0 "lolololol">'
    for level in range(10)
)
BOMB = f"<!DOCTYPE r [{ENTITIES}]>"
THIEF = '<!DOCTYPE r [<!ENTITY x SYSTEM "file:///etc/hostname">]>'

XML = {
    "entity bomb": artemis("<dead-letter-address>&e9;</dead-letter-address>", head=BOMB),
    "bomb in UTF-16": (
        '<?xml version="1.0" encoding="UTF-16"?>' + BOMB + '<core x="&e9;">&e9;</core>'
    ).encode("utf-16"),
    "external entity": artemis("<dead-letter-address>&x;</dead-letter-address>", head=THIEF),
    "external in UTF-16": (
        '<?xml version="1.0" encoding="UTF-16"?>' + THIEF + "<core>&x;</core>"
    ).encode("utf-16"),
    "deep": artemis("<a>" * 50_000 + "</a>" * 50_000),
    "cut off": policy("")[:-40],
    "digits": policy(f'maximumRedeliveries="{DIGITS}"'),
    "signed digits": policy(f'redeliveryDelay="-{DIGITS}"'),
    "digits of Artemis": artemis(f"<max-delivery-attempts>{DIGITS}</max-delivery-attempts>"),
    "not a number": policy('maximumRedeliveries="three" backOffMultiplier="x" queues="a"'),
    "beans that refer to beans": beans_that_refer(20, 12),
    "lists that refer to lists": lists_that_refer(20, 12),
    "a list that holds itself": lists_that_refer(1, 1).replace(b'"b1"', b'"b0"'),
    "endless placeholders": artemis("<dead-letter-address>${a}</dead-letter-address>"),
    "nothing": b"<",
}
YAML = {
    "laughs": laughs(9),
    "laughs as a value": laughs(9) + "scheduler_support: *x8\n",
    "laughs in a policy": "plugins:\n- redelivery:\n"
    + "".join(f"    {line}\n" for line in laughs(9).splitlines()),
    "itself": "dead_letter: &a {default: *a}\n",
    "deep": "plugins: " + "[" * 300 + "]" * 300,
    "deep maps": "plugins: " + "{a: " * 300 + "}" * 300,
    "digits": f"address_settings:\n- match: a\n  max_delivery_attempts: {DIGITS}\n",
    "hexadecimal digits": f"address_settings:\n- {{match: a, max_delivery_attempts: 0x{DIGITS}}}\n",
    "a number where a float stands": "address_settings:\n- match: a\n"
    f"  redelivery_delay_multiplier: {DIGITS[:2000]}\n",
    "a day that is none": "address_settings:\n- match: 2001-99-99\n",
    "a tag that lies": "plugins: !!int x\n",
    "another tag that lies": "plugins: !!bool x\n",
    "a tag of Python": "plugins: !!python/object/apply:os.system [true]\n",
    "a version": "%YAML 9.9\n---\nplugins: []\n",
    "NUL": "plugins: \0\n",
    "a list as a key": "? [a]\n: b\n",
    "other types": "plugins: 7\ndead_letter: [1]\nscheduler_support: maybe\n",
    "twice": "plugins: []\nplugins: []\n",
    "nothing": "",
}


@pytest.mark.parametrize("data", XML.values(), ids=XML)
def test_hostile_xml_is_refused_with_its_place(data: bytes) -> None:
    assert parse("rules.xml", data) == "refused"


@pytest.mark.parametrize("text", YAML.values(), ids=YAML)
def test_hostile_yaml_is_refused_with_its_place(text: str) -> None:
    assert parse("rules.yaml", text.encode()) == "refused"


def test_what_is_no_utf_8_is_refused() -> None:
    assert parse("rules.yaml", b"plugins: \xff\xfe\xff") == "refused"


def test_no_file_gets_into_what_is_said(tmp_path: Path) -> None:
    """Neither by an entity nor by an include that is no XML."""
    secret = tmp_path / "secret"
    secret.write_text("hunter2")
    entity = THIEF.replace("/etc/hostname", str(secret))
    include = f'<i:include xmlns:i="http://www.w3.org/2001/XInclude" href="{secret}"/>'
    for data in (
        artemis("<dead-letter-address>&x;</dead-letter-address>", head=entity),
        artemis("", outside=include),
    ):
        with pytest.raises(ConfigError) as refused:
            load.parse_policy(str(tmp_path / "broker.xml"), data, PLUGINS, {})
        assert "hunter2" not in str(refused.value)


def test_an_include_without_end_is_refused() -> None:
    """A device that never ends would fill the memory."""
    include = '<i:include xmlns:i="http://www.w3.org/2001/XInclude" href="/dev/zero"/>'
    with pytest.raises(ConfigError, match="/dev/zero: is longer than"):
        load.parse_policy("broker.xml", artemis("", outside=include), PLUGINS, {})


words = st.sampled_from(
    (
        *("true", "-1", "0", "1e400", "NaN", "0x1", "#7", "", " ", "${a}", "${b:1}", "#a", ">"),
        *("a,b", "*", "topic://x", "９", "\x85", "𝔸", DIGITS, "2147483648", "9223372036854775808"),
    )
) | st.text(max_size=8)
ATTRIBUTES = (
    *("maximumRedeliveries", "redeliveryDelay", "backOffMultiplier", "useExponentialBackOff"),
    *("collisionAvoidancePercent", "queue", "topic", "tempQueue", "destination", "nonsense"),
)
ELEMENTS = (
    *("redelivery-delay", "redelivery-delay-multiplier", "max-delivery-attempts"),
    *("dead-letter-address", "expiry-delay", "redelivery-collision-avoidance-factor", "nonsense"),
)
YAML_KEYS = (
    *("plugins", "redelivery", "discarding", "dead_letter", "policies", "default", "queue"),
    *("address_settings", "match", "max_delivery_attempts", "redelivery_delay_multiplier"),
    *("maximum_redeliveries", "redelivery_delay_ms", "scheduler_support", "drop_only", "a"),
    *("wildcard_addresses", "literal_match_markers", "delimiter", "strategy", "shared"),
)


def escaped(text: str) -> str:
    return "".join(
        f"&#{ord(char)};" if char in "<>&\"'\t\n\r" else char
        for char in text
        if char >= " " or char in "\t\n\r"
    )


@fuzz
@given(st.dictionaries(st.sampled_from(ATTRIBUTES), words, max_size=4))
def test_any_value_of_an_attribute(values: dict[str, str]) -> None:
    values = {"queue": "a", **values}
    attributes = " ".join(f'{name}="{escaped(text)}"' for name, text in values.items())
    parse("activemq.xml", policy(attributes).replace(b'queue="&gt;" ', b""))


@fuzz
@given(st.dictionaries(st.sampled_from(ELEMENTS), words, max_size=4))
def test_any_value_of_an_element(values: dict[str, str]) -> None:
    inner = "".join(f"<{name}>{escaped(text)}</{name}>" for name, text in values.items())
    parse("broker.xml", artemis(inner))


@fuzz
@given(damaged(st.sampled_from((policy('maximumRedeliveries="3"'), *XML.values())[:3])))
def test_damaged_xml(data: bytes) -> None:
    parse("rules.xml", data)


@fuzz
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | words,
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.sampled_from(YAML_KEYS), inner, max_size=4)
        ),
        max_leaves=12,
    )
)
def test_any_tree_of_yaml(tree: object) -> None:
    """As JSON, which is YAML; texts in Base64 where JSON would escape a surrogate."""
    parse("rules.yaml", as_yaml(tree).encode())


def as_yaml(tree: object) -> str:
    match tree:
        case dict():
            return "{" + ", ".join(f"{key}: {as_yaml(one)}" for key, one in tree.items()) + "}"
        case list():
            return "[" + ", ".join(map(as_yaml, tree)) + "]"
        case str():
            return f"!!binary {base64.b64encode(tree.encode()).decode()}" if tree == "a" else tree
        case None:
            return "~"
        case _:
            return str(tree).lower()


@fuzz
@given(damaged(st.sampled_from([text.encode() for text in YAML.values()][3:4]) | st.binary()))
@example(b"plugins: !!set {a}")
@example(b"- - - - &a !!map")
@example(b"plugins: &a []\ndead_letter: &a {}\n")
def test_damaged_yaml(data: bytes) -> None:
    parse("rules.yaml", data)


@fuzz
@given(
    st.lists(st.tuples(st.sampled_from(("maximumRedeliveries", "backOffMultiplier", "x")), words)),
    words,
)
@example([("maximumRedeliveries", DIGITS)], "failover:(")
def test_any_connection_uri(options: list[tuple[str, str]], place: str) -> None:
    query = "&".join(f"{PREFIX}{name}={text}" for name, text in options)
    with suppress(ConfigError):
        read_jms_uri(f"{place}?{query}")
