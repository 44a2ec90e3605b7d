"""Makes a process a rank, and ends it as one: environment, key exchange, bootstrap, init and shutdown."""
