"""Files that are replaced while the process runs are read again."""

import ssl
from pathlib import Path

import pytest

from amqsidecar.config.tls_context import trusted_by
from amqsidecar.errors import ConfigError
from support.machine.certificates import Pki


def subjects(context: ssl.SSLContext) -> list[object]:
    return [one["serialNumber"] for one in context.get_ca_certs()]


def test_a_replaced_authority_is_trusted_and_one_that_cant_be_read_changes_nothing(
    tmp_path: Path,
) -> None:
    first, second = Pki(tmp_path / "first"), Pki(tmp_path / "second")
    path = tmp_path / "ca.pem"
    path.write_bytes(first.ca_file.read_bytes())
    tls = trusted_by(path, "fleet.ca_file")
    before = subjects(tls())
    path.write_text("half of a file")
    assert subjects(tls()) == before
    path.unlink()
    assert subjects(tls()) == before
    path.write_bytes(second.ca_file.read_bytes())
    assert len(subjects(tls())) == 1
    assert subjects(tls()) != before


def test_a_file_that_is_missing_at_the_start_is_a_fault_of_the_configuration(
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigError, match=r"fleet.ca_file"):
        trusted_by(tmp_path / "none.pem", "fleet.ca_file")
