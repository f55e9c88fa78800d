"""The same rules have the same digest, wherever they were read; others have another one."""

from pathlib import Path

from amqsidecar.config.load import load_config
from amqsidecar.plugin_loader import load_plugins
from amqsidecar.policy.rule_source import RuleSource
from amqsidecar.policy.rules import Rules
from amqsidecar.policy_source.digest import rules_digest
from amqsidecar.policy_source.policy_yaml import read_policy_mapping, read_yaml
from amqsidecar.policy_source.yaml_writer import write_yaml

POLICY = """
plugins:
  - redelivery:
      default_entry: {maximum_redeliveries: 5, initial_redelivery_delay_ms: 1000}
"""


def read(text: str, path: str) -> Rules:
    return read_policy_mapping(read_yaml(path, text.encode()), RuleSource(path), load_plugins())


def test_a_digest_distinguishes_rules_and_not_their_files() -> None:
    rules = read(POLICY, "a.yaml")
    copied = read(f"# a comment\n\n{write_yaml(rules)}", "folder/b.yaml")
    changed = read(POLICY.replace("5", "6"), "a.yaml")
    assert rules_digest(rules) == rules_digest(copied)
    assert len({rules_digest(one) for one in (rules, changed, None)}) == 3
    assert len(rules_digest(rules)) == 16


GATES = """
policy:
  gates:
    - pace: {per_second: 5, burst: 10}
    - windows: {closed: [{days: [sat, sun]}]}
"""


def test_gates_belong_to_the_rules(tmp_path: Path) -> None:
    """They decide when messages are sent; their order counts, that of their options does not."""
    texts = {
        "first": GATES,
        "commented": GATES.replace("per_second: 5, burst: 10", "burst: 10, per_second: 5 "),
        "faster": GATES.replace("5", "6"),
        "swapped": "policy: {gates: [{windows: {closed: [{days: [sat, sun]}]}}, "
        "{pace: {per_second: 5, burst: 10}}]}",
        "none": "policy: {}",
    }
    digests = {}
    for name, text in texts.items():
        file = tmp_path / f"{name}.yaml"
        file.write_text(text)
        digests[name] = rules_digest(None, load_config(file, (), {}).policy.gates)
    assert digests["first"] == digests["commented"]
    assert digests["none"] == rules_digest(None)
    assert len(set(digests.values())) == 4
