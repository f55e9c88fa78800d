"""What `doctor` finds out about a broker before the service is run on it."""
