"""Jobs over the history, with PySpark: on a laptop or a cluster without a change."""
