"""What the tests, the demo and the benchmarks share: real brokers and real JMS peers."""
