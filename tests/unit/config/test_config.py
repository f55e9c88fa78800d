"""Options come from file, environment and --set; all problems are reported at once, with places."""

import copy
import pickle
from pathlib import Path

import pytest

from amqsidecar.broker import BrokerKind
from amqsidecar.config.broker_url import parse_broker_url
from amqsidecar.config.load import check_start, load_config
from amqsidecar.config.schema import Config
from amqsidecar.config.secrets import STARS, Secret
from amqsidecar.config.sections.broker import KindChoice
from amqsidecar.config.sections.http import split_listen
from amqsidecar.config.sections.intake import Backlog
from amqsidecar.config.sections.policy import TopicPolicy
from amqsidecar.errors import ConfigError, Problem
from amqsidecar.plugin_loader import load_plugins
from amqsidecar.policy.classic_rules import ClassicRules
from amqsidecar.policy_source.load import compile_policy, load_policy

EXAMPLES = sorted(Path(__file__).parents[3].glob("deploy/config/*.yaml"))


def write(folder: Path, text: str) -> Path:
    path = folder / "sidecar.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def problems_of(
    path: Path | None = None, sets: tuple[str, ...] = (), environ: dict[str, str] | None = None
) -> list[Problem]:
    with pytest.raises(ConfigError) as caught:
        load_config(path, sets, environ or {})
    return list(caught.value.problems)


def test_nothing_given_gives_the_defaults() -> None:
    config = load_config(None, (), {})
    assert config == Config()
    assert config.intake.backlog is Backlog.HOLD
    assert config.policy.topics is TopicPolicy.PARK
    assert config.broker.url == ()
    assert config.broker.expected_kind is None
    assert config.http.listen == "127.0.0.1:9464"


def test_environment_overrides_the_file_and_set_overrides_both(tmp_path: Path) -> None:
    path = write(tmp_path, "history: {keep_days: 1, max_events: 5000}\nintake: {prefetch: 3}\n")
    config = load_config(
        path,
        ["history.keep_days=3", "history.keep_days=4"],
        {"AMQSIDECAR_HISTORY__KEEP_DAYS": "2", "AMQSIDECAR_INTAKE__PREFETCH": "9", "PATH": "/"},
    )
    assert (config.history.keep_days, config.history.max_events) == (4, 5000)
    assert config.intake.prefetch == 9


def test_every_value_knows_where_it_was_set(tmp_path: Path) -> None:
    path = write(tmp_path, "intake:\n  prefetch: 3\nstore:\n  url: sqlite:///x.db\n")
    config = load_config(path, ["log.level=debug"], {"AMQSIDECAR_STORE__URL": "sqlite:///y.db"})
    assert config.origin("intake.prefetch") == f"{path}:2"
    assert config.origin("store.url") == "environment variable AMQSIDECAR_STORE__URL"
    assert config.origin("log.level") == "--set log.level"
    assert config.origin("log.format") == "log.format"


def test_every_problem_is_reported_at_once_with_its_place(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "broker:\n  url: amqp://u:geheim@host:x\n  knid: auto\nintake:\n  prefetch: many\n"
        "redelivry: {}\npolicy: {source: a.xml, rules: {}}\n",
    )
    problems = problems_of(
        path, ("cycle.max_messages=-1", "nonsense"), {"AMQSIDECAR_LOG__LEVEL": "loud"}
    )
    assert {str(problem) for problem in problems} == {
        f"{path}:2: broker.url: the port must be a number from 1 to 65535",
        f"{path}:3: broker.knid: there is no such option; did you mean `broker.kind`?",
        f"{path}:5: intake.prefetch: expected a whole number, found 'many'",
        f"{path}:6: redelivry: there is no such option; did you mean `redelivery`?",
        f"{path}:7: policy.rules: `source` is set too; remove one of them",
        "--set cycle.max_messages: cycle.max_messages: expected greater than or equal to 0, "
        "found -1",
        "--set: expected dotted.key=value, found 'nonsense'",
        "environment variable AMQSIDECAR_LOG__LEVEL: log.level: expected debug, info, warning or "
        "error, found 'loud'",
    }


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("broker: [", "sidecar.yaml:1", "is not YAML"),
        ("log: {level: info}\nlog: {level: debug}\n", "sidecar.yaml:2", "duplicate key"),
        ("- broker\n", "sidecar.yaml:1", "expected options"),
        ("broker: 5\n", "sidecar.yaml:1", "expected options below it"),
        ("store:\n  instance: 7\n", "sidecar.yaml:2", "put it in quotes"),
        ("intake:\n  queues:\n    - A\n    - 7\n", "sidecar.yaml:2", "expected a text"),
        ("broker:\n  tls:\n    verify: maybe\n", "sidecar.yaml:3", "expected true or false"),
    ],
)
def test_a_bad_file_is_reported_with_its_line(
    tmp_path: Path, text: str, where: str, what: str
) -> None:
    problems = problems_of(write(tmp_path, text))
    assert [problem.where.rpartition("/")[2] for problem in problems] == [where]
    assert what in problems[0].what


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path / "none.yaml")
    assert problem.where == str(tmp_path / "none.yaml")
    assert "No such file" in problem.what


