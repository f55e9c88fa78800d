"""The checks of `doctor` on a broker and a configuration."""
