"""The judgement on a dead letter: whether it is re-sent, and where it goes. Pure."""
