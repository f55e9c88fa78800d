"""Fetches brokers and Java libraries by Maven coordinates, once per machine; compiles our Java.

`amqsidecar.demo.maven` does it, into the cache that the demo uses, too.

`PYTHONPATH=tests python -m support.maven` fetches all of it with progress on standard error.
"""

import functools
import hashlib
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

from amqsidecar.demo.maven import (
    DEPENDENCY_PLUGIN,
    FetchError,
    cache_root,
    cached,
    classic_home,
    fetch,
    locked,
    run_tool,
    tool,
)
from amqsidecar.demo.maven import artemis_home as demo_artemis_home
from support.versions import NEWEST, TESTED, Release

__all__ = ["FetchError", "cache_root", "cached", "locked", "run_tool", "tool"]

QPID_JMS = "2.7.0"
NETTY = "4.1.128.Final"

JMS_CLIENT_LIBRARIES = (
    "org.apache.activemq:activemq-client:6.3.1",
    "org.apache.activemq:artemis-jakarta-client:2.44.0",
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

JAR = "classes.jar"
JAVA_SOURCES = Path(__file__).parent.parent / "java"


def classic_5_home() -> Path:
    """Return the unpacked Classic 5.18.3 distribution."""
    return classic_home(_say)


def artemis_home() -> Path:
    """Return the unpacked distribution of the oldest Artemis."""
    return demo_artemis_home(_say)


def broker_jars(chosen: Release) -> Path:
    """Return the folder that holds the jars of a broker."""
    if chosen.libraries:
        return libraries(f"{chosen.family}-{chosen.version}", chosen.libraries)
    home = artemis_home() if chosen.family == "artemis" else classic_5_home()
    return home / "lib"


def launcher(chosen: Release) -> Path:
    """Return the jar that starts a broker of which only the modules are at hand."""
    source = "ArtemisLauncher.java" if chosen.family == "artemis" else "ClassicLauncher.java"
    return compiled(source, broker_jars(chosen))


def broker_class_path(chosen: Release) -> str:
    """Return the class path of all that a broker loads."""
    jars = broker_jars(chosen)
    return f"{jars}/*" if chosen.libraries else f"{jars}/*:{jars}/optional/*"


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
    """Compile one file of `tests/java` against a folder of jars; return the jar."""
    path = JAVA_SOURCES / source
    key = f"{path.read_text(encoding='utf-8')}\0{jars.name if jars else ''}"
    digest = hashlib.sha256(key.encode()).hexdigest()[:12]

    def build(folder: Path) -> None:
        class_path = ["-cp", f"{jars}/*"] if jars else []
        with tempfile.TemporaryDirectory(dir=cache_root()) as classes:
            run_tool(
                [tool("javac"), "-nowarn", "-proc:none", *class_path, "-d", classes, str(path)]
            )
            # Why a jar: an archive of classes takes none out of folders.
            with zipfile.ZipFile(folder / JAR, "w") as jar:
                for one in sorted(Path(classes).rglob("*.class")):
                    jar.write(one, one.relative_to(classes))

    return cached(f"{path.stem.lower()}-jar-{digest}", build) / JAR


def fetch_everything(report: Callable[[str], None]) -> None:
    """Fetch and compile all that tests, demo and benchmarks use, reporting each step."""
    chosen = dict.fromkeys((*TESTED.values(), *NEWEST))
    steps: list[tuple[str, Callable[[], Path]]] = [
        *((str(one), functools.partial(broker_jars, one)) for one in chosen),
        ("JMS clients", jms_client_jars),
        *(
            (f"launcher of {one}", functools.partial(launcher, one))
            for one in chosen
            if one.libraries
        ),
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
