"""The steps of a move: an interrupted one goes on, and no step has two owners or none."""

from itertools import product

from amqsidecar.wiring.schedule_move import MoveStep, SourceStanding, TargetStanding, next_step

STEPS = {
    (SourceStanding.OWNER, TargetStanding.UNUSED): MoveStep.COPY,
    (SourceStanding.OWNER, TargetStanding.COPY): MoveStep.COPY,
    (SourceStanding.OWNER, TargetStanding.OWNER): MoveStep.REFUSE_FOREIGN,
    (SourceStanding.OWNER, TargetStanding.FOREIGN): MoveStep.REFUSE_FOREIGN,
    (SourceStanding.GIVEN_UP, TargetStanding.UNUSED): MoveStep.REFUSE_GIVEN_UP,
    (SourceStanding.GIVEN_UP, TargetStanding.COPY): MoveStep.OPEN,
    (SourceStanding.GIVEN_UP, TargetStanding.OWNER): MoveStep.NONE,
    (SourceStanding.GIVEN_UP, TargetStanding.FOREIGN): MoveStep.REFUSE_GIVEN_UP,
}


def test_each_pair_of_standings_has_one_step() -> None:
    found = {pair: next_step(*pair) for pair in product(SourceStanding, TargetStanding)}
    assert found == STEPS
