"""horovod.spark and sparkdl: names and arguments of 0.28.1 and of Databricks' runtime, on farandole_spark."""

import inspect

import farandole_spark
import horovod.spark
import pytest

# Of 0.28.1, by its signature.
PARAMETERS = """fn args kwargs num_proc start_timeout use_mpi use_gloo extra_mpi_args env stdout stderr verbose nics
prefix_output_with_timestamp executable""".split()


ELASTIC = """fn args kwargs num_proc min_num_proc max_num_proc start_timeout elastic_timeout reset_limit env stdout
stderr verbose nics prefix_output_with_timestamp""".split()


def test_it_has_horovods_arguments():
    assert list(inspect.signature(horovod.spark.run_elastic).parameters) == ELASTIC
    assert list(inspect.signature(horovod.spark.run).parameters) == PARAMETERS


def test_they_reach_our_function(monkeypatch):
    seen = {}

    def run(*args, **kwargs):
        seen.update(args=args, **kwargs)
        return [1]

    monkeypatch.setattr(farandole_spark, "run", run)
    with pytest.warns(UserWarning, match="no effect: executable"):
        found = horovod.spark.run(len, ([],), num_proc=3, verbose=2, nics=["a", "b"], executable="/python")
    assert found == [1] and seen["args"] == (len, ([],), None, 3)
    assert seen["verbose"] is True and seen["network_interfaces"] == "a,b"


def test_those_of_elastic_jobs_reach_our_function(monkeypatch):
    seen = {}
    monkeypatch.setattr(farandole_spark, "run_elastic", lambda *args, **kwargs: seen.update(args=args, **kwargs) or [1])
    found = horovod.spark.run_elastic(len, ([],), {}, 3, 2, 4, elastic_timeout=7, reset_limit=5, nics="a")
    assert found == [1] and seen["args"] == (len, ([],), {}, 3, 2, 4, None, 7, 5)
    assert seen["verbose"] is False and seen["network_interfaces"] == "a"


def test_the_module_of_databricks_has_its_names():
    from sparkdl import HorovodRunner
    from sparkdl.horovod import log_to_driver

    assert (HorovodRunner, log_to_driver) == (farandole_spark.HorovodRunner, farandole_spark.log_to_driver)


def test_its_callback_is_ours(monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    pytest.importorskip("keras")
    from farandole_spark.keras import LogCallback
    from sparkdl.horovod.tensorflow import keras

    assert keras.LogCallback is LogCallback


def test_an_unknown_name_is_told_as_python_does():
    with pytest.raises(AttributeError, match=r"module .horovod\.spark. has no attribute .no_such_name."):
        horovod.spark.no_such_name  # noqa: B018
