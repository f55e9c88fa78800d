"""The operators' actions and views, for command line, API and console alike."""
