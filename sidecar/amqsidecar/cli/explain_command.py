"""`amqsidecar explain`: what the rules say about a dead letter, without a broker."""

import random
import sys
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Annotated, BinaryIO

import msgspec
import typer

from amqsidecar.broker import BrokerKind, IntakeQueue
from amqsidecar.cli.options import ConfigFile, Sets
from amqsidecar.cli.policy_options import OutputChoice, load_rules, wants_json
from amqsidecar.cli.printing import print_json, print_line, say
from amqsidecar.config.schema import Config, TopicPolicy
from amqsidecar.engine.intake import IntakeNames, dead_letter_queues_of, named_queues
from amqsidecar.engine.judge import ADVISORY_PREFIX
from amqsidecar.model.dead_letter import DeadLetter
from amqsidecar.model.decision import DeadLetterTo, Decision, Discard, Redeliver
from amqsidecar.model.destination import Destination, final_queue, parse_destination, queue
from amqsidecar.plugin import Chance, Decider
from amqsidecar.policy.artemis_decider import ArtemisDecider
from amqsidecar.policy.artemis_rules import ArtemisRules
from amqsidecar.policy.classic_rules import ClassicRules
from amqsidecar.policy_source.load import compile_policy

EXIT_USAGE = 2
_CHUNK_BYTES = 1 << 20

Answer = dict[str, object]
"""One line of output, before it is encoded."""


class ClassicCase(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """One line of a batch for Classic's rules."""

    destination: Annotated[str, msgspec.Meta(min_length=1)]
    redelivery_count: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] = 0
    persistent: bool = True
    expired: bool = False


class ArtemisCase(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """One line of a batch for Artemis's rules."""

    address: str
    delivery_count: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] = 1
    expired: bool = False


class Explainer:
    """Answers cases by one policy: what the broker's rules say, and where the sidecar differs."""

    def __init__(
        self,
        decider: Decider,
        rules: ClassicRules | ArtemisRules,
        config: Config,
        chance: Chance | None,
    ) -> None:
        self._decider = decider
        self._chance = chance
        self._suffix = config.redelivery.final_suffix
        self._parks_topics = config.policy.topics is TopicPolicy.PARK
        self._is_artemis = isinstance(rules, ArtemisRules)
        self._is_intake = lru_cache(8192)(_intake_names(rules, config).covers)
        self._differs_memo = lru_cache(8192)(self._differs)

    def classic(self, case: ClassicCase) -> Answer:
        """Answer one case of Classic."""
        destination = parse_destination(case.destination)
        decision = self._decider.decide(
            DeadLetter(destination, case.redelivery_count, case.persistent, case.expired),
            self._chance,
        )
        return self._answer(destination, decision)

    def artemis(self, case: ArtemisCase) -> Answer:
        """Answer one case of Artemis."""
        destination = queue(case.address)
        decision = self._decider.decide(
            DeadLetter(destination, case.delivery_count - 1, expired=case.expired), self._chance
        )
        answer = self._answer(destination, decision)
        assert isinstance(self._decider, ArtemisDecider)  # noqa: S101 - rules of Artemis
        settings = self._decider.effective(case.address)
        answer["max_delivery_attempts"] = settings.max_delivery_attempts
        answer["dead_letter_address"] = settings.dead_letter_address
        answer["redelivery_delay_ms"] = settings.redelivery_delay_ms
        return answer

    def _answer(self, origin: Destination, decision: Decision | None) -> Answer:
        match decision:
            case Redeliver(delay_ms, redelivery_count, rule):
                answer: Answer = {
                    "action": "redeliver",
                    "delay_ms": delay_ms,
                    "redelivery_count": redelivery_count,
                    "rule": rule,
                }
                differs = self._differs_memo(origin, None, delay_ms < 0)
            case DeadLetterTo(destination, expiration_ms, rule):
                answer = {
                    "action": "dead_letter",
                    "destination": str(destination),
                    "expiration_ms": expiration_ms,
                    "rule": rule,
                }
                differs = self._differs_memo(origin, destination, False)
            case Discard(rule):
                answer = {"action": "discard", "rule": rule}
                differs = self._park_reason(origin)
            case None:
                answer = {"action": "none", "rule": "no plugin of the chain decided"}
                differs = "the sidecar parks it"
        if differs is not None:
            answer["differs"] = differs
        return answer

    def _park_reason(self, origin: Destination) -> str | None:
        if self._is_intake(origin) or origin.name.endswith(self._suffix):
            return (
                f"the sidecar parks it: {origin} is itself a dead-letter queue, so the true origin "
                "is not known"
            )
        if origin.name.startswith(ADVISORY_PREFIX):
            return "the sidecar parks it: advisories are not redelivered"
        return None

    def _differs(
        self, origin: Destination, final: Destination | None, is_overdue: bool
    ) -> str | None:
        """Return what the sidecar does otherwise than the rules say; None = it does the same.

        Args:
            origin: where the message died.
            final: where the rules put it; None = they redeliver it.
            is_overdue: the rules give a delay below 0.
        """
        reason = self._park_reason(origin)
        if reason is not None:
            return reason
        if final is None:
            if not self._is_artemis and not origin.is_queue and self._parks_topics:
                return (
                    "the sidecar parks it: a re-send to a topic would reach every subscriber "
                    "(policy.topics)"
                )
            return "the sidecar re-sends it at once, as for 0" if is_overdue else None
        if not final.is_queue:
            return (
                f"{final} is a topic: the sidecar sends the final dead letter to the queue that it "
                f"was read from, plus {self._suffix}"
            )
        if self._is_intake(final):
            renamed = final_queue(final, self._suffix)
            return f"the sidecar reads {final}: the final dead letter goes to {renamed}"
        return None


