"""The journal as Parquet segments."""
