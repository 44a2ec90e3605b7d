from farandole import testing

testing.preload("tensorflow", "keras")
