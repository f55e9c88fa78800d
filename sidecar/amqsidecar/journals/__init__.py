"""The journal as Parquet segments, in a folder or in an object store."""