def test_a_file_that_is_no_text_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "sidecar.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    (problem,) = problems_of(path)
    assert "UTF-8" in problem.what


def test_a_null_in_the_file_is_not_set(tmp_path: Path) -> None:
    path = write(tmp_path, "broker:\n  url:\n  connect_timeout_s:\nlog:\njournal: {path: ''}\n")
    assert load_config(path, (), {}).model_dump() == Config().model_dump()


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("store.instance", "007", "007"),
        ("store.instance", "'x'", "x"),
        ("http.listen", "", ""),
        ("http.listen", "[::1]:0", "[::1]:0"),
        ("intake.queues", "DLQ.>", ("DLQ.>",)),
        ("intake.queues", "*", ("*",)),
        ("intake.queues", "[A, B]", ("A", "B")),
        ("intake.queues", "- A\n- B", ("A", "B")),
        ("intake.queues", "", ()),
        ("broker.tls.verify", "false", False),
        ("history.keep_days", "3", 3),
        ("policy.source", "", None),
        ("policy.rules", "{plugins: []}", {"plugins": []}),
        ("broker.tls", "{verify: false}", None),
    ],
)
def test_values_of_a_command_line_are_yaml_and_texts_need_no_quotes(
    key: str, value: str, expected: object
) -> None:
    config = load_config(None, [f"{key}={value}"], {})
    found: object = config
    for name in key.split("."):
        found = getattr(found, name)
    assert found == expected or key == "broker.tls"
    by_environment = load_config(None, (), {"AMQSIDECAR_" + key.upper().replace(".", "__"): value})
    assert by_environment.model_dump() == config.model_dump()


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("AMQSIDECAR_BROKER_URL", "did you mean AMQSIDECAR_BROKER__URL?"),
        ("AMQSIDECAR_QWERTZ", "there is no such option"),
    ],
)
def test_a_variable_that_is_no_option_is_reported(given: str, hint: str) -> None:
    (problem,) = problems_of(environ={given: "x"})
    assert problem.where == f"environment variable {given}"
    assert hint in problem.what


def test_variables_of_a_kubernetes_service_of_our_name_are_none_of_ours() -> None:
    environ = {
        "AMQSIDECAR_SERVICE_HOST": "10.0.0.1",
        "AMQSIDECAR_SERVICE_PORT": "9464",
        "AMQSIDECAR_SERVICE_PORT_HTTP": "9464",
        "AMQSIDECAR_PORT": "tcp://10.0.0.1:9464",
        "AMQSIDECAR_PORT_9464_TCP": "tcp://10.0.0.1:9464",
        "AMQSIDECAR_PORT_9464_TCP_ADDR": "10.0.0.1",
        "AMQSIDECAR_METRICS_SERVICE_HOST": "10.0.0.2",
    }
    assert load_config(None, (), environ) == Config()


def test_a_group_and_a_rule_of_the_policy_can_not_be_set() -> None:
    problems = problems_of(sets=("broker=x", "policy.rules.plugins=[]", "url=amqp://x"))
    assert [problem.what for problem in problems] == [
        "broker: is a group of options; set one of them, such as `broker.url`",
        "only the whole of `policy.rules` can be set here",
        "url: there is no such option; did you mean `broker.url`?",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("amqp://host", "amqp://host:5672"),
        ("amqps://host", "amqps://host:5671"),
        ("OPENWIRE://host/", "openwire://host:61616"),
        ("openwire+ssl://u:p%40s@h:1", f"openwire+ssl://u:{STARS}@h:1"),
        ("amqp://u@[::1]:5", "amqp://u@[::1]:5"),
    ],
)
def test_a_broker_url_prints_without_its_password(text: str, expected: str) -> None:
    assert str(parse_broker_url(text)) == expected


