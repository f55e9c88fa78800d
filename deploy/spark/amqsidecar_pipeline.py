"""The program that spark-submit runs; its arguments are those of `amqsidecar pipeline`."""

import sys

from amqsidecar.cli.main import run_command_line

if __name__ == "__main__":
    sys.exit(run_command_line(["pipeline", *sys.argv[1:]]))
