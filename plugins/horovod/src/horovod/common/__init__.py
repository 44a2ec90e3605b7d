"""The parts of Horovod that need no framework, from farandole."""
