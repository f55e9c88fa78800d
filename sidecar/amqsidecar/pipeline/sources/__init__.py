"""The sources of the jobs: journals and dead-letter queues."""
