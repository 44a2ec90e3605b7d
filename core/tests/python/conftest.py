from farandole import testing

testing.preload("numpy", "cloudpickle")
