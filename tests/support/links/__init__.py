"""Broker harnesses of the contract suite, one per link."""
