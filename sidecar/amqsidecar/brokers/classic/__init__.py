"""Common parts of all links to ActiveMQ Classic: queues, browsing windows, token."""
