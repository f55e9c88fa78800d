"""Builds the documentation site into FOLDER/html: `python deploy/site/build.py FOLDER`.

Pages are the repository's documents at the same relative paths, so that a link between them works
in both places, and the reference pages that are made of the code here (`reference_pages.py`).
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fidelity_page import fidelity_markdown, matrix_markdown
from records_page import records_page
from reference_pages import (
    api_page,
    command_page,
    event_page,
    packet_page,
    plugin_page,
    tables_page,
    values_page,
)
from ruamel.yaml import YAML

from amqsidecar.config.reference import options_markdown
from amqsidecar.telemetry.metrics_table import metrics_markdown

ROOT = Path(__file__).parents[2]
SETTINGS = Path(__file__).with_name("mkdocs.yml")
STYLE = Path(__file__).with_name("site.css")

FIDELITY = "deploy/evidence/fidelity"
FIELDS = "deploy/evidence/fidelity-matrix"
RECORDS = "deploy/evidence/records"
GENERATED = {
    "deploy/reference/options": options_markdown,
    "deploy/reference/metrics": metrics_markdown,
    "reference/commands": command_page,
    "reference/http-api": api_page,
    "reference/events": event_page,
    "reference/plugin-api": plugin_page,
    "reference/columns": tables_page,
    "reference/chart-values": values_page,
    "reference/core-packets": packet_page,
    FIDELITY: fidelity_markdown,
    FIELDS: matrix_markdown,
    RECORDS: records_page,
}
"""Pages that are made of code and records, by their path without the ending."""

SECTIONS: Mapping[str, Sequence[str]] = {
    "Start": (
        "README",
        "deploy/README",
        "deploy/guides/install",
        "deploy/guides/broker-side",
        "deploy/guides/frameworks",
        "deploy/guides/moving",
        "deploy/compose/README",
        "deploy/image/README",
        "deploy/reference/connecting",
        "deploy/reference/wires",
        "deploy/reference/discovery",
        "deploy/reference/observe",
        "helm/amqsidecar/README",
        "CHANGELOG",
    ),
    "Operate": (
        "deploy/reference/operations",
        "deploy/reference/console",
        "deploy/reference/causes",
        "deploy/reference/cause-notes",
        "deploy/reference/gates",
        "deploy/reference/doctor",
        "deploy/reference/runbooks",
        "deploy/monitoring/README",
        "deploy/reference/traces",
        "deploy/reference/schedules",
        "deploy/reference/journal",
        "deploy/reference/pipeline",
        "deploy/spark/README",
        "deploy/guides/sizing",
        "deploy/guides/upgrade",
        "deploy/guides/backup",
        "deploy/guides/gitops",
        "deploy/guides/*",
        "SECURITY",
    ),
    "Reference": (
        *(name for name in GENERATED if not name.startswith("deploy/evidence")),
        "plugins/README",
        "plugins/java/amqsidecar-jms/README",
        "sidecar/amqsidecar/policy/README",
        "deploy/reference/origins",
        "deploy/reference/*",
    ),
    "Evidence": ("deploy/evidence/README", FIDELITY, FIELDS, RECORDS),
    "Internals": (
        "sidecar/README",
        "sidecar/internals/architecture",
        "sidecar/internals/glossary",
        "sidecar/internals/pipeline",
        "sidecar/internals/wire-facts",
        "sidecar/internals/spec-classic",
        "sidecar/internals/spec-artemis",
        "sidecar/internals/*",
        "sidecar/internals/adr/README",
        "sidecar/internals/adr/*",
        "tests/README",
        "CONTRIBUTING",
        "deploy/guides/release",
    ),
}
"""The pages of each section in their order, without `.md`; `*` = the folder's others."""

TITLES = {"README": "amqsidecar", "helm/amqsidecar/README": "The Helm chart"}
"""Titles of pages that are not their first heading."""

