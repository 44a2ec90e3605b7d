"""Parts of the launcher that programs import by Horovod's names."""
