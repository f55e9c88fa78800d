"""TLS by the options: trusted authorities and the sidecar's certificate."""

import ssl
from pathlib import Path
from typing import NoReturn

from amqsidecar.config.sections.broker import TlsOptions
from amqsidecar.errors import ConfigError, Problem
from amqsidecar.renewed_files import RenewedFiles


def tls_context(options: TlsOptions) -> ssl.SSLContext:
    """Return the TLS context of these options, with the present content of the files.

    Raises:
        ConfigError: a file can't be read, is not PEM, or the key is of another certificate.
    """
    context = ssl.create_default_context()
    if options.ca_file is not None:
        context = _with_authorities(options.ca_file)
    if not options.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if options.cert_file is not None:
        _add_certificate(context, options.cert_file, options.key_file)
    return context


def trusted_by(path: Path | None, option: str) -> RenewedFiles[ssl.SSLContext]:
    """Return the TLS context of a client that trusts a file's authorities; None = the system's.

    Raises:
        ConfigError: the file can't be used; it names the option.
    """

    def read() -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=path)
        except OSError as error:
            what = f"{path} can't be read, or holds no certificate in PEM: {error}"
            raise ConfigError([Problem(option, what)]) from error

    return RenewedFiles(option, read, path)


def _with_authorities(path: Path) -> ssl.SSLContext:
    _check_readable("ca_file", path)
    try:
        return ssl.create_default_context(cafile=path)
    except ssl.SSLError as error:
        _fail("ca_file", f"{path} holds no certificate in PEM ({error.reason})", error)


def _add_certificate(context: ssl.SSLContext, certificate: Path, key: Path | None) -> None:
    _check_readable("cert_file", certificate)
    key_option, key_path = ("key_file", key) if key is not None else ("cert_file", certificate)
    _check_readable(key_option, key_path)

    def no_passphrase() -> NoReturn:
        # Why: OpenSSL would ask on the terminal.
        _fail(key_option, f"the key in {key_path} is encrypted; give one without a passphrase")

    try:
        context.load_cert_chain(certificate, key, no_passphrase)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            what = f"the key in {key_path} is not that of the first certificate in {certificate}"
            _fail(key_option, what, error)
        what = f"{certificate} holds no certificate in PEM, or {key_path} no key ({error.reason})"
        _fail("cert_file", what, error)


def _check_readable(option: str, path: Path) -> None:
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        _fail(option, f"{path} can't be read: {error.strerror or error}", error)


def _fail(option: str, what: str, cause: Exception | None = None) -> NoReturn:
    raise ConfigError([Problem(f"broker.tls.{option}", what)]) from cause
