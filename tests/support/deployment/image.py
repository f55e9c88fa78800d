"""The image of the sidecar, built here without an engine's service, a registry, or an index.

The base is a stand-in for `python:3.11-slim-bookworm`, made of Debian's packages; wheels are
fetched by pip. Both are made once, and so are the layers of the image that did not change:
`containers` in the cache is a storage of Buildah and Podman of our own.

`PYTHONPATH=tests python -m support.deployment.image` makes all of it.
"""

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from amqsidecar import __version__
from support.maven import FetchError, cache_root, cached, locked, run_tool

ROOT = Path(__file__).parents[3]
TOOLS = ("buildah", "mmdebstrap", "podman", "runc")

SUITE = "bookworm"
PYTHON = "3.11"
"""Of that suite."""
WITH_PYTHON = ("python3", "ca-certificates", "netbase", "tzdata")
# What apt needs is in every image of Debian; pyarrow needs it, too.
SLIM = (*WITH_PYTHON, "libstdc++6")
COMPILING = (*WITH_PYTHON, "gcc", "libc6-dev", "libpython3-dev", "python3-venv")
JAVA = (*WITH_PYTHON, "openjdk-17-jre-headless")
DANGLING_MAX = 40
_SOURCES = Path("/etc/apt/sources.list.d/debian.sources")
_LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
_SITE = f"/usr/local/lib/python{PYTHON}/dist-packages"
# As in Python's image: pip is there, and nothing is compiled.
_LIKE_PYTHON_IMAGE = (
    f'{sys.executable} -m pip install --quiet --target "$1{_SITE}" pip',
    'find "$1/usr/lib" "$1/usr/local/lib" -name "*.pyc" -delete',
)
_OFFLINE = "[global]\nno-index = true\nfind-links = /wheels\n"


def why_not() -> str:
    """Return why this machine can't build and run images as the tests do, or nothing."""
    return "" if os.geteuid() == 0 else "images are built and run by root here"


def storage() -> tuple[str, ...]:
    """Return the options of Buildah and Podman that come before the command."""
    root = cache_root() / "containers"
    return "--root", str(root / "storage"), "--runroot", str(root / "run")


def sidecar_image(*, with_journal: bool = False, root: Path = ROOT) -> str:
    """Return the name of the image of this working tree, or another one, as `make image` does."""
    kind = "runtime-journal.txt" if with_journal else "runtime.txt"
    requirements = [root / "deploy" / "requirements" / one for one in ("build.txt", kind)]
    name = f"localhost/amqsidecar:{_digest(root)}{'-journal' if with_journal else ''}"
    with ThreadPoolExecutor() as pool:
        compiling = pool.submit(_base, "compiling", COMPILING)
        slim = pool.submit(base_image)
        wheels = pool.submit(_wheels, requirements)
    with locked("images"), tempfile.TemporaryDirectory() as folder:
        secret = Path(folder) / "pip.conf"
        secret.write_text(_OFFLINE, encoding="utf-8")
        run(
            [
                str(root / "deploy" / "image" / "build"),
                *(["journal"] if with_journal else []),
                *("--quiet", "--layers", "--isolation", "chroot", "--tag", name),
                *("--volume", f"{wheels.result()}:/wheels:ro"),
                *("--secret", f"id=pip,src={secret}"),
            ],
            {
                "ENGINE": " ".join(["buildah", *storage()]),
                "BUILDER": compiling.result(),
                "BASE": slim.result(),
            },
        )
        _forget_old_layers()
    return name


def sidecar_archive(folder: Path) -> Path:
    """Write the sidecar's image to a folder, for `ctr images import`, as `amqsidecar:VERSION`."""
    return archive(sidecar_image(), folder / "amqsidecar.tar", f"amqsidecar:{__version__}")


def base_image() -> str:
    """Return the name of an image with Python, as the sidecar's is built on."""
    return _base("slim", SLIM)


def java_image() -> str:
    """Return the name of an image with Python and a JRE, to build a broker's on."""
    return _base("java", JAVA)


def build(name: str, containerfile: str, context: Path) -> str:
    """Build an image out of a folder, and return its name."""
    with locked("images"), tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "Containerfile"
        path.write_text(containerfile, encoding="utf-8")
        run(
            [
                *("buildah", *storage(), "build", "--quiet", "--layers", "--isolation", "chroot"),
                *("--format", "docker", "--tag", name, "--file", str(path), str(context)),
            ]
        )
    return name


def archive(image: str, path: Path, name: str) -> Path:
    """Write an image to a file, for `ctr images import` and `podman load`; there it has a name."""
    path.unlink(missing_ok=True)
    run(["buildah", *storage(), "push", "--quiet", image, f"docker-archive:{path}:{name}"])
    return path


def run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """Return the output of a tool.

    Raises:
        FetchError: it is missing, or fails.
    """
    missing = [name for name in TOOLS if shutil.which(name) is None]
    if missing:
        raise FetchError(f"no {', '.join(missing)} on PATH: deploy/prepare-machine installs them")
    return run_tool(command, environment)


def _forget_old_layers() -> None:
    """Remove what no image has any more, once it has become much: the next build is slow."""
    dangling = run(["buildah", *storage(), "images", "--quiet", "--filter", "dangling=true"])
    if len(dangling.split()) > DANGLING_MAX:
        run(["buildah", *storage(), "rmi", "--prune"])


def _base(kind: str, packages: Sequence[str]) -> str:
    """Return the name of an image of Debian's packages, made when missing."""
    recipe = (SUITE, packages, _LEFT_OUT, _LIKE_PYTHON_IMAGE[1:])
    name = f"localhost/amqsidecar-{kind}:{_digest(recipe)}"
    with locked(f"image-{kind}"):
        if not run(["buildah", *storage(), "images", "--quiet", "--filter", f"reference={name}"]):
            with tempfile.TemporaryDirectory(dir=cache_root()) as folder:
                tar = Path(folder) / "base.tar"
                _make_base(tar, packages)
                run(["podman", *storage(), "import", "--quiet", str(tar), name])
    return name


def _make_base(tar: Path, packages: Sequence[str]) -> None:
    run(
        [
            *("mmdebstrap", "--quiet", "--variant=essential"),
            f"--include={','.join(packages)}",
            *(f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT),
            # Why: a JRE's package puts links there, and fails where that folder is left out.
            '--essential-hook=mkdir -p "$1/usr/share/man/man1"',
            *(f"--customize-hook={hook}" for hook in _LIKE_PYTHON_IMAGE),
            *(SUITE, str(tar)),
            # Why: the machine knows where it gets packages from.
            *([str(_SOURCES)] if _SOURCES.exists() else []),
        ]
    )


def _wheels(files: Sequence[Path]) -> Path:
    """Return the folder with the pinned packages, for the Python of the base."""

    def fetch(folder: Path) -> None:
        for file in files:
            run(
                [
                    *(sys.executable, "-m", "pip", "download", "--quiet", "--require-hashes"),
                    *("--no-deps", "--python-version", PYTHON, "--dest", str(folder)),
                    *("--requirement", str(file)),
                ]
            )

    return cached(f"image-wheels-{_digest([file.read_text() for file in files])}", fetch)


def _digest(value: object) -> str:
    return hashlib.sha256(str(value).encode()).hexdigest()[:12]


if __name__ == "__main__":
    print(why_not() or sidecar_image(), file=sys.stderr)
