import pickle

import farandole
import farandole.numpy as fnp
import numpy as np
import pytest
from farandole.testing import world


def test_the_tree_of_exceptions():
    assert issubclass(farandole.FarandoleError, RuntimeError)
    assert issubclass(farandole.MismatchError, farandole.FarandoleError)
    assert issubclass(farandole.MismatchError, ValueError)
    assert issubclass(farandole.NotInitializedError, farandole.FarandoleError)
    assert issubclass(farandole.NotInitializedError, ValueError)
    assert issubclass(farandole.ArgumentError, ValueError) and issubclass(
        farandole.ArgumentError, farandole.FarandoleError
    )
    assert issubclass(farandole.ArgumentTypeError, TypeError)
    assert issubclass(farandole.ArgumentTypeError, farandole.FarandoleError)
    for recoverable in (farandole.PeerLostError, farandole.DeadlineError):
        assert issubclass(recoverable, farandole.RecoverableError)
    assert not issubclass(farandole.MismatchError, farandole.RecoverableError)
    assert issubclass(farandole.DeadlineError, TimeoutError)
    assert str(farandole.DeadlineError("rank 1 is late")) == "rank 1 is late"


def test_use_before_init_says_what_to_do():
    for call in (farandole.rank, farandole.size, farandole.local_rank, farandole.local_size, farandole.cross_rank):
        with pytest.raises(farandole.NotInitializedError, match=r"call farandole\.init\(\)"):
            call()
    with pytest.raises(farandole.NotInitializedError, match=r"init\(\)"):
        farandole.barrier()
    assert not farandole.is_initialized()


def test_arguments_that_are_not_there_yet_are_refused():
    with pytest.raises(ValueError, match="comm"):
        farandole.init(comm=[0, 1])
    for wrong in ("all", 3, [3], [farandole.ProcessSet([1])], [[0, 1], [1, 0]]):
        with pytest.raises(ValueError, match=r"process set|process_sets"):
            farandole.init(process_sets=wrong)
    assert not farandole.is_initialized()


def operations_of(call):
    with pytest.raises(farandole.MismatchError) as caught:
        call()
    return pickle.loads(pickle.dumps(caught.value)).operations


def call_different_things():
    rows = np.ones(fnp.rank() + 1)
    different = fnp.allgather_async if fnp.rank() else fnp.allreduce_async
    told = operations_of(lambda: different(rows, name="allgather").wait())
    return told, operations_of(lambda: fnp.allreduce(rows, name="allgather"))


def test_a_mismatch_says_which_operations_the_ranks_called_where_they_differ():
    assert world(2).run(call_different_things, timeout=60) == [({"allreduce", "allgather"}, frozenset())] * 2


def test_shutdown_without_init_does_nothing():
    farandole.shutdown()


def test_every_list_of_names_is_sorted_and_true():
    import farandole.numpy
    import farandole.plugin
    import farandole.testing

    for module in (farandole, farandole.plugin, farandole.testing):
        assert module.__all__ == sorted(module.__all__)
    for module in (farandole, farandole.numpy, farandole.plugin, farandole.testing):
        assert [name for name in module.__all__ if not hasattr(module, name)] == []


def test_tracebacks_show_the_public_name():
    assert farandole.PeerLostError.__module__ == "farandole"
    assert pickle.loads(pickle.dumps(farandole.PeerLostError("rank 1"))).args == ("rank 1",)
