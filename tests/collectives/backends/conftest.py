from farandole import testing

testing.preload("torch")
