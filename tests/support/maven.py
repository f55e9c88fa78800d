"""Fetches brokers and Java libraries by Maven coordinates, once per machine; compiles our Java.

Everything lands in `${XDG_CACHE_HOME:-~/.cache}/amqsidecar`, one folder per thing. A folder is
built beside its place and renamed, under a file lock, so that what exists is complete.

`PYTHONPATH=tests python -m support.maven` fetches all of it with progress on standard error.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

CLASSIC_5 = "5.18.3"
CLASSIC_6 = "6.3.1"
ARTEMIS = "2.44.0"
QPID_JMS = "2.7.0"
# Why: optional in the broker's own pom, needed to read an activemq.xml and to log.
SPRING = "7.0.8"
LOG4J = "2.26.1"
COMMONS_LOGGING = "1.3.5"
NETTY = "4.1.128.Final"
DEPENDENCY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"

CLASSIC_6_LIBRARIES = (
    *(
        f"org.apache.activemq:activemq-{module}:{CLASSIC_6}"
        for module in (
            "broker",
            "client",
            "jaas",
            "kahadb-store",
            "spring",
            "stomp",
            "amqp",
            "console",
        )
    ),
    f"org.springframework:spring-context:{SPRING}",
    f"commons-logging:commons-logging:{COMMONS_LOGGING}",
    f"org.apache.logging.log4j:log4j-core:{LOG4J}",
    f"org.apache.logging.log4j:log4j-slf4j2-impl:{LOG4J}",
    # Why: the distribution has them under lib/optional; STOMP shows advisories by them.
    "com.thoughtworks.xstream:xstream:1.4.21",
    "org.codehaus.jettison:jettison:1.5.4",
)
JMS_CLIENT_LIBRARIES = (
    f"org.apache.activemq:activemq-client:{CLASSIC_6}",
    f"org.apache.activemq:artemis-jakarta-client:{ARTEMIS}",
    f"org.apache.qpid:qpid-jms-client:{QPID_JMS}",
    "com.fasterxml.jackson.core:jackson-databind:2.19.2",
    "org.slf4j:slf4j-nop:2.0.17",
)
# Why: the JMS clients ask for different versions of Netty, whose modules only work together.
MANAGED = (
    "<dependencyManagement><dependencies><dependency><groupId>io.netty</groupId>"
    f"<artifactId>netty-bom</artifactId><version>{NETTY}</version>"
    "<type>pom</type><scope>import</scope></dependency></dependencies></dependencyManagement>\n"
)

JAVA_SOURCES = Path(__file__).parent.parent / "java"


class FetchError(RuntimeError):
    """A broker or library could not be fetched or compiled."""


def cache_root() -> Path:
    """Return the folder that holds everything fetched; make it when missing."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    root = Path(base) / "amqsidecar"
    root.mkdir(parents=True, exist_ok=True)
    return root


def classic_5_home() -> Path:
    """Return the unpacked Classic 5.18.3 distribution."""
    return distribution(f"org.apache.activemq:apache-activemq:{CLASSIC_5}:zip:bin")


def artemis_home() -> Path:
    """Return the unpacked Artemis distribution."""
    return distribution(f"org.apache.activemq:apache-artemis:{ARTEMIS}:zip:bin")


def classic_6_jars() -> Path:
    """Return the folder with the jars of the Classic 6.3.1 broker."""
    return libraries(f"classic-{CLASSIC_6}", CLASSIC_6_LIBRARIES)


def jms_client_jars() -> Path:
    """Return the folder with the jakarta JMS clients of OpenWire, Artemis Core and qpid-jms."""
    return libraries("jms-clients", JMS_CLIENT_LIBRARIES)


def distribution(coordinate: str) -> Path:
    """Fetch and unpack a zip `group:artifact:version:zip:classifier`; return its only folder."""
    _, artifact, version, _, _ = coordinate.split(":")

    def build(folder: Path) -> None:
        with tempfile.TemporaryDirectory(dir=cache_root()) as download:
            _mvn(
                f"{DEPENDENCY_PLUGIN}:copy",
                f"-Dartifact={coordinate}",
                f"-DoutputDirectory={download}",
                what=coordinate,
            )
            [archive] = Path(download).glob("*.zip")
            with zipfile.ZipFile(archive) as unpacked:
                for member in unpacked.infolist():
                    target = Path(unpacked.extract(member, folder))
                    mode = member.external_attr >> 16
                    if mode and not member.is_dir():
                        target.chmod(mode & 0o777)

    [home] = cached(f"{artifact}-{version}", build).iterdir()
    return home


