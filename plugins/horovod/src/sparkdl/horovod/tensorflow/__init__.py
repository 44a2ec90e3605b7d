"""Names for functions that HorovodRunner calls, with Keras."""
