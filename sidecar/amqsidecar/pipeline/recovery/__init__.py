"""The job that measures how messages recover."""
