"""What the contract suite needs of a broker, for each link."""
