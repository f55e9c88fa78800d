"""Applications that were made with frameworks: jars, npm packages, and a running one."""

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from amqsidecar.demo.maven import ARTEMIS, CLASSIC, DEPENDENCY_PLUGIN
from support import maven
from support.machine.ports import free_port
from support.waiting import eventually

_SOURCES = Path(__file__).parents[2] / "end_to_end" / "frameworks"
NODE_SOURCES = _SOURCES / "node"
SPRING_BOOT = "4.0.7"
CAMEL = "4.22.0"
_CAMEL = (
    f"org.apache.camel:camel-main:{CAMEL}",
    f"org.apache.camel:camel-jms:{CAMEL}",
    "org.apache.activemq:activemq-client:6.3.1",
    "org.slf4j:slf4j-nop:2.0.17",
)

SPRING_INTEGRATION = "7.1.2"
NARAYANA = "7.3.4.Final"
WILDFLY = "39.0.1.Final"
WILDFLY_READY = "WFLYSRV0025: .* started in"
_MANAGED = (
    f"org.springframework.integration:spring-integration-jms:{SPRING_INTEGRATION}",
    f"org.jboss.narayana.jta:narayana-jta:{NARAYANA}",
    "org.messaginghub:pooled-jms:3.2.5",
    "org.jboss.logging:jboss-logging:3.6.1.Final",
    "org.apache.activemq:activemq-client:6.3.1",
    f"org.apache.activemq:artemis-jakarta-client:{ARTEMIS}",
    "org.slf4j:slf4j-nop:2.0.17",
)

_CLIENTS = {
    "javax": (
        f"org.apache.activemq:activemq-client:{CLASSIC}",
        f"org.apache.activemq:artemis-jms-client:{ARTEMIS}",
        "org.slf4j:slf4j-nop:2.0.17",
    ),
    "jakarta": (
        "org.apache.activemq:activemq-client:6.3.1",
        f"org.apache.activemq:artemis-jakarta-client:{ARTEMIS}",
        f"org.apache.qpid:qpid-jms-client:{maven.QPID_JMS}",
        "org.slf4j:slf4j-nop:2.0.17",
    ),
}
"""The JMS clients of OpenWire and Artemis Core, by API."""
CAMEL_TRANSACTED = (
    "?transacted=true&lazyCreateTransactionManager=false&cacheLevelName=CACHE_CONSUMER"
)
"""What keeps a failed message from being acknowledged."""


def spring(provider: str, *options: str) -> list[str]:
    """Return the command of the Spring Boot application.

    Args:
        provider: `activemq` or `artemis`; Boot takes the former where it finds both.
        options: `name=value` of its properties.
    """
    starter = f"org.springframework.boot:spring-boot-starter-{provider}:{SPRING_BOOT}"
    java = _java("SpringListener", f"spring-boot-{provider}", (starter,))
    return [*java, *(f"--{one}" for one in options)]


def spring_managed(provider: str, url: str, queue: str, how: str) -> list[str]:
    """Return the command of Spring's own container or Spring Integration, without Boot.

    Args:
        provider: `openwire` or `core`.
        url: of its client.
        queue: that it consumes.
        how: as `SpringManaged.java` knows it.
    """
    return [*_java("SpringManaged", "spring-managed", _MANAGED), provider, url, queue, how]


