"""The parts that all wires to Artemis share: management, routes, token."""
