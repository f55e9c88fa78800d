"""What the jobs read: journals and dead-letter queues."""
