"""The job that replays history under another policy."""
