"""The history turned into answers, with PySpark: on a laptop or a cluster without a change."""
