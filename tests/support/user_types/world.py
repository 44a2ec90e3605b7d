"""A user's program with every name that all packages have. Read by type checkers, see type_checks.py; never run."""

from pathlib import Path

import farandole as hvd
from typing_extensions import assert_type


def place() -> None:
    hvd.init()
    hvd.init(process_sets=[hvd.ProcessSet([0, 1]), [0]])
    hvd.init(None, "dynamic")
    for number in (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()):
        assert_type(number, int)
    for answer in (hvd.is_initialized(), hvd.is_homogeneous()):
        assert_type(answer, bool)
    hvd.start_timeline("timeline.json")
    hvd.start_timeline("timeline.json", mark_cycles=True)
    hvd.stop_timeline()
    hvd.shutdown()
    assert_type(hvd.__version__, str)


class Writer:
    def add_scalar(self, tag: str, value: float, step: int) -> None:
        print(tag, value, step)


def scalars() -> None:
    steps = hvd.StepScalars(Writer(), every=10)
    steps.step()
    assert_type(steps.latest, dict[str, float])
    hvd.StepScalars().close()


def builds() -> None:
    for built in (hvd.mpi_built(), hvd.gloo_built(), hvd.ddl_built(), hvd.ccl_built(), hvd.cuda_built()):
        assert_type(built, bool)
    for can in (hvd.mpi_enabled(), hvd.gloo_enabled(), hvd.mpi_threads_supported(), hvd.rocm_built()):
        assert_type(can, bool)
    assert_type(hvd.nccl_built(), int)


def reductions() -> list[hvd.ReduceOp]:
    return [hvd.Adasum, hvd.Average, hvd.Max, hvd.Min, hvd.Product, hvd.Sum]


def process_sets() -> None:
    some = hvd.add_process_set([0, 1])
    assert_type(some, hvd.ProcessSet)
    assert_type(some.ranks, list[int])
    assert_type(some.process_set_id, int | None)
    assert_type(some.size(), int | None)
    assert_type(some.rank(), int | None)
    assert_type(some.included(), bool | None)
    assert_type(hvd.process_set_included(0), bool)
    assert_type(hvd.get_process_set_ids_and_ranks(), dict[int, list[int]])
    assert_type(hvd.remove_process_set(some), bool)
    hvd.barrier()
    hvd.barrier(hvd.global_process_set)


def objects(options: dict[str, float]) -> None:
    assert_type(hvd.broadcast_object(options, root_rank=0), dict[str, float])
    mine = options if hvd.rank() == 0 else None
    assert_type(hvd.broadcast_object(mine, 0, name="options"), dict[str, float])
    received: dict[str, float] = hvd.broadcast_object(None, 0)
    assert_type(hvd.allgather_object(received, name="all"), list[dict[str, float]])


def metrics_and_checkpoints(loss: float, path: Path) -> dict[str, float]:
    assert_type(hvd.average_metrics(loss, weight=32), float)
    hvd.save_checkpoint(path, lambda written: Path(written).write_text("3"))
    assert_type(hvd.load_checkpoint(str(path), len, root_rank=0), int)
    return hvd.average_metrics({"loss": loss, "steps": 3}, name="epoch", process_set=hvd.global_process_set)


def handles(one: hvd.Handle[float], two: hvd.Handle[list[float]]) -> None:
    assert_type(hvd.poll(one), bool)
    assert_type(hvd.synchronize(one), float)
    assert_type(hvd.synchronize(two), list[float])
    assert_type(one.done(), bool)
    assert_type(two.wait(), list[float])
    assert_type(two.map(len).wait(), int)


def length(text: str, factor: float = 1.0) -> float:
    return len(text) * factor


def functions() -> None:
    assert_type(hvd.run(length, ("four",), {"factor": 0.5}, np=2), list[float])
    assert_type(hvd.run(length, args=["four"], hosts="localhost:1", verbose=True, start_timeout=9.0), list[float])


def errors() -> str:
    try:
        hvd.join()
    except (hvd.PeerLostError, hvd.DeadlineError) as error:
        assert_type(error, hvd.PeerLostError | hvd.DeadlineError)
        return str(error)
    except (hvd.ArgumentError, hvd.ArgumentTypeError, hvd.NotInitializedError) as error:
        return str(error)
    except (hvd.MismatchError, hvd.RecoverableError) as error:
        return str(error)
    except (hvd.MembershipError, hvd.HostsUpdatedInterrupt) as error:
        return str(error)
    except (hvd.HorovodInternalError, hvd.FarandoleError) as error:
        return str(error)
    return ""
