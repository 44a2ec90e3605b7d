from farandole.testing import conformance
from numpy_subject import SUBJECT

test_conformance = conformance.tests(SUBJECT)
