"""A subscription that can't work is refused with its name, and no secret is shown."""

import pytest

from amqsidecar.config.load import load_config
from amqsidecar.errors import ConfigError


def about(options: str) -> str:
    config = load_config(None, [f"webhooks.subscriptions={{a: {options}}}"], {})
    return config.webhooks.subscriptions["a"].about


def test_a_subscription_is_described_without_its_path() -> None:
    said = about("{url: 'https://x.example/secret', events: exhausted, destinations: orders.>}")
    assert said == "cloudevents to x.example: exhausted; orders.>"
    assert about("{url_file: /run/x, format: slack, events: oldest}") == "slack: oldest"
    assert about("{format: pagerduty, secret_file: /run/x, events: oldest}") == "pagerduty: oldest"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("{}", "give url, or url_file"),
        ("{url: 'http://x.example/'}", r"a\.url: expected a URL such as https"),
        ("{url: 'https://ann@x.example/'}", r"a\.url: expected"),
        ("{url: 'https://x.example/', url_file: /run/x}", "give url, or url_file"),
        ("{url: 'https://x.example/', format: xml}", "format: expected cloudevents"),
        ("{url: 'https://x.example/', events: nothing}", r"a\.events"),
        ("{url: 'https://x.example/', events: test}", "events: expected"),
        ("{url: 'https://x.example/', oldest_minutes: 0}", r"a\.oldest_minutes"),
        ("{url: 'https://x.example/', allowed_networks: here}", r"a\.allowed_networks"),
        ("{url: 'https://x.example/', unknown: 1}", r"a\.unknown"),
        ("{format: pagerduty}", "secret_file: is not set"),
    ],
)
def test_what_can_t_work_is_refused(options: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        about(options)


def test_names_are_plain_and_subscriptions_few() -> None:
    for given in ("{'a b': {url: 'https://x.example/'}}", "[1]"):
        with pytest.raises(ConfigError, match=r"a name has|expected a mapping"):
            load_config(None, [f"webhooks.subscriptions={given}"], {})
    many = ", ".join(f"n{one}: {{url: 'https://x.example/'}}" for one in range(11))
    with pytest.raises(ConfigError, match="at most 10"):
        load_config(None, [f"webhooks.subscriptions={{{many}}}"], {})


def test_a_schedule_in_the_broker_has_no_outbox() -> None:
    sets = ["store.url=broker:", "webhooks.subscriptions={a: {url: 'https://x.example/'}}"]
    with pytest.raises(ConfigError, match=r"webhooks\.subscriptions: need a store"):
        load_config(None, sets, {})
