"""`amqsidecar explain`: the rules' decision on a dead letter, without a broker."""

import random
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Annotated, BinaryIO

import msgspec
import typer

from amqsidecar.cli.options import INT_MAX, OutputFormat, duration_ms
from amqsidecar.cli.policy_options import OutputChoice, read_rules
from amqsidecar.cli.printing import print_json, print_lines, say
from amqsidecar.cli.reading import configured
from amqsidecar.config.schema import Config
from amqsidecar.model.dead_letter import NO_FACTS, DeadLetter, KnownFacts
from amqsidecar.model.destination import parse_destination, queue
from amqsidecar.operations.active_rules import policies_of
from amqsidecar.operations.explain import Explainer, Explanation
from amqsidecar.policy.artemis_rules import ArtemisRules
from amqsidecar.wiring.rules import gates_at, send_rules

EXIT_USAGE = 2
_CHUNK_BYTES = 1 << 20


class _Case(msgspec.Struct, forbid_unknown_fields=True, gc=False, kw_only=True):
    """One line of a batch; the last five fields are for rules beyond the broker's."""

    expired: bool = False
    age_ms: Annotated[int, msgspec.Meta(ge=0, le=2**53)] = 0
    cause: str | None = None
    jms_type: str | None = None
    properties: dict[str, str] | None = None
    headers: dict[str, str] | None = None

    def facts(self) -> KnownFacts:
        """Return the facts that only rules beyond the broker's use."""
        given = (self.age_ms, self.cause, self.jms_type, self.properties, self.headers)
        if given == (0, None, None, None, None):
            return NO_FACTS
        return KnownFacts(*given[:3], self.properties or {}, self.headers or {})


class ClassicCase(_Case, kw_only=True):
    """A case for Classic's rules."""

    destination: Annotated[str, msgspec.Meta(min_length=1)]
    redelivery_count: Annotated[int, msgspec.Meta(ge=0, le=INT_MAX)] = 0
    persistent: bool = True

    def dead_letter(self) -> DeadLetter:
        """Return the message; raises ValueError if its destination is none."""
        return DeadLetter(
            parse_destination(self.destination),
            self.redelivery_count,
            self.persistent,
            self.expired,
            facts=self.facts(),
        )


class ArtemisCase(_Case, kw_only=True):
    """A case for Artemis's rules."""

    address: str
    delivery_count: Annotated[int, msgspec.Meta(ge=1, le=INT_MAX)] = 1

    def dead_letter(self) -> DeadLetter:
        """Return the message."""
        count = self.delivery_count - 1
        return DeadLetter(queue(self.address), count, expired=self.expired, facts=self.facts())


def answer_batch(
    source: Iterable[bytes], answer: Callable[[bytes], Explanation], sink: BinaryIO
) -> tuple[int, str] | None:
    """Answer JSON lines in order.

    Returns:
        Line number, 1-based, and the error in the first bad line; None = all were answered.
        The lines before it have been answered.
    """
    encode = msgspec.json.Encoder().encode_into
    buffer = bytearray()
    failure: tuple[int, str] | None = None
    for number, line in enumerate(source, 1):
        try:
            result = answer(line)
        except (msgspec.DecodeError, ValueError) as error:
            failure = (number, str(error) if line.strip() else "the line is empty")
            break
        encode(result, buffer, -1)
        buffer += b"\n"
        if len(buffer) >= _CHUNK_BYTES:
            sink.write(buffer)
            buffer.clear()
    sink.write(buffer)
    sink.flush()
    return failure


