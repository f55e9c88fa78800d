"""The images that the cluster runs, as archives in the cache.

`PYTHONPATH=tests python -m kubernetes.images` makes them: that of the sidecar is of this working
tree. Inside of a sealed network nothing could be fetched for them.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from support import maven, versions
from support.deployment import image
from support.deployment.cluster import PAUSE_IMAGE
from support.deployment.kubernetes_programs import programs_beside
from support.maven import run_tool

BROKERS = "localhost/brokers:test"
PROMETHEUS = "localhost/prometheus:test"
RELOADER = "localhost/prometheus-config-reloader:test"
EARLIER_COMMIT = "6c502950"
"""With an earlier chart, and an earlier schema of the schedule; newer ones migrate it."""
EARLIER = "amqsidecar:earlier"
# Does nothing, but buries processes, as that of Kubernetes; it holds a pod's network.
PAUSE = """\
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int number) { _exit(0); }
static void bury(int number) { while (waitpid(-1, 0, WNOHANG) > 0); }

int main(void) {
  signal(SIGTERM, end);
  signal(SIGINT, end);
  signal(SIGCHLD, bury);
  for (;;) pause();
}
"""
PAUSE_FILE = 'FROM scratch\nCOPY pause /pause\nUSER 65535:65535\nENTRYPOINT ["/pause"]\n'
PROGRAM_FILE = 'FROM {base}\nCOPY {name} /bin/\nENTRYPOINT ["/bin/{name}"]\n'
BROKERS_FILE = """\
FROM {java}
COPY artemis /opt/artemis
COPY classic /opt/classic
"""


def archives() -> Iterable[Path]:
    """Return the archives that are there."""
    return sorted(_folder().glob("*.tar"))


def make_archives() -> None:
    """Make them all."""
    folder = _folder()
    folder.mkdir(exist_ok=True)
    image.sidecar_archive(folder)
    image.archive(_pause_image(), folder / "pause.tar", PAUSE_IMAGE)
    image.archive(_brokers_image(), folder / "brokers.tar", BROKERS)
    for name in (PROMETHEUS, RELOADER):
        program = programs_beside() / name.removeprefix("localhost/").removesuffix(":test")
        image.archive(_program_image(name, program), folder / f"{program.name}.tar", name)
    made = image.sidecar_image(root=earlier())
    image.archive(made, folder / "earlier.tar", EARLIER)


def earlier() -> Path:
    """Return the folder with the tree of `EARLIER_COMMIT`."""

    def extract(folder: Path) -> None:
        archived = folder / "tree.tar"
        run_tool(["git", "archive", f"--output={archived}", EARLIER_COMMIT], folder=image.ROOT)
        shutil.unpack_archive(archived, folder)
        archived.unlink()

    return maven.cached(f"earlier-{EARLIER_COMMIT}", extract)


def _folder() -> Path:
    return maven.cache_root() / "kubernetes-images"


def _pause_image() -> str:
    with tempfile.TemporaryDirectory() as context:
        place = Path(context)
        (place / "pause.c").write_text(PAUSE, encoding="utf-8")
        command = ["gcc", "-static", "-O2", "-s", "-o", f"{place}/pause", f"{place}/pause.c"]
        subprocess.run(command, check=True)
        return image.build(PAUSE_IMAGE, PAUSE_FILE, place)


def _program_image(name: str, program: Path) -> str:
    text = PROGRAM_FILE.format(base=image.base_image(), name=program.name)
    return image.build(name, text, program.parent)


def _brokers_image() -> str:
    with tempfile.TemporaryDirectory() as context:
        place = Path(context)
        chosen = versions.TESTED["classic_6"]
        jars = maven.broker_jars(chosen)
        shutil.copytree(maven.artemis_home(), place / "artemis")
        shutil.copytree(jars, place / "classic")
        shutil.copy(maven.launcher(chosen), place / "classic")
        # Why: only we may look into the cache.
        (place / "classic").chmod(0o755)
        return image.build(BROKERS, BROKERS_FILE.format(java=image.java_image()), place)


if __name__ == "__main__":
    make_archives()
    print(*archives(), sep="\n", file=sys.stderr)
