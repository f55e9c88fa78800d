"""The cycle: one unit of exactly-once work, over the contracts of broker, store and clock."""
