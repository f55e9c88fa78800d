"""Real JMS applications, and the count of their messages."""
