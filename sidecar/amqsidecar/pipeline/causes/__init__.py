"""The job that groups causes of death."""
