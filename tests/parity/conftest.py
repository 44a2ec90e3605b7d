from faces import FRAMEWORKS
from farandole import testing

testing.preload(*FRAMEWORKS)
