"""Generated journals that several modules ask, and what the jobs say of each: each job once."""

from pathlib import Path

from pyspark.sql import SparkSession

from amqsidecar.cli.main import run_command_line
from bench.journal_generator import Plan, policy_xml, write_journal

OPTIONS = {"whatif": ("--policy", "today={xml}", "--no-search")}
"""Of a job, beside the folders."""


class Generated:
    """A journal with known truth, made at once; jobs run when somebody first asks for them."""

    def __init__(self, spark: SparkSession, folder: Path, plan: Plan) -> None:
        self.plan = plan
        self.folder = folder
        self.events = folder / "events"
        self.truth = write_journal(spark, str(self.events), plan)
        self._xml = folder / "activemq.xml"
        self._xml.write_text(policy_xml(), encoding="utf-8")
        self._done: set[str] = set()

    def arguments(self, job: str, out: str) -> list[str]:
        """Return what makes `amqsidecar pipeline` run a job over it, into a folder beside it."""
        folders = ["--events", str(self.events), "--output-folder", str(self.folder / out / job)]
        return [job, *folders, *(one.format(xml=self._xml) for one in OPTIONS.get(job, ()))]

    def output(self, job: str) -> Path:
        """Return the output folder of a job, which ran in this process as its command does."""
        out = self.folder / "local" / job
        if job not in self._done:
            assert run_command_line(["pipeline", *self.arguments(job, "local")]) == 0
            assert (out / "report.html").stat().st_size > 1_000
            self._done.add(job)
        return out
