"""The link to Apache Artemis over Core, its own protocol."""
