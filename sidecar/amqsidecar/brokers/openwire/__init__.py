"""The OpenWire link to ActiveMQ Classic."""
