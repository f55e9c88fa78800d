"""Fetches brokers and Java libraries by Maven coordinates, once per machine; compiles our Java.

`amqsidecar.demo.maven` does it, into the cache that the demo uses, too.

`PYTHONPATH=tests python -m support.maven` fetches all of it with progress on standard error.
"""

import hashlib
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from amqsidecar.demo.maven import (
    CLASSIC as CLASSIC_5,
)
from amqsidecar.demo.maven import (
    DEPENDENCY_PLUGIN,
    FetchError,
    cache_root,
    cached,
    classic_home,
    distribution,
    fetch,
    locked,
    run_tool,
    tool,
)

__all__ = ["CLASSIC_5", "FetchError", "cache_root", "cached", "locked", "run_tool", "tool"]

CLASSIC_6 = "6.3.1"
ARTEMIS = "2.44.0"
QPID_JMS = "2.7.0"
# Why: optional in the broker's own pom, needed to read an activemq.xml and to log.
SPRING = "7.0.8"
LOG4J = "2.26.1"
COMMONS_LOGGING = "1.3.5"
NETTY = "4.1.128.Final"

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


def classic_5_home() -> Path:
    """Return the unpacked Classic 5.18.3 distribution."""
    return classic_home(_say)


def artemis_home() -> Path:
    """Return the unpacked Artemis distribution."""
    return distribution(f"org.apache.activemq:apache-artemis:{ARTEMIS}:zip:bin", _say)


def classic_6_jars() -> Path:
    """Return the folder with the jars of the Classic 6.3.1 broker."""
    return libraries(f"classic-{CLASSIC_6}", CLASSIC_6_LIBRARIES)


def jms_client_jars() -> Path:
    """Return the folder with the jakarta JMS clients of OpenWire, Artemis Core and qpid-jms."""
    return libraries("jms-clients", JMS_CLIENT_LIBRARIES)


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
            fetch(
                "--file",
                str(pom_path),
                f"{DEPENDENCY_PLUGIN}:copy-dependencies",
                "-DincludeScope=runtime",
                f"-DoutputDirectory={folder}",
                what=name,
                report=_say,
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
    for number, (label, fetched) in enumerate(steps, start=1):
        report(f"[{number}/{len(steps)}] {label} ...")
        began = time.monotonic()
        where = fetched()
        report(f"[{number}/{len(steps)}] {label}: {time.monotonic() - began:.1f} s, {where}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    fetch_everything(_say)
