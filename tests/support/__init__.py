"""Shared by tests, demo and benchmarks: real brokers and real JMS peers."""
