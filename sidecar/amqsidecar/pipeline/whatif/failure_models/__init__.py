"""Failure models; the contract is `failure_model.py`."""
