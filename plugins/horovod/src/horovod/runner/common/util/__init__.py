"""Keys and time limits, for horovod.tensorflow.data."""
