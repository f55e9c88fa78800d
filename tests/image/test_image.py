"""The image, built here and run as the chart runs it: small, restricted, and it does its work."""

import json
import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from amqsidecar import __version__
from support.brokers.tls import MUTUAL, SCRAM, TLS, TlsArtemis, Way
from support.deployment.image import ROOT, run, sidecar_image, why_not
from support.deployment.registry import running_registry
from support.jms.peer import JmsPeer
from support.machine.certificates import PemFiles, Pki
from support.machine.container import SidecarContainer, podman, run_container
from support.machine.processes import run_program
from support.waiting import eventually

pytestmark = [
    pytest.mark.image,
    pytest.mark.broker,
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]

CONFIG = """\
broker:
  url: {url}
store:
  url: sqlite:schedule.db
  accept_orphans: true
discovery:
  interval_s: 1
policy:
  rules:
    plugins:
      - redelivery:
          entries:
            - {{queue: slow, maximum_redeliveries: 1, initial_redelivery_delay_ms: 3600000}}
          default_entry: {{maximum_redeliveries: 1, initial_redelivery_delay_ms: 100}}
"""
NOT_THERE = ("gcc", "cc", "ld", "make", "pip", "pip3")
ADMIN = "admin:admin@"
OURS = {"cert": "sidecar.pem", "key": "sidecar.key"}
EXTRAS = ("psycopg", "authlib", "httpx2")


@pytest.fixture(scope="module")
def image() -> str:
    return sidecar_image()


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def us(pki: Pki) -> PemFiles:
    return pki.client("sidecar")


@pytest.fixture(scope="module")
def artemis(pki: Pki, us: PemFiles) -> Iterator[TlsArtemis]:
    with TlsArtemis(pki, us) as broker:
        yield broker


def inspected(image: str) -> dict[str, Any]:
    [found] = json.loads(run(podman("image", "inspect", image)))
    return dict(found)