def test_a_password_in_a_url_is_percent_encoded() -> None:
    url = parse_broker_url("amqp://u%40v:p%3A%2F%40@host")
    assert url.user == "u@v"
    assert url.password is not None
    assert url.password.reveal() == "p:/@"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("tcp://h", "is written openwire://"),
        ("ssl://h", "is written openwire[+]ssl://"),
        ("failover:(tcp://a,tcp://b)", "list of URLs"),
        ("http://h", "unknown scheme"),
        ("host:5672", "expected scheme://host:port"),
        ("amqp://", "expected a host"),
        ("amqp://a..b", "the host is not a valid name"),
        ("amqp://h:0", "port"),
        ("amqp://h:99999", "port"),
        ("amqp://:p@h", "needs a user"),
        ("amqp://h?x=1", "nothing may follow"),
        ("amqp://u:geh/eim@h:5672", "nothing may follow|port must be"),
    ],
)
def test_other_urls_are_refused_with_a_reason(text: str, what: str) -> None:
    with pytest.raises(ValueError, match=what) as caught:
        parse_broker_url(text)
    assert "geh" not in str(caught.value)


def test_a_list_of_urls_is_kept_for_failover() -> None:
    config = load_config(None, ["broker.url=[amqp://a, 'amqp://b:1']"], {})
    assert [str(url) for url in config.broker.url] == ["amqp://a:5672", "amqp://b:1"]


def test_a_kind_is_a_broker_or_auto() -> None:
    config = load_config(None, ["broker.kind=artemis"], {})
    assert config.broker.kind is KindChoice.ARTEMIS
    assert config.broker.expected_kind is BrokerKind.ARTEMIS
    assert load_config(None, ["broker.kind=auto"], {}).broker.expected_kind is None


