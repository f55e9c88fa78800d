"""What links to ActiveMQ Classic share, whatever the wire: queues, browsing windows, token."""
