"""Real brokers as processes, and one in memory."""