def test_the_password_of_a_file_is_read_at_each_connect(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    path = write(tmp_path, "broker: {url: 'amqps://u@h', password_file: password}\n")
    config = load_config(path, (), {})
    with pytest.raises(ConfigError, match="can't be read"):
        config.broker.password()
    secret.write_text("one\n")
    assert config.broker.password() == Secret("one")
    secret.write_text("two")
    assert config.broker.password() == Secret("two")
    secret.write_text("\n")
    with pytest.raises(ConfigError, match="is empty"):
        config.broker.password()


def test_a_password_has_one_place_and_a_user() -> None:
    sets = ("broker.password_file=/p", "broker.url=[amqps://u:p@a, amqps://b]")
    assert [problem.what for problem in problems_of(sets=sets)] == [
        "broker.password_file: `url` also has a password; remove one of them",
        "broker.password_file: needs the user in `url`, such as artemis://user@host:61616",
    ]


@pytest.mark.parametrize(
    ("sets", "is_refused"),
    [
        (("broker.url=amqp://u:p@broker",), True),
        (("broker.url=openwire://u@broker", "broker.password_file=/p"), True),
        (("broker.url=[stomp://u:p@localhost, stomp://u:p@192.0.2.1]",), True),
        (("broker.url=amqp://u:p@localhost.example.org",), True),
        (("broker.url=amqp://u:p@broker", "broker.sasl_mechanisms=[SCRAM-SHA-256, PLAIN]"), True),
        (("broker.url=amqp://u:p@broker", "broker.sasl_mechanisms=[SCRAM-SHA-256]"), False),
        (("broker.url=artemis://u:p@broker", "broker.sasl_mechanisms=[SCRAM-SHA-256]"), True),
        (("broker.url=amqp://u:p@broker", "broker.allow_plain_password=true"), False),
        (("broker.url=amqps://u:p@broker",), False),
        (("broker.url=openwire+ssl://u:p@broker",), False),
        (
            ("broker.url=[stomp://u:p@LOCALHOST, 'stomp://u:p@127.9.9.9', 'stomp://u:p@[::1]']",),
            False,
        ),
        (("broker.url=amqp://broker",), False),
        (("broker.url=amqp://u@broker",), False),
    ],
)
def test_a_password_does_not_go_over_the_net_in_the_clear(
    sets: tuple[str, ...], is_refused: bool
) -> None:
    problems = problems_of(sets=sets) if is_refused else []
    assert [problem.where for problem in problems] == ["--set broker.url"] * is_refused
    for problem in problems:
        assert "+ssl://" in problem.what or "amqps://" in problem.what
        assert "broker.allow_plain_password" in problem.what
        assert ":p@" not in problem.what
    if not is_refused:
        load_config(None, sets, {})


TOKEN = "broker.token_file=/t"
PROVIDER = (
    "broker.oidc.issuer=https://login",
    "broker.oidc.client_id=sidecar",
    "broker.oidc.client_secret_file=/s",
)


@pytest.mark.parametrize(
    ("sets", "where", "expected"),
    [
        (("broker.url=amqps://b", TOKEN), "token_file", "needs the user in `url`"),
        (("broker.url=amqps://u:p@b", TOKEN), "token_file", "a password is also set"),
        (
            ("broker.url=amqps://u@b", TOKEN, *PROVIDER),
            "token_file",
            "`oidc` also names a provider",
        ),
        (("broker.url=core://u@b", TOKEN), "url", "the token for b would cross"),
        (
            ("broker.url=amqp://u@b", TOKEN, "broker.sasl_mechanisms=OAUTHBEARER"),
            "url",
            "the token for b would cross",
        ),
        (
            ("broker.url=amqps://u@b", TOKEN, "broker.sasl_mechanisms=SCRAM-SHA-256"),
            "sasl_mechanisms",
            "has none for a token",
        ),
        (
            ("broker.url=amqps://u:p@b", "broker.sasl_mechanisms=XOAUTH2"),
            "sasl_mechanisms",
            "set `token_file` or `oidc`",
        ),
        (("broker.url=amqps://u@b", *PROVIDER[:2]), "oidc.client_secret_file", "by its secret"),
        (
            ("broker.url=amqps://u@b", *PROVIDER, "broker.oidc.client_key_file=/k"),
            "oidc.client_key_file",
            "excludes `client_secret_file`",
        ),
        (("broker.url=amqps://u@b", PROVIDER[0], PROVIDER[2]), "oidc.client_id", "is not set"),
        (
            ("broker.url=amqps://u@b", "broker.oidc.issuer=http://login", *PROVIDER[1:]),
            "oidc.issuer",
            "without TLS",
        ),
    ],
)
def test_a_token_that_could_not_be_used_is_refused(
    sets: tuple[str, ...], where: str, expected: str
) -> None:
    [problem] = problems_of(sets=sets)
    assert problem.where.removeprefix("--set ") == f"broker.{where}"
    assert expected in problem.what


CONSOLE = "broker.jolokia_url=http://ann@localhost:8161/api/jolokia"
CONSOLE_SECRET = "broker.jolokia_password_file=/p"


@pytest.mark.parametrize(
    ("sets", "where", "expected"),
    [
        ((CONSOLE,), "jolokia_password_file", "go together"),
        ((CONSOLE_SECRET,), "jolokia_password_file", "needs `jolokia_url`"),
        ((CONSOLE.replace("ann@", "ann:p@"),), "jolokia_url", "without password"),
        ((CONSOLE.replace("http:", "tcp:"),), "jolokia_url", "expected a URL such as http://"),
        (
            (CONSOLE.replace("localhost", "broker"), CONSOLE_SECRET),
            "jolokia_url",
            "unencrypted; use https://",
        ),
        (
            (CONSOLE, CONSOLE_SECRET, "broker.url=[openwire://a, openwire://b]"),
            "jolokia_url",
            "needs exactly one broker",
        ),
        ((CONSOLE, CONSOLE_SECRET, "broker.url=artemis://a"), "jolokia_url", "is for Classic"),
    ],
)
def test_a_web_console_fits_its_broker_and_its_password_is_safe(
    sets: tuple[str, ...], where: str, expected: str
) -> None:
    [problem] = problems_of(sets=("broker.url=openwire://b", *sets))
    assert problem.where.removeprefix("--set ") == f"broker.{where}"
    assert expected in problem.what
    assert ":p@" not in problem.what


def test_certificates_without_tls_are_no_protection() -> None:
    files = ("broker.tls.ca_file=/ca", "broker.tls.cert_file=/cert")
    problems = problems_of(sets=("broker.url=openwire://b", *files))
    assert [problem.where for problem in problems] == [
        f"--set {one.partition('=')[0]}" for one in files
    ]
    assert {problem.what.partition(": ")[2] for problem in problems} == {
        "has no effect because `url` has no TLS; use openwire+ssl://"
    }
    load_config(None, ["broker.url=amqps://b", *files], {})


def test_each_url_has_its_own_password() -> None:
    broker = load_config(None, ["broker.url=[amqps://u:one@a, amqps://v:two@b]"], {}).broker
    assert [broker.password(url) for url in broker.url] == [Secret("one"), Secret("two")]
    assert broker.password() == Secret("one")


def test_no_password_shows_anywhere(tmp_path: Path) -> None:
    path = write(tmp_path, "broker: {url: 'amqps://u:geheim@h'}\n")
    config = load_config(path, (), {})
    password = config.broker.password()
    assert password is not None
    assert password.reveal() == "geheim"
    shown = [repr(config), str(config), config.model_dump_json(), repr(config.broker.url)]
    shown += [f"{password} {password!r} {password:>20}", repr(copy.copy(config))]
    assert not [text for text in shown if "geheim" in text]
    with pytest.raises(TypeError):
        pickle.dumps(password)
    bad = ("amqp://u:geheim@h:x", "tcp://u:geheim@h", "amqp://u:geheim@h?q", "[amqp://u:geheim@]")
    for url in bad:
        texts = [str(problem) for problem in problems_of(sets=(f"broker.url={url}",))]
        assert not [text for text in texts if "geheim" in text]


IN_BROKER = ("store.url=broker:", "intake.backlog=process")
IN_PLACE = ("redelivery.mode=in_place", "intake.backlog=process")


def test_a_schedule_in_the_broker_is_known() -> None:
    assert load_config(None, IN_BROKER, {}).store.url == "broker:"


def test_a_store_in_postgresql_has_its_password_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("geheim\n")
    path = write(
        tmp_path,
        "store:\n  url: postgresql://u@h1:5432,h2/db?target_session_attrs=read-write\n"
        "  password_file: secret\n",
    )
    config = load_config(path, (), {})
    password = config.store.password()
    assert password is not None
    assert password.reveal() == "geheim"
    file.unlink()
    assert [problem.where for problem in check_start(config)] == [f"{path}:3"]
    with pytest.raises(ConfigError, match=r"store\.password_file: .*can't be read"):
        config.store.password()


def test_localhost_is_loopback() -> None:
    assert split_listen("localhost:0") == ("127.0.0.1", 0)


def test_paths_start_at_the_folder_of_the_file_that_names_them(tmp_path: Path) -> None:
    path = write(tmp_path, "policy: {source: rules/activemq.xml}\n")
    assert load_config(path, (), {}).policy.source == tmp_path / "rules/activemq.xml"
    by_set = load_config(path, ["policy.source=broker.xml"], {})
    assert by_set.policy.source == Path("broker.xml")
    path = write(
        tmp_path,
        "policy: {source: 'tcp://h?jms.redeliveryPolicy.maximumRedeliveries=1'}\n"
        "journal: {path: 's3://bucket/history'}\n",
    )
    config = load_config(path, (), {})
    assert str(config.policy.source).startswith("tcp:/")
    assert config.journal.path == "s3://bucket/history"


def test_so_does_each_other_path(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "broker: {url: 'openwire+ssl://a@h', jolokia_url: 'https://a@h', jolokia_password_file: a,"
        " oidc: {issuer: 'https://l', client_id: a, client_key_file: b}}\n"
        "http: {users_file: c, roles_file: /d, reports: ''}\n"
        "journal: {path: e}\n"
        "listener: {copy_key_file: f}\n"
        "log: {audit: h}\n"
        "webhooks: {subscriptions: {slack: {url_file: g, events: [exhausted]}}}\n",
    )
    config = load_config(path, (), {})
    subscription = config.webhooks.subscriptions["slack"]
    assert [
        *(config.broker.jolokia_password_file, config.broker.oidc.client_key_file),
        *(config.http.users_file, config.http.roles_file, config.http.reports),
        *(Path(config.journal.path), config.listener.copy_key_file, subscription.url_file),
        Path(config.log.audit),
    ] == [*(tmp_path / one for one in "abc"), Path("/d"), None, *(tmp_path / one for one in "efgh")]
    for stream in ("stderr", "stdout"):
        assert (
            load_config(write(tmp_path, f"log: {{audit: {stream}}}\n"), (), {}).log.audit == stream
        )


def test_files_are_checked_when_the_service_starts(tmp_path: Path) -> None:
    path = write(tmp_path, "policy:\n  source: none.xml\nbroker: {tls: {ca_file: /none.pem}}\n")
    problems = check_start(load_config(path, (), {}))
    assert [problem.where for problem in problems] == [f"{path}:3", f"{path}:2"]
    (tmp_path / "none.xml").write_text("<broker/>")
    assert len(check_start(load_config(path, (), {}))) == 1


def test_inline_rules_keep_the_lines_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "policy:\n  rules:\n    plugins:\n      - redelivery: {}\n")
    rules = load_config(path, (), {}).policy.rules
    assert rules is not None
    assert rules.lc.line == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_loads_and_its_policy_compiles(path: Path) -> None:
    config = load_config(path, (), {})
    assert config.policy.rules is not None
    plugins = load_plugins()
    rules = load_policy(config.policy.rules, plugins)
    assert isinstance(rules, ClassicRules)
    compile_policy(rules, plugins)


