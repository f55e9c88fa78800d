"""The Core connection to Artemis: sessions, consumers, transactions, large messages."""
