"""The protocol's own conformance suite, from npm, over what a server of tools alone can show."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from support import maven
from support.web.assistants import NEWEST, OPEN, assistant_server
from support.web.site import running_site

SUITE: Final = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
NODE: Final = "node@22.23.3"
"""The suite needs a newer one than Debian's; npm has it."""
PASSED: Final = {
    NEWEST: {
        # Four more need tools of the suite's own example server.
        "server-stateless": 21,
        "tools-list": 4,
        "sep-2164-resource-not-found": 2,
        "dns-rebinding-protection": 2,
        "input-required-result-unsupported-methods": 2,
        "http-header-validation": 14,
    },
    "2025-11-25": {
        "server-initialize": 2,
        "ping": 2,
        "tools-list": 3,
        "dns-rebinding-protection": 2,
    },
}
"""Checks that pass, by revision and scenario; all others need prompts, resources or such tools."""

pytestmark = [
    pytest.mark.proof,
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed"),
]


def install(folder: Path) -> None:
    options = ("--no-audit", "--no-fund", "--no-package-lock", "--prefix", str(folder))
    command = ["npm", "install", *options, SUITE, NODE]
    subprocess.run(command, check=True, capture_output=True)


def test_the_conformance_suite(tmp_path: Path) -> None:
    modules = maven.cached(f"mcp-{SUITE.rpartition('@')[2]}", install) / "node_modules"
    suite = modules / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    with (
        running_site(tmp_path, **OPEN) as site,
        assistant_server(tmp_path, f"http://{site.address}") as address,
    ):
        for revision, scenarios in PASSED.items():
            for scenario, count in scenarios.items():
                asked = ("--url", address, "--scenario", scenario, "--spec-version", revision)
                done = subprocess.run(
                    [str(modules / ".bin" / "node"), str(suite), "server", *asked],
                    cwd=tmp_path,
                    capture_output=True,
                    text=True,
                    check=False,
                )
                found = re.findall(r"^Passed: (\d+)/", done.stdout + done.stderr, re.MULTILINE)
                assert found == [str(count)], (revision, scenario, done.stdout, done.stderr)