def test_there_is_an_example() -> None:
    assert EXAMPLES


@pytest.mark.parametrize(
    ("sets", "where", "what"),
    [
        (("broker.url=[amqp://a, tcp://b]",), "broker.url", "entry 2: the scheme tcp://"),
        (("broker.url=[amqp://a, openwire://b]",), "broker.url", "same scheme"),
        (
            ("broker.url=openwire://h", "broker.kind=artemis"),
            "broker.url",
            "attach to Artemis by artemis://",
        ),
        *(
            (
                (f"broker.url={url}", f"broker.sasl_mechanisms={mechanisms}"),
                "broker.sasl_mechanisms",
                what,
            )
            for url, mechanisms, what in (
                ("openwire://b", "[PLAIN]", "counts for amqp"),
                ("amqps://u:p@b", "[EXTERNAL]", "has none for a user"),
                ("amqps://b", "[SCRAM-SHA-512]", "needs a user"),
                ("[amqps://u:p@a, amqps://b]", "[SCRAM-SHA-512]", "needs a user"),
                ("amqps://b", "[GSSAPI]", "expected SCRAM-SHA-512, "),
            )
        ),
        *(
            ((f"store.url={url}",), "store.url", what)
            for url, what in (
                ("postgresql://h", "postgresql://user@host:5432/database"),
                ("postgresql:db", "postgresql://user@host:5432/database"),
                ("postgres://u:geheim@h/db", "store.password_file"),
                ("postgresql://u@h/db?sslmode=require&password=geheim", "store.password_file"),
                ("broker:x", "or broker:"),
                ("mysql://h", "expected sqlite:///"),
                ("sqlite://var/x.db", "three slashes"),
                ("sqlite:///:memory:", "must persist"),
                ("sqlite:///", "path of a file"),
                ("sqlite:", "expected sqlite:///"),
                ("", "expected sqlite:///"),
            )
        ),
        (("store.password_file=x",), "store.password_file", "postgresql:// only; remove it"),
        (("store.url=broker:",), "intake.backlog", "is `hold`"),
        ((*IN_BROKER, "intake.events=amqsidecar.events"), "intake.events", "other than broker:"),
        (("intake.events=amqsidecar.events.>",), "intake.events", "the name of one queue"),
        (("intake.events=orders",), "intake.events", "begins with amqsidecar.events"),
        (("store.instance=a", *IN_BROKER), "store.instance", "counts for stores only"),
        (("journal.path=s3://",), "journal.path", "expected a URL such as s3://bucket/journal"),
        (("journal.path=[1]",), "journal.path", "expected a folder or a URL such as s3://bucket/j"),
        (("journal.path=s3://key:geheim@bucket/j",), "journal.path", "leave credentials out"),
        (("journal.path=/j", *IN_BROKER), "journal.path", "that keeps events until they are writ"),
        *(
            ((f"http.listen={text}",), "http.listen", "127.0.0.1:9464")
            for text in ("9464", "host:1", "127.0.0.1:x", "127.0.0.1:70000", ":9464")
        ),
        (("redelivery.mode=in_place",), "intake.backlog", "nothing tells a backlog from"),
        ((*IN_PLACE, "redelivery.manual=[a]"), "redelivery.manual", "leaves nothing to a person"),
        ((*IN_PLACE, "store.url=broker:"), "store.url", "was not taken"),
        ((*IN_PLACE, "redelivery.exhausted=keep"), "redelivery.exhausted", "takes exhausted mes"),
        ((*IN_PLACE, "outcomes.watch=false"), "outcomes.watch", "is off"),
        (
            (*IN_PLACE, "redelivery.in_place_keep={default_entry: {days: 9}}"),
            "redelivery.in_place_keep",
            "would also end what the rules redeliver",
        ),
        (("http.metrics_owners={orders.#.x: team-a}",), "http.metrics_owners", "is no pattern"),
    ],
)
def test_what_can_not_be_used_is_refused_with_a_reason(
    sets: tuple[str, ...], where: str, what: str
) -> None:
    (problem,) = problems_of(sets=sets)
    assert where in f"{problem.where}: {problem.what}"
    assert what in problem.what
    assert "geheim" not in problem.what
