"""ActiveMQ Classic with its stock web console, and Jolokia in it."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from support import maven, versions
from support.brokers.broker_xml import classic_xml
from support.brokers.process import QUICK_START
from support.brokers.real import ClassicBroker
from support.machine.ports import free_port, is_open

_PROPERTIES = (
    '<bean class="org.springframework.beans.factory.config.PropertyPlaceholderConfigurer"/>'
)
_FILES: Final = (
    "credentials.properties",
    "jetty-realm.properties",
    "jetty.xml",
    "jolokia-access.xml",
)
_FOLDER: Final = Path(__file__).parent / "consoles"
_JOLOKIA: Final = tuple(
    f"org.jolokia:jolokia-{one}:2.6.0"
    for one in ("server-core", "service-jmx", "service-serializer")
)
_JETTY_11: Final = tuple(
    f"org.eclipse.jetty:{one}:11.0.26"
    for one in ("jetty-webapp", "apache-jsp", "jetty-rewrite", "jetty-jaas")
)
_JETTY_12: Final = (
    "org.eclipse.jetty.ee11:jetty-ee11-webapp:12.1.11",
    "org.eclipse.jetty:jetty-rewrite:12.1.11",
    "org.eclipse.jetty:jetty-security:12.1.11",
    "org.mortbay.jasper:apache-jsp:10.0.27",
)


class Console(NamedTuple):
    """A web console of Classic: files of the source of that release, unchanged.

    Attributes:
        broker: version of the broker that has it, the nearest that can be had.
        folders: with its files, below `consoles`; none = the distribution of the broker has them.
        security: the file whose refusals are HTTP 403.
        libraries: coordinates of its modules; none = the distribution of the broker has them.
    """

    broker: str
    folders: tuple[str, ...]
    security: str = "jetty.xml"
    libraries: tuple[str, ...] = ()


UNHARDENED: Final = Console(versions.usual("classic_5").version, ())
# Why one file for three: it has not changed from 5.19.7 to 6.3.1.
HARDENED: Final = {
    "5.19.10": Console(UNHARDENED.broker, ("5.19.10", "hardened")),
    "6.2.7": Console(
        "6.2.7",
        ("6.2.7", "6.x", "hardened"),
        libraries=(*_JETTY_11, "org.apache.activemq:activemq-web:6.1.8", *_JOLOKIA),
    ),
    "6.3.1": Console(
        "6.3.1",
        ("6.3.1", "6.x", "hardened"),
        security="jetty/jetty-security.xml",
        libraries=(*_JETTY_12, *_JOLOKIA),
    ),
}
"""By release of the files."""


class ConsoleBroker(ClassicBroker):
    """A broker with its stock web console, user admin with password admin."""

    def __init__(
        self,
        console: Console = UNHARDENED,
        *,
        edits: Mapping[str, tuple[str, str]] | None = None,
        **options: Any,
    ) -> None:
        """Prepare one.

        Args:
            console: with its files.
            edits: by name of such a file, a text in it and the text that replaces it.
            options: of `classic_xml`.
        """
        self.console_port = free_port()
        self._console = console
        self._edits = dict(edits or {})
        file, flags = "jetty.xml", (f"-Djetty.port={self.console_port}", "-Djetty.host=127.0.0.1")
        if console.security != file:
            file, port = "jetty-spring.xml", "jetty.http.port="
            place = f"{port}{self.console_port}\njetty.http.host=127.0.0.1"
            self._edits["jetty-spring.properties"] = (f"{port}8161", place)
        super().__init__(
            console.broker,
            jvm_flags=(*QUICK_START, *flags),
            # Why behind: its web applications look for a broker that runs; hardened files name it.
            activemq_xml=classic_xml(beans=_PROPERTIES, **options)
            .replace("<broker ", '<broker id="broker" ')
            .replace("</broker>", f'</broker><import resource="{file}"/>'),
        )

    @property
    def jolokia_url(self) -> str:
        """Where Jolokia answers, with its user."""
        return f"http://admin@127.0.0.1:{self.console_port}/api/jolokia"

    def _has_started(self, log_offset: int) -> bool:
        # Why the port: the broker's log names it before it is open.
        return super()._has_started(log_offset) and is_open(self.console_port)

    def _prepare(self) -> None:
        super()._prepare()
        own = self.config_path.parent
        if not self._console.libraries:
            for name in _FILES:
                shutil.copy(maven.classic_5_home() / "conf" / name, own)
        for folder in self._console.folders:
            shutil.copytree(_FOLDER / folder, own, dirs_exist_ok=True)
        if (page := own / "web.xml").exists():
            for name in ("admin", "api"):
                (own / "webapps" / name / "WEB-INF").mkdir(parents=True)
            page.rename(own / "webapps" / "api" / "WEB-INF" / "web.xml")
        for name, (old, new) in self._edits.items():
            text = (own / name).read_text(encoding="utf-8")
            assert old in text, f"{name} has no {old}"
            (own / name).write_text(text.replace(old, new), encoding="utf-8")

    def _properties(self) -> dict[str, str]:
        home = {"activemq.home": f"{self.folder}"} if self._console.libraries else {}
        return super()._properties() | home

    def _java(self) -> list[str]:
        java = super()._java()
        place = java.index("-cp") + 1
        java[place] += f":{self._class_path()}"
        # As bin/activemq does it.
        login = f"-Djava.security.auth.login.config={self.folder}/login.config"
        return [f"-Djolokia.conf=file:{self.folder}/jolokia-access.xml", login, *java]

    def _class_path(self) -> str:
        if not self._console.libraries:
            return f"{maven.classic_5_home() / 'lib' / 'web'}/*"
        jars = maven.libraries(f"console-{self.version}", self._console.libraries)
        if self._console.security == "jetty.xml":
            return maven.class_path(jars)
        # Why: of the module that has it only versions for Jetty 11 can be had.
        bean = maven.compiled("JettyServerBean.java", jars, maven.broker_jars(self.release))
        return maven.class_path(bean, jars)
