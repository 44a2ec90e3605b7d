"""The service of horovod.tensorflow.data."""
