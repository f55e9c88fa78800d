"""`amqsidecar doctor`: examines a broker before the service is run on it."""

from typing import TYPE_CHECKING

import typer

from amqsidecar.cli.options import ConfigFile, Output, OutputFormat, Sets, read_config
from amqsidecar.cli.printing import one_line, print_json, print_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amqsidecar.config.schema import Config
    from amqsidecar.diagnosis.doctor import DoctorSettings
    from amqsidecar.diagnosis.finding import Finding

EXIT_PROBLEMS = 78


def doctor(
    config_file: ConfigFile = None, sets: Sets = None, output: Output = OutputFormat.TEXT
) -> None:
    """Check a broker against a configuration, and print what is wrong and what mends it.

    Takes and changes no message. Exit codes: 0 nothing would be lost, doubled or altered; 78
    something would, or the service could not work: the broker's or our configuration must change;
    69 the broker can't be reached.

    \b
    JSON: {"verdict": "fit" | "problems", "findings": [{"check", "severity": "ok" | "note" |
    "warning" | "problem", "subject", "what", "mend"}]}
    """  # noqa: D301 - the backspace tells the library to keep the lines
    config = read_config(config_file, sets)
    from amqsidecar.clock import SystemClock  # noqa: PLC0415 - keeps `--help` fast
    from amqsidecar.config.load import check_files  # noqa: PLC0415 - as above
    from amqsidecar.diagnosis.doctor import Doctor  # noqa: PLC0415 - as above
    from amqsidecar.diagnosis.finding import has_problem  # noqa: PLC0415 - as above
    from amqsidecar.errors import ConfigError, Problem  # noqa: PLC0415 - as above
    from amqsidecar.links import LinkMaker  # noqa: PLC0415 - as above
    from amqsidecar.telemetry.logs import configure_logs  # noqa: PLC0415 - as above

    problems = check_files(config)
    if not config.broker.url:
        what = "is not set: say where the broker listens, such as amqp://user:password@host:5672"
        problems = [*problems, Problem("broker.url", what)]
    if problems:
        raise ConfigError(problems)
    # Why: what is worth a line here is a finding.
    configure_logs("error", config.log.format)
    clock = SystemClock()
    findings = Doctor(LinkMaker(config, clock).make, clock, _settings(config)).examine()
    verdict = "problems" if has_problem(findings) else "fit"
    if output is OutputFormat.JSON:
        print_json({"verdict": verdict, "findings": findings})
    else:
        _print(findings, verdict)
    raise typer.Exit(EXIT_PROBLEMS if verdict == "problems" else 0)


def _settings(config: "Config") -> "DoctorSettings":
    from amqsidecar.app import BROKER_DEFAULTS, load_rules  # noqa: PLC0415 - as above
    from amqsidecar.clock import SystemClock  # noqa: PLC0415 - as above
    from amqsidecar.config.schema import Backlog  # noqa: PLC0415 - as above
    from amqsidecar.diagnosis.doctor import DoctorSettings  # noqa: PLC0415 - as above
    from amqsidecar.diagnosis.schedule import (  # noqa: PLC0415 - as above
        ScheduleFacts,
        look_at_schedule,
        place_problem,
    )
    from amqsidecar.engine.intake import named_queues  # noqa: PLC0415 - as above
    from amqsidecar.plugin_loader import load_plugins  # noqa: PLC0415 - as above
    from amqsidecar.stores.open import open_store  # noqa: PLC0415 - as above
    from amqsidecar.stores.sqlite_store import path_of_url  # noqa: PLC0415 - as above

    url = config.broker.url[0]
    path = path_of_url(config.store.url)
    problem = place_problem(path)
    if problem or not path.exists():
        schedule = ScheduleFacts(problem=problem)
    else:
        schedule = look_at_schedule(open_store(config, SystemClock(), read_only=True))
    return DoctorSettings(
        scheme=url.scheme,
        place=f"{url.host}:{url.port}",
        user=url.user or "",
        expected_kind=config.broker.expected_kind,
        intake_queues=named_queues(config.intake.queues),
        rules=load_rules(config, load_plugins()),
        default_rules=BROKER_DEFAULTS,
        holds_backlog=config.intake.backlog is Backlog.HOLD,
        backlog_threshold=config.intake.backlog_threshold,
        final_suffix=config.redelivery.final_suffix,
        store_url=config.store.url,
        schedule=schedule,
    )


def _print(findings: "Sequence[Finding]", verdict: str) -> None:
    check = None
    for finding in findings:
        if finding.check is not check:
            check = finding.check
            print_line(str(check))
        what = one_line(finding.what, 2000)
        print_line(f"  {finding.severity:8} {one_line(finding.subject)}: {what}")
        if finding.mend:
            print_line(f"           {finding.mend}")
    counts = [
        f"{sum(one.severity == word for one in findings)} {word}s"
        for word in ("problem", "warning", "note")
    ]
    print_line()
    print_line(f"{verdict}: {', '.join(counts)}")