def wildfly(folder: Path, port: int, queue: str) -> list[str]:
    """Return the command of WildFly with a message-driven bean that reads a remote Artemis.

    Args:
        folder: where it keeps data and logs; must exist.
        port: of the Artemis.
        queue: that the bean consumes.
    """
    bean, script = maven.JAVA_SOURCES / "OrdersBean.java", _SOURCES / "wildfly" / "setup.cli"

    def build(made: Path) -> None:
        with tempfile.TemporaryDirectory(dir=maven.cache_root()) as fetched:
            coordinate = f"org.wildfly:wildfly-dist:{WILDFLY}:zip"
            copied = ("-Dmdep.stripVersion=true", f"-DoutputDirectory={fetched}")
            goal = f"{DEPENDENCY_PLUGIN}:copy"
            maven.run_tool(
                [maven.tool("mvn"), "-q", "-B", goal, f"-Dartifact={coordinate}", *copied]
            )
            shutil.unpack_archive(Path(fetched) / "wildfly-dist.zip", fetched)
            shutil.copytree(Path(fetched) / f"wildfly-{WILDFLY}", made, dirs_exist_ok=True)
        modules = "jboss-modules.jar", "-mp", str(made / "modules")
        home = f"-Djboss.home.dir={made}"
        java = [maven.tool("java"), home, "-jar", str(made / modules[0]), *modules[1:]]
        maven.run_tool([*java, "org.jboss.as.cli", f"--file={script}"], {"JBOSS_HOME": str(made)})

    home = maven.cached(f"wildfly-{WILDFLY}-{_digest(script)}", build)
    apis = (home / "modules" / "system" / "layers" / "base" / "jakarta").rglob("*-api-*.jar")
    jar = maven.compiled(bean.name, *sorted(apis))
    base = folder / "wildfly"
    shutil.copytree(home / "standalone", base)
    shutil.copy(jar, base / "deployments" / "orders.jar")
    # Why an offset: it has ports of IIOP, HTTP, HTTPS and management.
    offset = f"-Djboss.socket.binding.port-offset={free_port() - 8080}"
    return [
        *(maven.tool("java"), "-XX:TieredStopAtLevel=1", "-jar", str(home / "jboss-modules.jar")),
        *("-mp", str(home / "modules"), "org.jboss.as.standalone", "-c", "standalone-full.xml"),
        *(f"-Djboss.home.dir={home}", f"-Djboss.server.base.dir={base}", offset),
        *(f"-Dartemis.port={port}", f"-Dqueue={queue}"),
    ]


def camel(url: str, endpoint: str) -> list[str]:
    """Return the command of the Camel route from an endpoint, to a Classic broker."""
    return [*_java("CamelRoute", "camel", _CAMEL), url, endpoint]


def spring_orders(provider: str, url: str, queue: str, notes: str) -> list[str]:
    """Return the command of the Spring Boot application with the bugs of `Bugs.java`.

    Args:
        provider: `openwire` or `core`.
        url: of its client.
        queue: that it consumes.
        notes: the queue of notes; empty = it writes none.
    """
    client = {"openwire": "activemq", "core": "artemis"}[provider]
    starter = f"org.springframework.boot:spring-boot-starter-{client}:{SPRING_BOOT}"
    return [
        *_orders("SpringOrders", f"spring-boot-{client}", (starter,)),
        *([f"--notes={notes}"] if notes else []),
        *(["--spring.artemis.mode=native"] if provider == "core" else []),
        f"--queue={queue}",
        f"--spring.{client}.broker-url={url}",
        f"--spring.{client}.user=admin",
        f"--spring.{client}.password=admin",
        "--logging.level.root=warn",
    ]


def camel_orders(provider: str, url: str, queue: str, notes: str) -> list[str]:
    """Return the command of the Camel route with the bugs of `Bugs.java`; as `spring_orders`."""
    libraries = (*_CAMEL, f"org.apache.activemq:artemis-jakarta-client:{ARTEMIS}")
    command = _orders("CamelOrders", "camel-both", libraries)
    return [*command, provider, url, f"jms:queue:{queue}{CAMEL_TRANSACTED}", notes]


def _orders(name: str, label: str, libraries: Sequence[str]) -> list[str]:
    jars, library = maven.libraries(label, libraries), maven.notes_library()
    bugs = maven.compiled("Bugs.java")
    compiled = maven.compiled(f"{name}.java", jars, library, bugs)
    path = maven.class_path(compiled, bugs, library, jars)
    return [maven.tool("java"), "-XX:TieredStopAtLevel=1", "-cp", path, name]


def noted(api: str, *arguments: str) -> list[str]:
    """Return the command of a plain consumer with the library of notes.

    Args:
        api: `javax` or `jakarta`.
        arguments: provider (`openwire`, `core`, or of jakarta `qpid`), URL, queue or subscription,
            queue of notes, and how it fails.
    """
    jars = maven.libraries(f"noted-{api}", _CLIENTS[api])
    library = maven.notes_library()
    source = "NotedConsumer.java"
    compiled = maven.compiled(source, jars, library, api=api)
    path = maven.class_path(compiled, library, jars)
    return [maven.tool("java"), "-XX:TieredStopAtLevel=1", "-cp", path, "NotedConsumer", *arguments]


def quarkus(**options: str) -> list[str]:
    """Return the command of the Quarkus application, with the options of its channel `work`."""
    channel = {name.replace("_", "-"): value for name, value in options.items()}
    settings = {"connector": "smallrye-amqp", "capabilities": "queue", **channel}
    return _quarkus("QuarkusListener.java", "pom.xml", _SETTING, settings)