def test_a_poison_message_comes_back_and_what_waits_survives_a_stop(
    image: str, artemis: TlsArtemis, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, data = tmp_path / "config", tmp_path / "data"
    config.mkdir()
    data.mkdir()
    (config / "amqsidecar.yaml").write_text(CONFIG.format(url=artemis.amqp_url), encoding="utf-8")
    peer = JmsPeer.of(artemis, "qpid")

    with SidecarContainer(image, config=config, data=data) as sidecar:
        ready_s, processor_s = sidecar.start(), sidecar.processor_s()
        with peer.start_flaky_consumer("quick", failures=1, how="reject", full=True) as consumer:
            [sent] = peer.produce("quick", "Text")
            consumer.wait_for_successes(1)
        back = consumer.events("succeeding")[-1]
        assert back.redelivery_count == 1
        assert back.message is not None
        assert back.message.body == sent.body
        peer.produce("slow", "Text")
        peer.fail("slow", messages=1, how="reject")
        waiting = 'amqsidecar_waiting{destination="queue://slow",state="waiting"} 1.0'
        eventually(lambda: waiting in sidecar.get("/metrics")[1], what="one message waits")

        assert sidecar.execute("amqsidecar-health", "/readyz", str(sidecar.port)).returncode == 0
        assert sidecar.execute("amqsidecar-health", "/nowhere", str(sidecar.port)).returncode == 1
        assert sidecar.execute("amqsidecar-health", "/healthz", "1").returncode == 1
        assert sidecar.stop() == 0, sidecar.log()

    with SidecarContainer(image, config=config, data=data) as heir:
        heir.start()
        eventually(lambda: waiting in heir.get("/metrics")[1], what="it still waits")
        listed = heir.execute("amqsidecar", "list", "--set", "store.url=sqlite:schedule.db")
        assert "slow" in listed.stdout, listed.stderr
        assert heir.stop() == 0, heir.log()

    size = inspected(image)["Size"] / 1e6
    with capsys.disabled():
        print(f"\nimage: {size:.0f} MB unpacked; ready after {ready_s:.1f} s", end=", ")
        print(f"of which {processor_s:.1f} s on a processor")


def test_doctor_runs_and_logs_in_every_way(
    image: str, artemis: TlsArtemis, pki: Pki, us: PemFiles
) -> None:
    """TLS and SASL are Python's and ours, whatever Proton was compiled with."""
    # What pytest makes is for its own user.
    pki.folder.chmod(0o755)
    way = Way(artemis, "amqp")
    authority = "broker.tls.ca_file=/pki/ca.pem"
    certificate = [f"broker.tls.{name}_file=/pki/{file}" for name, file in OURS.items()]
    ways = {
        TLS: (way.url(TLS, tls=True, login=ADMIN), [authority]),
        MUTUAL: (way.url(MUTUAL, tls=True), [authority, *certificate]),
        SCRAM: (
            way.url(SCRAM, tls=False, login=ADMIN),
            ["broker.sasl_mechanisms=[SCRAM-SHA-512]"],
        ),
    }
    assert (us.certificate.name, us.key.name) == tuple(OURS.values())
    for what, (url, more) in ways.items():
        store = ("store.url=sqlite:///tmp/schedule.db", "store.accept_orphans=true")
        sets = [f"broker.url={url}", *store, *more]
        options = [part for one in sets for part in ("--set", one)]
        done = run_container(image, "doctor", *options, mounts={pki.folder: "/pki"})
        assert "Apache Artemis" in done.stdout, (what, done.stdout, done.stderr)
        assert done.returncode == 0, (what, done.stdout)


def test_it_ends_by_sigterm_before_it_runs(image: str, tmp_path: Path) -> None:
    """The kernel keeps from a container's first process each signal that it does not handle."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        url = f"amqp://127.0.0.1:{silent.getsockname()[1]}"
        command = ("doctor", "--set", "broker.connect_timeout_s=120")
        with SidecarContainer(
            image, config=tmp_path, data=tmp_path, command=command, url=url
        ) as doctor:
            doctor.begin()
            connection, _ = silent.accept()
            with connection:
                assert doctor.stop() == 128 + signal.SIGTERM, doctor.log()


def test_nothing_is_in_it_that_builds_or_installs(image: str) -> None:
    script = f"""
        set -u
        for name in {" ".join(NOT_THERE)}; do command -v "$name" && exit 1; done
        for python in python3 /usr/bin/python3; do
          for module in pip ensurepip setuptools; do "$python" -c "import $module" && exit 1; done
        done
        true
    """
    done = run_container(image, "-c", script, entrypoint="sh")
    assert done.returncode == 0, done.stdout + done.stderr


def test_its_user_may_write_only_to_data_and_tmp(image: str) -> None:
    script = """
        id -u; id -g; command -v amqsidecar; command -v python3
        touch /tmp/file || exit 1
        for place in / /opt/amqsidecar /etc /usr; do touch "$place/file" && exit 1; done
        grep CapEff /proc/self/status
    """
    done = run_container(image, "-c", script, entrypoint="sh")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == [
        *("10001", "10001", "/opt/amqsidecar/bin/amqsidecar", "/opt/amqsidecar/bin/python3"),
        *("CapEff:", "0000000000000000"),
    ]


def test_what_the_image_says_of_itself(image: str) -> None:
    config = inspected(image)["Config"]
    assert config["User"] == "10001:10001"
    assert config["Entrypoint"] == ["amqsidecar"]
    assert config["Cmd"] == ["run", "--config", "/etc/amqsidecar/config/amqsidecar.yaml"]
    assert list(config["Volumes"]) == ["/var/lib/amqsidecar"]
    assert inspected(image)["Healthcheck"]["Test"] == ["CMD", "amqsidecar-health"]
    labels = config["Labels"]
    assert labels["org.opencontainers.image.version"] == __version__
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    for name in ("base.digest", "created", "documentation", "revision", "source", "url"):
        assert f"org.opencontainers.image.{name}" in labels


def test_it_lists_what_is_in_it_and_has_the_texts_of_copyleft_licences(image: str) -> None:
    share = "/opt/amqsidecar/share"
    done = run_container(image, f"{share}/sbom.cdx.json", entrypoint="cat")
    assert done.returncode == 0, done.stderr
    listed = {one.get("purl", "") for one in json.loads(done.stdout)["components"]}
    pinned = (ROOT / "deploy" / "requirements" / "runtime.txt").read_text(encoding="utf-8")
    for name in ("psycopg", "python-qpid-proton", "uvicorn"):
        [version] = re.findall(rf"^{name}==([^ ;\\]+)", pinned, re.MULTILINE)
        assert f"pkg:pypi/{name}@{version}" in listed
    assert [one for one in listed if one.startswith("pkg:deb/debian/libc6@")]
    texts = run_container(image, f"{share}/licences", entrypoint="ls").stdout.split()
    assert texts == ["GPL-3.0.txt", "LGPL-2.1.txt", "LGPL-3.0.txt", "MPL-2.0.txt", "README"]
    lines = run_container(image, f"{share}/licences/LGPL-3.0.txt", entrypoint="cat").stdout
    assert "GNU LESSER GENERAL PUBLIC LICENSE" in lines


def test_the_extras_that_a_deployment_needs_are_there(image: str) -> None:
    imports = f"import {', '.join(EXTRAS)}"
    done = run_container(image, "-c", imports, entrypoint="python3")
    assert done.returncode == 0, done.stderr


def test_a_push_names_the_image_by_its_digest_in_a_values_file(tmp_path: Path) -> None:
    """As `make image REGISTRY=...` does after its build, with an empty image of the same name."""
    store = ("--root", str(tmp_path / "storage"), "--runroot", str(tmp_path / "run"))
    engine = ("buildah", *store)
    container = run([*engine, "from", "scratch"]).strip()
    run([*engine, "commit", "--quiet", container, f"amqsidecar:{__version__}"])
    with running_registry() as registry:
        place = f"{registry.address}/team"
        run_program(
            [str(ROOT / "deploy" / "image" / "push"), place],
            cwd=tmp_path,
            env={**os.environ, "ENGINE": " ".join(engine), "PUSH_OPTIONS": "--tls-verify=false"},
            code=0,
        )
        digest = registry.manifests[f"team/amqsidecar:{__version__}"]
    values = YAML(typ="safe").load((tmp_path / "image.yaml").read_text(encoding="utf-8"))
    assert values["image"] == {
        "repository": f"{place}/amqsidecar",
        "tag": __version__,
        "digest": digest,
    }
