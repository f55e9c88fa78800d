"""ActiveMQ Classic 5.18.3 with the web console of its distribution, and Jolokia in it."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from support import maven, versions
from support.brokers.broker_xml import classic_xml
from support.brokers.process import QUICK_START
from support.brokers.real import ClassicBroker
from support.machine.ports import free_port, is_open

_PROPERTIES = (
    '<bean class="org.springframework.beans.factory.config.PropertyPlaceholderConfigurer"/>'
)
_FILES: Final = ("jetty.xml", "jetty-realm.properties", "jolokia-access.xml")
HARDENED: Final = Path(__file__).parent / "classic-5.19.10"
"""Files of the source of Classic, tag activemq-5.19.10, assembly/src/release/conf, unchanged."""


class ConsoleBroker(ClassicBroker):
    """The stock broker with its stock web console, user admin with password admin."""

    def __init__(
        self,
        *,
        conf: Path | None = None,
        edits: Mapping[str, tuple[str, str]] | None = None,
        **options: Any,
    ) -> None:
        """Prepare one.

        Args:
            conf: folder with the console's files; None = the distribution's.
            edits: by name of such a file, a text in it and the text that replaces it.
            options: of `classic_xml`.
        """
        self.console_port = free_port()
        self._conf = conf
        self._edits = edits or {}
        flags = (f"-Djetty.port={self.console_port}", "-Djetty.host=127.0.0.1")
        super().__init__(
            versions.usual("classic_5").version,
            jvm_flags=(*QUICK_START, *flags),
            # Why behind: its web applications look for a broker that runs; hardened files name it.
            activemq_xml=classic_xml(beans=_PROPERTIES, **options)
            .replace("<broker ", '<broker id="broker" ')
            .replace("</broker>", '</broker><import resource="jetty.xml"/>'),
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
        stock, own = maven.classic_5_home() / "conf", self.config_path.parent
        shutil.copy(stock / "credentials.properties", own)
        for name in _FILES:
            text = ((self._conf or stock) / name).read_text(encoding="utf-8")
            old, new = self._edits.get(name, ("", ""))
            assert old in text, f"{name} has no {old}"
            (own / name).write_text(text.replace(old, new) if old else text, encoding="utf-8")

    def _java(self) -> list[str]:
        web = maven.classic_5_home() / "lib" / "web"
        java = super()._java()
        place = java.index("-cp") + 1
        java[place] += f":{web}/*"
        # As bin/activemq does it.
        return [f"-Djolokia.conf=file:{self.folder}/jolokia-access.xml", *java]
