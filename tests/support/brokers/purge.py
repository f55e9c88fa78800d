"""Empties a queue as a person does by a broker's management."""

from contextlib import closing

from amqsidecar.brokers.artemis.management import ManagementQuestion
from support import maven
from support.brokers.artemis_manager import ArtemisManager
from support.brokers.real import ArtemisBroker, Broker, ClassicBroker
from support.machine.processes import run_program
from support.waiting import PATIENCE_S


def purge(broker: Broker, queue: str) -> int | None:
    """Remove all messages of a queue, by JMX on Classic, by a management message on Artemis.

    Return how many it had that nobody has in hand; None = the broker does not say.
    """
    if isinstance(broker, ArtemisBroker):
        question = ManagementQuestion(f"queue.{queue}", "removeAllMessages")
        return int(str(manage_artemis(broker, question)))
    assert isinstance(broker, ClassicBroker)
    _run("jcmd", str(broker.pid), "ManagementAgent.start_local")
    chosen = broker.release
    if not chosen.libraries:
        home = maven.classic_5_home()
        options = [f"-Dactivemq.home={home}", f"-Dactivemq.base={home}"]
        java = [*options, "-cp", f"{home}/bin/activemq.jar", "org.apache.activemq.console.Main"]
    else:
        main = "org.apache.activemq.console.command.ShellCommand"
        java = ["-cp", maven.broker_class_path(chosen), main]
    told = _run("java", "-XX:TieredStopAtLevel=1", *java, "purge", "--pid", str(broker.pid), queue)
    assert f"Purging all messages in queue: {queue}" in told, told
    return None


def manage_artemis(broker: ArtemisBroker, question: ManagementQuestion) -> object:
    """Ask the broker's management for something, and return the answer."""
    with closing(ArtemisManager(broker)) as manager:
        answer = manager.ask(question)
    assert answer.is_ok, answer.value
    return answer.value


def _run(*command: str) -> str:
    done = run_program(command, timeout=PATIENCE_S)
    return done.stdout + done.stderr
