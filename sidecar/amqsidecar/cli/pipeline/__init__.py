"""The commands of the Spark jobs."""