def quarkus_jms(url: str, queue: str, *, is_channel: bool) -> list[str]:
    """Return the command of the Quarkus application with qpid-jms.

    Args:
        url: of the client.
        queue: that it consumes.
        is_channel: by SmallRye's connector; else in a transaction of its own.
    """
    channel = {f"{_SETTING}connector": "smallrye-jms", f"{_SETTING}destination": queue}
    settings = {"jms.url": url, **(channel if is_channel else {"jms.queue": queue})}
    return _quarkus("QuarkusJms.java", "jms.xml", "", settings)


_SETTING = "mp.messaging.incoming.work."


def _quarkus(name: str, pom_name: str, head: str, settings: Mapping[str, str]) -> list[str]:
    source, pom = maven.JAVA_SOURCES / name, _SOURCES / "quarkus" / pom_name
    properties = pom.with_suffix(".properties")
    digest = _digest(source, pom, *([properties] if properties.exists() else []))

    def build(folder: Path) -> None:
        with tempfile.TemporaryDirectory(dir=maven.cache_root()) as made:
            project = Path(made)
            package, resources = (project / "src" / "main" / one for one in ("java", "resources"))
            package.mkdir(parents=True)
            resources.mkdir()
            shutil.copy(source, package)
            shutil.copy(pom, project / "pom.xml")
            if properties.exists():
                shutil.copy(properties, resources / "application.properties")
            maven.run_tool([maven.tool("mvn"), "-q", "-B", "-f", str(project), "package"])
            shutil.copytree(project / "target" / "quarkus-app", folder, dirs_exist_ok=True)

    folder = maven.cached(f"quarkus-{digest}", build)
    return [
        maven.tool("java"),
        "-XX:TieredStopAtLevel=1",
        *(f"-D{head}{name}={value}" for name, value in settings.items()),
        "-jar",
        str(folder / "quarkus-run.jar"),
    ]


def php(*arguments: str) -> list[str]:
    """Return the command of the application on PHP's extension `stomp`."""
    return ["php", str(_SOURCES / "php" / "stomp.php"), *arguments]


def python(name: str, *arguments: str) -> list[str]:
    """Return the command of a Python application of `frameworks/python`."""
    return [sys.executable, str(_SOURCES / "python" / f"{name}.py"), *arguments]


def node(name: str, *arguments: str) -> list[str]:
    """Return the command of one of the applications in `NODE_SOURCES`."""
    text = (NODE_SOURCES / f"{name}.js").read_text(encoding="utf-8")
    return [*node_script(name, text), *arguments]


def node_script(name: str, text: str) -> list[str]:
    """Return the command of a script that uses the packages of `NODE_SOURCES`."""
    digest = _digest(NODE_SOURCES / "package.json")
    folder = maven.cached(f"node-applications-{digest}", _install)
    script = folder / f"{name}.js"
    script.write_text(text, encoding="utf-8")
    return ["node", str(script)]


def _digest(*paths: Path) -> str:
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in paths)).hexdigest()[:12]


def _install(folder: Path) -> None:
    shutil.copy(NODE_SOURCES / "package.json", folder)
    subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock"],
        cwd=folder,
        check=True,
        capture_output=True,
    )


def _java(name: str, label: str, libraries: Sequence[str]) -> list[str]:
    jars = maven.libraries(label, libraries)
    compiled = maven.compiled(f"{name}.java", jars)
    return [maven.tool("java"), "-XX:TieredStopAtLevel=1", "-cp", f"{compiled}:{jars}/*", name]


class Application:
    """A running application that prints `failed` or `succeeded` for each delivery."""

    def __init__(self, command: Sequence[str], folder: Path, *, ready: str = "^ready$") -> None:
        """Prepare one; `ready` is a regular expression of what it prints when it has started."""
        self._command = list(command)
        self._folder = folder
        self._log = folder / "application.log"
        self._ready = re.compile(ready, re.MULTILINE)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                # Why: Narayana keeps its transactions in the folder where it is started.
                cwd=self._folder,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            eventually(lambda: self._ready.search(self._text()), what=f"{self._command} is ready")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def said(self, word: str) -> int:
        """Return how often it has printed a word."""
        return self._text().splitlines().count(word)

    def wait_for(self, word: str) -> None:
        """Wait until it prints a word.

        Raises:
            AssertionError: it does not; the text is its output.
        """
        try:
            eventually(lambda: self.said(word) > 0, what=f"it says {word}")
        except TimeoutError as late:
            raise AssertionError(f"{late}\n{self._text()}") from late

    def _text(self) -> str:
        # Why replaced: the end may be in the middle of a character.
        return self._log.read_text(encoding="utf-8", errors="replace")
