"""Messages of each wire taken apart."""
