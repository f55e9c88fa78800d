"""`python -m amqsidecar`."""

from amqsidecar.cli.main import main

if __name__ == "__main__":
    main()
