"""The compose file is one, and what it names is there. No engine runs it here."""

import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from amqsidecar import __version__
from amqsidecar.config.load import check_start, load_config
from support.machine.processes import run_program

COMPOSE = Path(__file__).parents[2] / "deploy" / "compose"


@cache
def yaml(name: str) -> Any:
    return YAML(typ="safe").load(COMPOSE / name)


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml("compose.yaml")["services"]
    return found


def schema_problems(path: Path) -> str:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = run_program([*command, str(path)])
    return done.stdout + done.stderr if done.returncode else ""


def test_it_keeps_to_the_specification_of_compose(tmp_path: Path) -> None:
    assert schema_problems(COMPOSE / "compose.yaml") == ""
    text = (COMPOSE / "compose.yaml").read_text(encoding="utf-8")
    misspelled = tmp_path / "compose.yaml"
    misspelled.write_text(text.replace("mem_limit:", "memory_limit:"), encoding="utf-8")
    assert "memory_limit" in schema_problems(misspelled)


def test_images_have_a_version_and_no_registry() -> None:
    for name, service in services().items():
        repository, _, version = service["image"].partition(":")
        assert version[:1].isdigit() or version[:1] == "v", name
        assert "." not in repository
        if "build" in service:
            assert (repository, version) == ("amqsidecar", __version__)
            assert service["build"]["args"] == {"VERSION": __version__}
            build = service["build"]
            context = COMPOSE / build["context"]
            assert (context / build["dockerfile"]).is_file()


def test_what_is_mounted_is_there() -> None:
    volumes = set(yaml("compose.yaml")["volumes"])
    for service in services().values():
        for mount in service.get("volumes", ()):
            source, target, *mode = mount.split(":")
            if source in volumes:
                volumes.discard(source)
                assert target == "/var/lib/amqsidecar"
                continue
            assert (COMPOSE / source).exists(), mount
            assert mode == ["ro"], mount
    assert volumes == set()


@pytest.mark.parametrize("broker", ["artemis", "classic"])
def test_a_sidecar_would_start_with_its_options(broker: str) -> None:
    service = services()[f"sidecar-{broker}"]
    run, option, path = service["command"]
    assert (run, option) == ("run", "--config")
    config = load_config(COMPOSE / Path(path).name, [], {})
    assert check_start(config) == []
    [url] = config.broker.url
    assert url.host == broker
    poison = services()[f"poison-{broker}"]
    assert poison["environment"] == {"BROKER_URL": f"amqp://admin:admin@{broker}:5672"}
    assert "command" not in poison
    assert service["ports"][0].endswith(f":{config.http.listen.rpartition(':')[2]}")


def test_prometheus_and_grafana_look_where_things_are() -> None:
    jobs = yaml("prometheus.yml")["scrape_configs"]
    targets = [job["static_configs"][0]["targets"][0] for job in jobs]
    assert targets == ["sidecar-artemis:9464", "sidecar-classic:9464"]
    [datasource] = yaml("grafana/datasource.yaml")["datasources"]
    assert datasource["url"] == "http://prometheus:9090"
    mounted = {one.split(":")[1] for one in services()["grafana"]["volumes"]}
    [provider] = yaml("grafana/dashboards.yaml")["providers"]
    shown = services()["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert shown in mounted
    assert str(Path(shown).parent) == provider["options"]["path"]
    [rules] = yaml("prometheus.yml")["rule_files"]
    assert rules in {one.split(":")[1] for one in services()["prometheus"]["volumes"]}
