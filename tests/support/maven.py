"""Fetches brokers and Java libraries by Maven coordinates, once per machine; compiles our Java.

`amqsidecar.demo.maven` does it, into the cache that the demo uses, too.

`PYTHONPATH=tests python -m support.maven` fetches all of it with progress on standard error.
"""

import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from amqsidecar.demo.maven import (
    ARTEMIS,
    CLASSIC,
    DEPENDENCY_PLUGIN,
    FetchError,
    cache_root,
    cached,
    distribution,
    fetch,
    locked,
    tool,
)
from support.versions import NEWEST, TESTED, Release

__all__ = ["FetchError", "cache_root", "cached", "locked", "run_tool", "tool"]

QPID_JMS = "2.7.0"
JAVA_AGENT = "io.opentelemetry.javaagent:opentelemetry-javaagent:2.31.1"
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
NOTES_LIBRARY = Path(__file__).parents[2] / "plugins" / "java" / "amqsidecar-jms"


def run_tool(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> str:
    """Return the standard output of a command.

    Args:
        command: the program and its arguments.
        environment: variables on top of our own.
        folder: where it runs; None = here.

    Raises:
        FetchError: it ends with an error; the text has the end of its output.
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


def classic_5_home() -> Path:
    """Return the unpacked Classic 5.18.3 distribution."""
    return distribution("apache-activemq", CLASSIC, _say)


def artemis_home() -> Path:
    """Return the unpacked distribution of the oldest Artemis."""
    return distribution("apache-artemis", ARTEMIS, _say)


def broker_jars(chosen: Release) -> Path:
    """Return the folder that holds the jars of a broker."""
    if chosen.libraries:
        return libraries(f"{chosen.family}-{chosen.version}", chosen.libraries)
    home = artemis_home() if chosen.family == "artemis" else classic_5_home()
    return home / "lib"


def launcher(chosen: Release) -> Path:
    """Return the jar that starts a broker."""
    source = "ArtemisLauncher.java" if chosen.family == "artemis" else "ClassicLauncher.java"
    return compiled(source, broker_jars(chosen))


def broker_class_path(chosen: Release) -> str:
    """Return the class path of all that a broker loads."""
    jars = broker_jars(chosen)
    return f"{jars}/*" if chosen.libraries else f"{jars}/*:{jars}/optional/*"


def jms_client_jars() -> Path:
    """Return the folder with the jakarta JMS clients of OpenWire, Artemis Core and qpid-jms."""
    return libraries("jms-clients", JMS_CLIENT_LIBRARIES)


def java_agent() -> Path:
    """Return the jar of OpenTelemetry's agent for Java."""
    [jar] = libraries("java-agent", (JAVA_AGENT,)).glob("*.jar")
    return jar


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


def compiled(source: str, *jars: Path, api: str = "jakarta") -> Path:
    """Compile one file of `tests/java`; return the jar.

    Args:
        source: its name.
        jars: jars, and folders of jars, that it needs.
        api: `javax` puts `javax.jms` in the place of `jakarta.jms`.
    """
    path = JAVA_SOURCES / source
    text = path.read_text(encoding="utf-8").replace("jakarta.jms", f"{api}.jms")
    key = "\0".join((text, *(_name(one) for one in jars)))
    digest = hashlib.sha256(key.encode()).hexdigest()[:12]

    def build(folder: Path) -> None:
        with tempfile.TemporaryDirectory(dir=cache_root()) as made:
            classes, given = Path(made) / "classes", Path(made) / path.name
            classes.mkdir()
            given.write_text(text, encoding="utf-8")
            options = ["-nowarn", "-proc:none", "-d", str(classes)]
            if jars:
                options += ["-cp", class_path(*jars)]
            run_tool([tool("javac"), *options, str(given)])
            # Why a jar: an archive of classes takes none out of folders.
            with zipfile.ZipFile(folder / JAR, "w") as jar:
                for one in sorted(classes.rglob("*.class")):
                    jar.write(one, one.relative_to(classes))

    return cached(f"{path.stem.lower()}-jar-{digest}", build) / JAR


def class_path(*jars: Path) -> str:
    """Return the class path of jars, and of folders of jars."""
    return ":".join(str(one if one.suffix == ".jar" else one / "*") for one in jars)


def notes_library() -> Path:
    """Return the jar of `plugins/java/amqsidecar-jms`, built by Maven, whose unit tests pass."""
    files = [NOTES_LIBRARY / "pom.xml", *sorted((NOTES_LIBRARY / "src").rglob("*.java"))]
    digest = hashlib.sha256(b"\0".join(one.read_bytes() for one in files)).hexdigest()[:12]

    def build(folder: Path) -> None:
        with tempfile.TemporaryDirectory(dir=cache_root()) as made:
            shutil.copytree(NOTES_LIBRARY / "src", Path(made) / "src")
            shutil.copy(NOTES_LIBRARY / "pom.xml", made)
            said = run_tool([tool("mvn"), "-q", "-B", "-f", made, "package"])
            if "\tat " in said:
                raise FetchError(f"mvn -q prints a stack trace: {said}")
            [jar] = (Path(made) / "target").glob("amqsidecar-jms-*.jar")
            shutil.copy(jar, folder)

    [jar] = cached(f"amqsidecar-jms-{digest}", build).glob("*.jar")
    return jar


def _name(jars: Path) -> str:
    """Return what differs where the contents of a jar or a folder of jars differ."""
    return jars.parent.name if jars.suffix == ".jar" else jars.name


def fetch_everything(report: Callable[[str], None]) -> None:
    """Fetch and compile all that tests, demo and benchmarks use, reporting each step."""
    chosen = dict.fromkeys((*TESTED.values(), *NEWEST))
    steps: list[tuple[str, Callable[[], Path]]] = [
        *((str(one), functools.partial(broker_jars, one)) for one in chosen),
        ("JMS clients", jms_client_jars),
        *((f"launcher of {one}", functools.partial(launcher, one)) for one in chosen),
        ("broker tether", lambda: compiled("Tether.java")),
        ("JMS peer", lambda: compiled("Peer.java", jms_client_jars())),
        ("library of notes", notes_library),
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
