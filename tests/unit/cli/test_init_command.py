"""`init` writes a configuration that loads, keeps the password apart, and overwrites nothing."""

import io
import os
import sys
from pathlib import Path

import pytest

from amqsidecar.cli import main
from amqsidecar.config.load import check_start, load_config
from amqsidecar.plugin_loader import load_plugins
from amqsidecar.policy.artemis_rules import ArtemisRules
from amqsidecar.policy.classic_rules import ClassicRules
from amqsidecar.policy_source.load import compile_policy, load_policy
from support.machine.ports import free_port
from support.sidecar.terminal import Hidden, Question, answered

URLS = {"classic": "openwire://localhost:61616", "artemis": "artemis://localhost:61616"}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def init(*arguments: str) -> int:
    return main.run_command_line(["init", "--no-doctor", *arguments])


@pytest.mark.parametrize(("kind", "rules"), [("classic", ClassicRules), ("artemis", ArtemisRules)])
def test_the_starting_policy_is_of_the_brokers_own_kind_and_has_no_warnings(
    kind: str, rules: type, tmp_path: Path
) -> None:
    assert init("--url", URLS[kind]) == 0
    config = load_config(tmp_path / "amqsidecar.yaml", (), {})
    assert check_start(config) == []
    assert [str(url) for url in config.broker.url] == [URLS[kind]]
    assert config.broker.kind == kind
    assert config.store.url == f"sqlite://{tmp_path}/schedule.db"
    assert config.policy.source is not None
    policy = load_policy(config.policy.source, load_plugins())
    assert isinstance(policy, rules)
    # The one that is left is about the broker's own dead-letter strategy, as it is out of the box.
    assert all("processNonPersistent is false" in one for one in policy.warnings)
    compile_policy(policy, load_plugins())


def test_a_password_goes_into_a_file_of_its_owner_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("geheim: #1\n"))
    assert init("--url", "openwire://sidecar@localhost:61616", "--password-stdin") == 0
    file = tmp_path / "broker-password"
    assert file.stat().st_mode & 0o777 == 0o600
    config = load_config(tmp_path / "amqsidecar.yaml", (), {})
    assert config.broker.password_file == file
    password = config.broker.password()
    assert password is not None
    assert password.reveal() == "geheim: #1"
    assert "geheim" not in (tmp_path / "amqsidecar.yaml").read_text()


def test_the_brokers_own_file_and_a_password_file_are_named_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "activemq.xml").write_text("<beans/>")
    (tmp_path / "secret").write_text("geheim")
    asked = ["--policy-from", "conf/activemq.xml", "--password-file", "secret"]
    assert init("--url", "openwire://a%40b@localhost", *asked, "--config", "conf/new.yaml") == 0
    config = load_config(tmp_path / "conf" / "new.yaml", (), {})
    assert config.policy.source == tmp_path / "conf" / "activemq.xml"
    assert config.broker.password_file == tmp_path / "secret"
    assert config.broker.url[0].user == "a@b"
    assert not (tmp_path / "conf" / "policy.yaml").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "is needed without a terminal"),
        (["--url", "openwire://a:geheim@localhost"], "can be seen by others"),
        (["--url", "openwire://a@localhost"], "a has no password"),
        (["--url", "openwire://localhost", "--password-stdin"], "a password needs a user"),
        (["--url", "stomp://localhost"], "needs classic or artemis"),
        (["--url", "localhost"], "expected scheme://host:port"),
        (["--url", "openwire://localhost", "--policy-from", "no.xml"], "no.xml is no file"),
        (["--url", "openwire://localhost", "--store", "mysql:x"], "expected sqlite:///"),
    ],
)
def test_wrong_usage_writes_nothing(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init(*arguments) == 2
    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert words in said
    assert "geheim" not in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["amqsidecar.yaml", "policy.yaml"])
