"""The guide's table says what the backends declare."""

from farandole._api.ops import Kind, ReduceOp
from farandole._runtime.native import core
from farandole.launch import environment
from farandole.plugin import DType
from supported import PAGE, Row, declared, parts_of, performed


def test_the_page_holds_what_is_declared():
    assert parts_of(PAGE.read_text())[1] == declared(), f"python {__file__.replace('test_', '')} writes it anew"


def test_native_performs_what_every_other_backend_does():
    for backend in core.backends:
        for row in (Row("", kind, reduce) for kind in Kind for reduce in ReduceOp if reduce != 1):
            assert performed(backend, row, False) <= performed("native", row, False), (backend, row)


def test_the_launcher_knows_all_backends():
    assert core.backends == environment.BACKENDS


def test_a_name_that_is_no_backend_performs_nothing():
    assert not performed("horovod", Row("", Kind.ALLREDUCE), False)
    assert performed("native", Row("", Kind.ALLREDUCE, ReduceOp.ADASUM), False) == {
        DType.FLOAT16,
        DType.BFLOAT16,
        DType.FLOAT32,
        DType.FLOAT64,
    }
