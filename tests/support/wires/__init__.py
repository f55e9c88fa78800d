"""Peers, encoders and hostile messages that do not share the code under test."""