def test_nothing_is_overwritten(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("mine")
    assert init("--url", "openwire://localhost") == 2
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"


@pytest.mark.parametrize("name", ["amqsidecar.yaml", "policy.yaml", "broker-password"])
def test_a_link_to_nothing_is_no_place_for_a_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).symlink_to(tmp_path / "missing")
    monkeypatch.setattr(sys, "stdin", io.StringIO("geheim\n"))
    assert init("--url", "openwire://sidecar@localhost:61616", "--password-stdin") == 2
    assert f"{name} already exists and is not overwritten" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_on_a_terminal_it_asks_and_does_not_show_the_password(tmp_path: Path) -> None:
    code, shown = answered(
        [sys.executable, "-m", "amqsidecar", "init", "--no-doctor"],
        [
            (Question("Broker ("), "amqp://sidecar@localhost:1"),
            (Question("starting policy)"), ""),
            (Question("only show dead letters"), ""),
            (Question("messages are kept"), ""),
            (Hidden("Password of sidecar"), "geheim"),
        ],
        folder=tmp_path,
        environment=os.environ,
    )
    assert code == 0, shown
    assert "geheim" not in shown
    config = load_config(tmp_path / "amqsidecar.yaml", (), {})
    assert config.broker.kind == "artemis"
    assert config.redelivery.mode == "manual"
    password = config.broker.password()
    assert password is not None
    assert password.reveal() == "geheim"


NEVER = "address_settings: [{match: '#', max_delivery_attempts: 1, dead_letter_address: DLQ}]"


def test_a_policy_that_never_redelivers_is_said_and_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "given.yaml").write_text(NEVER, encoding="utf-8")
    assert init("--url", URLS["artemis"], "--policy-from", "given.yaml") == 0
    assert "given.yaml never redelivers: " in capsys.readouterr().err
    config = load_config(tmp_path / "amqsidecar.yaml", (), {})
    assert config.policy.source == tmp_path / "given.yaml"


def test_on_a_terminal_a_starting_policy_can_replace_such_a_policy(tmp_path: Path) -> None:
    (tmp_path / "given.yaml").write_text(NEVER, encoding="utf-8")
    code, shown = answered(
        [sys.executable, "-m", "amqsidecar", "init", "--no-doctor", "--url", URLS["artemis"]],
        [
            (Question("starting policy)"), "given.yaml"),
            (Question("Write a starting policy instead?"), "y"),
            (Question("only show dead letters"), "n"),
            (Question("messages are kept"), ""),
        ],
        folder=tmp_path,
        environment=os.environ,
    )
    assert code == 0, shown
    config = load_config(tmp_path / "amqsidecar.yaml", (), {})
    assert config.policy.source == tmp_path / "policy.yaml"
    assert config.redelivery.mode == "automatic"


def test_after_a_wrong_host_it_can_be_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = ["init", "--url", f"artemis://sidecar@127.0.0.1:{free_port()}", "--password-stdin"]
    for _ in range(2):
        monkeypatch.setattr(sys, "stdin", io.StringIO("geheim\n"))
        assert main.run_command_line(wrong) == 69
        assert "wrote nothing" in capsys.readouterr().err
        assert list(tmp_path.iterdir()) == []


# --- the configuration that is read when none is named ------------------------------------------


def test_the_file_in_the_folder_is_read_and_others_win(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def store_of(*arguments: str) -> str:
        main.run_command_line(["list", *arguments])
        return capsys.readouterr().err

    for name in ("here", "variable", "option"):
        (tmp_path / f"{name}.yaml").write_text(f"store: {{url: 'sqlite://{tmp_path}/{name}.db'}}")
    said = store_of()
    assert "/var/lib/amqsidecar/schedule.db" in said
    assert "there is no amqsidecar.yaml in this folder" in said
    (tmp_path / "here.yaml").rename("amqsidecar.yaml")
    said = store_of()
    assert f"{tmp_path}/here.db does not exist" in said
    assert "in this folder" not in said
    monkeypatch.setenv("AMQSIDECAR_CONFIG", "variable.yaml")
    assert f"{tmp_path}/variable.db does not exist" in store_of()
    assert f"{tmp_path}/option.db does not exist" in store_of("--config", "option.yaml")
    monkeypatch.setenv("AMQSIDECAR_CONFIG", "none.yaml")
    assert "none.yaml: can't be read" in store_of()
