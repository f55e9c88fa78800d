"""A request that the broker refuses, over any wire that carries its words."""


class RequestRefused(Exception):
    """The broker refuses a request; never leaves `brokers/`."""
