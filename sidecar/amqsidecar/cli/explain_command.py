"""`amqsidecar explain`: the rules' decision on a dead letter, without a broker."""

import random
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Annotated, BinaryIO, TypedDict

import msgspec
import typer

from amqsidecar.cli.options import INT_MAX, ConfigFile, Sets, duration_ms
from amqsidecar.cli.policy_options import OutputChoice, load_rules, wants_json
from amqsidecar.cli.printing import print_json, print_lines, say
from amqsidecar.model.dead_letter import NO_FACTS, DeadLetter, KnownFacts
from amqsidecar.model.destination import parse_destination, queue
from amqsidecar.operations.active_rules import policies_of
from amqsidecar.operations.explain import Explainer, Explanation
from amqsidecar.policy.artemis_rules import ArtemisRules
from amqsidecar.wiring.gates import gates_at
from amqsidecar.wiring.rules import send_rules

EXIT_USAGE = 2
_CHUNK_BYTES = 1 << 20


class ClassicCase(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """One line of a batch for Classic's rules."""

    destination: Annotated[str, msgspec.Meta(min_length=1)]
    redelivery_count: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] = 0
    persistent: bool = True
    expired: bool = False
    age_ms: Annotated[int, msgspec.Meta(ge=0, le=2**53)] = 0
    cause: str | None = None
    jms_type: str | None = None
    properties: dict[str, str] | None = None
    headers: dict[str, str] | None = None


class ArtemisCase(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """One line of a batch for Artemis's rules."""

    address: str
    delivery_count: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] = 1
    expired: bool = False
    age_ms: Annotated[int, msgspec.Meta(ge=0, le=2**53)] = 0
    cause: str | None = None
    jms_type: str | None = None
    properties: dict[str, str] | None = None
    headers: dict[str, str] | None = None


def _classic(case: ClassicCase) -> DeadLetter:
    destination = parse_destination(case.destination)
    return DeadLetter(
        destination,
        case.redelivery_count,
        case.persistent,
        case.expired,
        facts=_facts(case),
    )


def _artemis(case: ArtemisCase) -> DeadLetter:
    return DeadLetter(
        queue(case.address),
        case.delivery_count - 1,
        expired=case.expired,
        facts=_facts(case),
    )


def _facts(case: ClassicCase | ArtemisCase) -> KnownFacts:
    given = (case.age_ms, case.cause, case.jms_type, case.properties, case.headers)
    if given == (0, None, None, None, None):
        return NO_FACTS
    return KnownFacts(*given[:3], case.properties or {}, case.headers or {})


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


def explain(
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
    config_file: ConfigFile = None,
    sets: Sets = None,
    output: OutputChoice = None,
) -> None:
    """Print the rules' decision on a dead letter.

    Needs no broker. Classic: --destination queue://A --redelivery-count 2. Artemis: --address A
    --delivery-count 3. Many cases: --batch.
    """
    if batch and (destination is not None or address is not None):
        raise typer.BadParameter("--batch reads its cases from standard input; give no other case")
    config, rules, plugins = load_rules(config_file, sets)
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
    beyond = _Beyond(
        age_ms=0 if age is None else duration_ms(age, "--age", least_ms=0),
        cause=cause,
        jms_type=jms_type,
        properties=_pairs(properties, "--property"),
        headers=_pairs(headers, "--header"),
    )
    if isinstance(rules, ArtemisRules):
        if address is None:
            raise typer.BadParameter("this policy is for Artemis: give --address, or --batch")
        dead_letter = _artemis(ArtemisCase(address, delivery_count, expired, **beyond))
    else:
        if destination is None:
            raise typer.BadParameter("this policy is for Classic: give --destination, or --batch")
        try:
            dead_letter = _classic(
                ClassicCase(destination, redelivery_count, persistent, expired, **beyond)
            )
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--destination") from error
    answer = explainer.explain(dead_letter)
    if wants_json(output):
        print_json(answer)
    else:
        print_lines(_as_text(answer))
        for warning in rules.warnings:
            say(f"warning: {warning}")


class _Beyond(TypedDict):
    """Inputs that only rules beyond the broker's use."""

    age_ms: int
    cause: str | None
    jms_type: str | None
    properties: dict[str, str] | None
    headers: dict[str, str] | None


def _pairs(given: Sequence[str] | None, option: str) -> dict[str, str] | None:
    pairs = [one.partition("=") for one in given or ()]
    if not all(name and equals for name, equals, _ in pairs):
        raise typer.BadParameter("expected NAME=VALUE", param_hint=option)
    return {name: value for name, _, value in pairs} or None


def _explain_batch(explainer: Explainer, *, is_artemis: bool) -> None:
    decode_classic = msgspec.json.Decoder(ClassicCase).decode
    decode_artemis = msgspec.json.Decoder(ArtemisCase).decode

    def answer(line: bytes) -> Explanation:
        if is_artemis:
            return explainer.explain(_artemis(decode_artemis(line)))
        return explainer.explain(_classic(decode_classic(line)))

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
