"""A process becomes a rank, and ends as one: environment, key exchange, bootstrap, the world's life."""