@configured
def explain(
    *,
    destination: Annotated[
        str | None, typer.Option(help="Classic: where the message died, such as queue://A.")
    ] = None,
    redelivery_count: Annotated[
        int,
        typer.Option(
            min=0, max=INT_MAX, help="Classic: redeliveries so far, 0 for the first death."
        ),
    ] = 0,
    persistent: Annotated[
        bool, typer.Option("--persistent/--non-persistent", help="Classic: the delivery mode.")
    ] = True,
    expired: Annotated[bool, typer.Option(help="The message expired.")] = False,
    address: Annotated[str | None, typer.Option(help="Artemis: the address.")] = None,
    delivery_count: Annotated[
        int,
        typer.Option(
            min=1, max=INT_MAX, help="Artemis: deliveries so far, the failed one included."
        ),
    ] = 1,
    cause: Annotated[
        str | None, typer.Option(help="For rules beyond the broker's: the cause of death.")
    ] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="NAME=VALUE", help="As above: a property. Repeatable."),
    ] = None,
    headers: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="NAME=VALUE", help="As above: a header. Repeatable."),
    ] = None,
    jms_type: Annotated[str | None, typer.Option(help="As above: its JMSType.")] = None,
    age: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="As above: time since its first death, such as 3h."),
    ] = None,
    batch: Annotated[
        bool, typer.Option("--batch", help="Read JSON lines from standard input, one case each.")
    ] = False,
    collision_avoidance: Annotated[
        bool,
        typer.Option(
            "--collision-avoidance/--no-collision-avoidance", help="Vary delays by chance."
        ),
    ] = True,
    seed: Annotated[int | None, typer.Option(help="Fix chance.")] = None,
    config: Config,
    output: OutputChoice = None,
) -> None:
    """Print the rules' decision on a dead letter.

    Needs no broker. Classic: --destination queue://A --redelivery-count 2. Artemis: --address A
    --delivery-count 3. Many cases: --batch.
    """
    if batch and (destination is not None or address is not None):
        raise typer.BadParameter("--batch reads its cases from standard input; give no other case")
    rules, plugins = read_rules(config)
    chance = random.Random(seed).random if collision_avoidance else None  # noqa: S311 - no secret
    explainer = policies_of(
        lambda: rules,
        plugins,
        send_rules_of=partial(send_rules, config),
        intake_queues=config.intake.queues,
        chance=chance,
        gates_at=gates_at(config),
    ).explainer_of(rules)
    if batch:
        _explain_batch(explainer, is_artemis=isinstance(rules, ArtemisRules))
        return
    case: ClassicCase | ArtemisCase
    if isinstance(rules, ArtemisRules):
        if address is None:
            raise typer.BadParameter("this policy is for Artemis: give --address, or --batch")
        case = ArtemisCase(address=address, delivery_count=delivery_count)
    else:
        if destination is None:
            raise typer.BadParameter("this policy is for Classic: give --destination, or --batch")
        case = ClassicCase(
            destination=destination, redelivery_count=redelivery_count, persistent=persistent
        )
    case = msgspec.structs.replace(
        case,
        expired=expired,
        age_ms=0 if age is None else duration_ms(age, "--age", least_ms=0),
        cause=cause,
        jms_type=jms_type,
        properties=_pairs(properties, "--property"),
        headers=_pairs(headers, "--header"),
    )
    try:
        dead_letter = case.dead_letter()
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--destination") from error
    answer = explainer.explain(dead_letter)
    if output is OutputFormat.JSON or (output is None and not sys.stdout.isatty()):
        print_json(answer)
    else:
        print_lines(_as_text(answer))
        for warning in rules.warnings:
            say(f"warning: {warning}")


def _pairs(given: Sequence[str] | None, option: str) -> dict[str, str] | None:
    pairs = [one.partition("=") for one in given or ()]
    if not all(name and equals for name, equals, _ in pairs):
        raise typer.BadParameter("expected NAME=VALUE", param_hint=option)
    return {name: value for name, _, value in pairs} or None


def _explain_batch(explainer: Explainer, *, is_artemis: bool) -> None:
    kind: type[ClassicCase | ArtemisCase] = ArtemisCase if is_artemis else ClassicCase
    decode = msgspec.json.Decoder(kind).decode

    def answer(line: bytes) -> Explanation:
        return explainer.explain(decode(line).dead_letter())

    failure = answer_batch(sys.stdin.buffer, answer, sys.stdout.buffer)
    if failure is not None:
        number, what = failure
        keys = "address, delivery_count" if is_artemis else "destination, redelivery_count"
        say(f"standard input, line {number}: {what} (expected keys: {keys})")
        raise typer.Exit(EXIT_USAGE)


def _as_text(answer: Explanation) -> str:
    match answer.action:
        case "redeliver":
            count, delay_ms = answer.redelivery_count, answer.delay_ms
            lines = [f"redeliver after {delay_ms} ms (redelivery {count})"]
        case "dead_letter":
            stay = f", for {answer.expiration_ms} ms" if answer.expiration_ms else ""
            lines = [f"dead letter: to {answer.destination}{stay}"]
        case "redirect":
            count, delay_ms = answer.redelivery_count, answer.delay_ms
            lines = [f"redirect to {answer.destination} after {delay_ms} ms (redelivery {count})"]
        case action:
            lines = [action]
    lines.append(f"  rule:    {answer.rule}")
    if answer.gates is not msgspec.UNSET:
        lines.extend(f"  gate:    {gate}" for gate in answer.gates)
    if answer.differs is not msgspec.UNSET:
        lines.append(f"  differs: {answer.differs}")
    if answer.assumed is not msgspec.UNSET:
        lines.append(f"  assumed: the broker's default of {answer.assumed}")
    return "\n".join(lines)