def libraries(name: str, coordinates: Sequence[str]) -> Path:
    """Fetch `group:artifact:version` and what they need at run time; return the folder of jars."""
    dependencies = "".join(
        "<dependency><groupId>{}</groupId><artifactId>{}</artifactId>"
        "<version>{}</version></dependency>\n".format(*coordinate.split(":"))
        for coordinate in coordinates
    )
    pom = (
        '<project xmlns="http://maven.apache.org/POM/4.0.0">\n'
        "<modelVersion>4.0.0</modelVersion><groupId>amqsidecar.test</groupId>\n"
        f"<artifactId>{name}</artifactId><version>1</version>\n"
        f"{MANAGED}<dependencies>\n{dependencies}</dependencies>\n</project>\n"
    )

    def build(folder: Path) -> None:
        with tempfile.TemporaryDirectory(dir=cache_root()) as project:
            pom_path = Path(project) / "pom.xml"
            pom_path.write_text(pom, encoding="utf-8")
            _mvn(
                "--file",
                str(pom_path),
                f"{DEPENDENCY_PLUGIN}:copy-dependencies",
                "-DincludeScope=runtime",
                f"-DoutputDirectory={folder}",
                what=name,
            )

    digest = hashlib.sha256(pom.encode()).hexdigest()[:12]
    return cached(f"{name}-{digest}", build)


def compiled(source: str, jars: Path | None = None) -> Path:
    """Compile one file of `tests/java` against a folder of jars; return the folder of classes."""
    path = JAVA_SOURCES / source
    key = f"{path.read_text(encoding='utf-8')}\0{jars.name if jars else ''}"
    digest = hashlib.sha256(key.encode()).hexdigest()[:12]

    def build(folder: Path) -> None:
        class_path = ["-cp", f"{jars}/*"] if jars else []
        run_tool(
            [tool("javac"), "-nowarn", "-proc:none", *class_path, "-d", str(folder), str(path)]
        )

    return cached(f"{path.stem.lower()}-classes-{digest}", build)


def tool(name: str) -> str:
    """Return the path of `java`, `javac` or `mvn`."""
    found = shutil.which(name)
    if found is None:
        raise FetchError(
            f"{name} is not on PATH: install a JDK 17 or later and Maven 3 "
            "(Debian: apt-get install openjdk-17-jdk-headless maven)"
        )
    return found


def fetch_everything(report: Callable[[str], None]) -> None:
    """Fetch and compile all that tests, demo and benchmarks use, reporting each step."""
    steps: list[tuple[str, Callable[[], Path]]] = [
        (f"ActiveMQ Classic {CLASSIC_5}", classic_5_home),
        (f"ActiveMQ Classic {CLASSIC_6}", classic_6_jars),
        (f"Artemis {ARTEMIS}", artemis_home),
        ("JMS clients", jms_client_jars),
        ("broker launcher", lambda: compiled("ClassicLauncher.java", classic_6_jars())),
        ("broker tether", lambda: compiled("Tether.java")),
        ("JMS peer", lambda: compiled("Peer.java", jms_client_jars())),
    ]
    for number, (label, fetch) in enumerate(steps, start=1):
        report(f"[{number}/{len(steps)}] {label} ...")
        began = time.monotonic()
        where = fetch()
        report(f"[{number}/{len(steps)}] {label}: {time.monotonic() - began:.1f} s, {where}")


def cached(name: str, build: Callable[[Path], None]) -> Path:
    """Return the folder `name` of the cache, built by exactly one process when missing."""
    place = cache_root() / name
    if place.exists():
        return place
    with locked(name):
        if not place.exists():
            beside = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=cache_root()))
            try:
                build(beside)
                beside.rename(place)
            finally:
                shutil.rmtree(beside, ignore_errors=True)
    return place


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Be the only process of this user that does this while the block runs."""
    with (cache_root() / f".{name}.lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _mvn(*arguments: str, what: str) -> None:
    command = [tool("mvn"), "--batch-mode", "--quiet", "--no-transfer-progress", *arguments]
    try:
        run_tool(command)
    except FetchError:
        # Why: registries answer "too busy" now and then; Maven keeps what it has already got.
        print(f"fetching {what} failed once, trying again", file=sys.stderr)
        run_tool(command)


def run_tool(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> str:
    """Return what a command prints in its standard output.

    Args:
        environment: variables on top of our own.
        folder: where it runs; None: here.

    Raises:
        FetchError: it ends with an error; the text has the end of what it said.
    """
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | (environment or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        output = (done.stdout + done.stderr).strip()[-4000:]
        raise FetchError(f"{' '.join(command)}: exit code {done.returncode}\n{output}")
    return done.stdout


if __name__ == "__main__":
    fetch_everything(lambda line: print(line, file=sys.stderr, flush=True))
