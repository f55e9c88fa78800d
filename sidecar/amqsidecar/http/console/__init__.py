"""The console: pages for people, rendered here, that work without scripts too."""
