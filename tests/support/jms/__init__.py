"""Real JMS applications, and the count of what they saw."""
