from farandole import testing

testing.preload("mxnet")
