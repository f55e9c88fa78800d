"""The console and its API for tests: sites, the browser, screenshots."""