def _intake_names(rules: ClassicRules | ArtemisRules, config: Config) -> IntakeNames:
    kind = BrokerKind.ARTEMIS if isinstance(rules, ArtemisRules) else BrokerKind.CLASSIC
    names = IntakeNames(kind)
    if config.intake.queues:
        names.replace(named_queues(config.intake.queues))
    elif isinstance(rules, ClassicRules):
        names.replace(dead_letter_queues_of(rules)[0])
    else:
        addresses = {
            address
            for entry in rules.entries
            for address in (entry.settings.dead_letter_address, entry.settings.expiry_address)
            if address
        }
        names.replace([IntakeQueue(queue(address)) for address in sorted(addresses)])
    return names


def answer_batch(
    source: Iterable[bytes], answer: Callable[[bytes], Answer], sink: BinaryIO
) -> tuple[int, str] | None:
    """Answer JSON lines in order.

    Returns:
        Line number, 1-based, and what is wrong with the first bad line; None = all were answered.
        What stands before the bad line has been answered.
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
        int, typer.Option(min=0, help="Classic: redeliveries so far, 0 for the first death.")
    ] = 0,
    persistent: Annotated[
        bool, typer.Option("--persistent/--non-persistent", help="Classic: the delivery mode.")
    ] = True,
    expired: Annotated[
        bool, typer.Option(help="It died because its time to live ran out.")
    ] = False,
    address: Annotated[str | None, typer.Option(help="Artemis: the address.")] = None,
    delivery_count: Annotated[
        int, typer.Option(min=1, help="Artemis: deliveries so far, the failed one included.")
    ] = 1,
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
    """Say what the rules decide about a dead letter; no broker is needed.

    Classic: --destination queue://A --redelivery-count 2. Artemis: --address A --delivery-count 3.
    Many cases: --batch.
    """
    if batch and (destination is not None or address is not None):
        raise typer.BadParameter("--batch reads its cases from standard input; give no other case")
    config, rules, plugins = load_rules(config_file, sets)
    decider = compile_policy(rules, plugins)
    chance = random.Random(seed).random if collision_avoidance else None  # noqa: S311 - no secret
    explainer = Explainer(decider, rules, config, chance)
    if batch:
        _explain_batch(explainer, is_artemis=isinstance(rules, ArtemisRules))
        return
    if isinstance(rules, ArtemisRules):
        if address is None:
            raise typer.BadParameter("this policy is for Artemis: give --address, or --batch")
        answer = explainer.artemis(ArtemisCase(address, delivery_count, expired))
    else:
        if destination is None:
            raise typer.BadParameter("this policy is for Classic: give --destination, or --batch")
        try:
            answer = explainer.classic(
                ClassicCase(destination, redelivery_count, persistent, expired)
            )
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--destination") from error
    if wants_json(output):
        print_json(answer)
    else:
        print_line(_as_text(answer))
        for warning in rules.warnings:
            say(f"warning: {warning}")


def _explain_batch(explainer: Explainer, *, is_artemis: bool) -> None:
    decode_classic = msgspec.json.Decoder(ClassicCase).decode
    decode_artemis = msgspec.json.Decoder(ArtemisCase).decode

    def answer(line: bytes) -> Answer:
        if is_artemis:
            return explainer.artemis(decode_artemis(line))
        return explainer.classic(decode_classic(line))

    failure = answer_batch(sys.stdin.buffer, answer, sys.stdout.buffer)
    if failure is not None:
        number, what = failure
        keys = "address, delivery_count" if is_artemis else "destination, redelivery_count"
        say(f"standard input, line {number}: {what} (expected keys: {keys})")
        raise typer.Exit(EXIT_USAGE)


def _as_text(answer: Answer) -> str:
    lines = []
    match answer["action"]:
        case "redeliver":
            count, delay_ms = answer["redelivery_count"], answer["delay_ms"]
            lines.append(f"redeliver after {delay_ms} ms (redelivery {count})")
        case "dead_letter":
            expiration_ms = answer["expiration_ms"]
            stay = f", for {expiration_ms} ms" if expiration_ms else ""
            lines.append(f"dead letter: to {answer['destination']}{stay}")
        case action:
            lines.append(str(action))
    lines.append(f"  rule:    {answer['rule']}")
    if "differs" in answer:
        lines.append(f"  differs: {answer['differs']}")
    return "\n".join(lines)
