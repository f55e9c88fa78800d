"""The installed commands as processes."""
