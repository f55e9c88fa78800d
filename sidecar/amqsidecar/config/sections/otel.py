"""Options `otel.*`: traces, metrics and logs by OTLP."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from amqsidecar.config.option import Section, as_texts, option
from amqsidecar.config.web_url import web_url
from amqsidecar.otlp.signals import OtlpSignal


class OtelOptions(Section):
    """Traces, metrics and logs by OTLP."""

    endpoint: Annotated[str, BeforeValidator(web_url("http://collector:4318"))] = option(
        "",
        "Base URL of a receiver of OTLP over HTTP, such as `http://collector:4318` (`traces.md`); "
        'empty = none. Needs `pip install "amqsidecar[otel]"`.',
    )
    signals: Annotated[
        tuple[OtlpSignal, ...],
        BeforeValidator(as_texts, json_schema_input_type=str | list[OtlpSignal]),
    ] = option(
        tuple(OtlpSignal),
        "What it gets: `traces` = a span for each attempt, `metrics` = those of `/metrics`, "
        "`logs` = the lines of log and audit.",
    )
    sampling: Annotated[float, Field(strict=True, ge=0, le=1)] = option(
        0.01,
        "Share of messages that are traced, from 0 to 1; of such a message all attempts are.",
        why="a storm of dead letters costs the receiver a hundredth",
    )

    @property
    def traced_share(self) -> float:
        """The share of messages that are traced; 0 where no spans are sent."""
        return self.sampling if self.endpoint and OtlpSignal.TRACES in self.signals else 0.0