LISTED = {name for names in SECTIONS.values() for name in names}

_CODE = re.compile(r"`[^`]+`")
_FENCE = re.compile(r" *(```|~~~)")
_ITEM = re.compile(r" *(?:[-*]|\d+\.) +(?=\S)")
_LINK = re.compile(r"\]\(([^)\s#]+)[^)]*\)")


def site_markdown(text: str) -> str:
    """Return a document as Python-Markdown reads it.

    It wants a blank line before lists and tables, four spaces for each level of a list, and no
    backslash before a bar in code.
    """
    lines: list[str] = []
    columns: list[int] = []
    in_fence = False
    for line in text.splitlines():
        stripped = line.strip()
        indent = len(line) - len(line.lstrip(" "))
        item = None if in_fence else _ITEM.match(line)
        is_table = not in_fence and stripped.startswith("|")
        previous = lines[-1].strip() if lines else ""
        begins_list = item is not None and not columns
        if stripped and not in_fence and (item or not previous):
            while columns and indent < columns[-1]:
                columns.pop()
        begins_table = is_table and not previous.startswith("|")
        if previous and (begins_list or begins_table):
            lines.append("")
        if is_table:
            stripped = _CODE.sub(lambda code: code[0].replace("\\|", "|"), stripped)
        spare = max(0, indent - (columns[-1] if columns else 0))
        lines.append((" " * (4 * len(columns) + spare) + stripped) if stripped else "")
        if item:
            columns.append(item.end())
        if _FENCE.match(line):
            in_fence = not in_fence
    return "\n".join([*lines, ""])


def section_pages(names: Sequence[str]) -> Iterator[str]:
    """Yield the paths of a section's pages, with their ending."""
    for name in names:
        if name.endswith("*"):
            found = sorted((ROOT / name).parent.glob("*.md"))
            pages = [str(page.relative_to(ROOT)) for page in found]
            yield from (page for page in pages if page.removesuffix(".md") not in LISTED)
        else:
            yield f"{name}.md"


def entries(names: Sequence[str]) -> list[str | dict[str, str]]:
    """Return a section's part of the navigation."""
    pages = section_pages(names)
    titles = {f"{name}.md": title for name, title in TITLES.items()}
    return [{titles[page]: page} if page in titles else page for page in pages]


def lay_pages(folder: Path) -> None:
    """Write all pages, and the files that they link to."""
    for names in SECTIONS.values():
        for name in section_pages(names):
            page = folder / name
            page.parent.mkdir(parents=True, exist_ok=True)
            generate = GENERATED.get(name.removesuffix(".md"))
            text = generate() if generate else (ROOT / name).read_text(encoding="utf-8")
            page.write_text(site_markdown(text), encoding="utf-8")
            for link in _LINK.findall(text):
                target = (ROOT / name).parent / link
                if "://" not in link and target.is_file() and target.suffix != ".md":
                    copy = (page.parent / link).resolve()
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(target, copy)
    shutil.copyfile(STYLE, folder / STYLE.name)


def render(settings: Path) -> int:
    """Return the exit code of mkdocs; warnings are errors."""
    # Why not --quiet: mkdocs would not count its warnings.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(settings)]
    # Why the variable: Material warns on each build that it ends in 2027.
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, check=False, env=environment).returncode


def main() -> None:
    """Build the site from scratch."""
    place = Path(sys.argv[1]).resolve()
    shutil.rmtree(place, ignore_errors=True)
    lay_pages(place / "pages")
    settings = {
        "INHERIT": str(SETTINGS),
        "docs_dir": str(place / "pages"),
        "site_dir": str(place / "html"),
        "nav": [{title: entries(names)} for title, names in SECTIONS.items()],
    }
    with (place / "mkdocs.yml").open("w", encoding="utf-8") as file:
        YAML().dump(settings, file)
    sys.exit(render(place / "mkdocs.yml"))


if __name__ == "__main__":
    main()
