"""The parts of `horovod` that need no framework: helpers, exceptions, settings."""

import os

import farandole
import horovod
import horovod.common.exceptions
import horovod.common.process_sets
import pytest
from horovod import _environment
from horovod.common import util
from horovod.common.basics import HorovodBasics
from names_of_horovod import KERAS_WORLD, OF_ALL, missing


def test_no_name_is_missing():
    assert missing(OF_ALL) == []
    assert [name for name in KERAS_WORLD.split() if not hasattr(HorovodBasics(__file__, "mpi_lib"), name)] == []


def test_exceptions_and_process_sets_are_farandoles():
    assert horovod.common.exceptions.HorovodInternalError is farandole.HorovodInternalError
    assert horovod.common.process_sets.ProcessSet is farandole.ProcessSet
    assert horovod.common.exceptions.HostsUpdatedInterrupt is farandole.HostsUpdatedInterrupt
    assert farandole.HostsUpdatedInterrupt(skip_sync=True).skip_sync
    assert issubclass(horovod.common.exceptions.HorovodVersionMismatchError, ImportError)


def test_before_init_the_words_are_those_that_programs_match():
    for call in (HorovodBasics().rank, HorovodBasics().local_size, farandole.barrier):
        with pytest.raises(ValueError, match=r"^Horovod has not been initialized; use hvd\.init\(\)"):
            call()


def test_a_reduction_from_op_and_from_average():
    assert util.handle_average_backwards_compatibility(None, None) is farandole.Average
    assert util.handle_average_backwards_compatibility(farandole.Max, None) is farandole.Max
    with pytest.warns(DeprecationWarning, match="op=Sum"):
        assert util.handle_average_backwards_compatibility(None, False) is farandole.Sum
    with pytest.raises(ValueError, match="both"):
        util.handle_average_backwards_compatibility(farandole.Sum, True)


def test_helpers():
    assert util.split_list([1, 2, 3, 4, 5], 3) == [[1, 2], [3, 4], [5]]
    assert [number for number in range(9) if util.num_rank_is_power_2(number)] == [1, 2, 4, 8]
    assert util.is_iterable("ab") and util.is_iterable([]) and not util.is_iterable(3)
    assert util.is_version_greater_equal_than("2.13.0", "2.4.0")
    assert not util.is_version_greater_equal_than("2.3.9", "2.4.0")
    assert util.gloo_built(verbose=True) and not util.ddl_built()
    assert not util.extension_available("no_such_framework")


def test_variables_hold_within_the_block_only(monkeypatch):
    monkeypatch.setenv("HOROVOD_TEST_A", "1")
    monkeypatch.delenv("HOROVOD_TEST_B", raising=False)
    with util.env(HOROVOD_TEST_A="2", HOROVOD_TEST_B="3", HOROVOD_TEST_C=None):
        assert os.environ["HOROVOD_TEST_A"] == "2"
        assert os.environ["HOROVOD_TEST_B"] == "3"
    assert os.environ["HOROVOD_TEST_A"] == "1"
    assert "HOROVOD_TEST_B" not in os.environ


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({}, {}),
        ({"HOROVOD_FUSION_THRESHOLD": "1048576"}, {"FARANDOLE_FUSION_THRESHOLD": "1048576"}),
        ({"HOROVOD_FUSION_THRESHOLD": "1", "FARANDOLE_FUSION_THRESHOLD": "2"}, {}),
        ({"HOROVOD_STALL_CHECK_TIME_SECONDS": "30"}, {"FARANDOLE_WARN_AFTER": "30"}),
        ({"HOROVOD_STALL_CHECK_DISABLE": "1"}, {"FARANDOLE_WARN_AFTER": "31536000"}),
        (
            {"HOROVOD_STALL_CHECK_DISABLE": "0", "HOROVOD_STALL_CHECK_TIME_SECONDS": "30"},
            {"FARANDOLE_WARN_AFTER": "30"},
        ),
        ({"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "0"}, {"FARANDOLE_TIMEOUT": "0"}),
        ({"HOROVOD_LOG_LEVEL": "TRACE"}, {"FARANDOLE_LOG_LEVEL": "debug"}),
        ({"HOROVOD_TIMELINE": "/tmp/t.json"}, {"FARANDOLE_TIMELINE": "/tmp/t.json"}),
        ({"HOROVOD_TIMELINE": "DYNAMIC"}, {}),
        ({"HOROVOD_GLOO_TIMEOUT_SECONDS": "60"}, {"FARANDOLE_START_TIMEOUT": "60"}),
        ({"HOROVOD_CYCLE_TIME": "3", "HOROVOD_CONTROLLER": "gloo"}, {}),
    ],
)
def test_settings_of_horovod_are_translated(theirs, ours):
    assert _environment.translated(theirs) == ours


def test_a_setting_that_is_no_number_is_told_by_its_own_name():
    with pytest.raises(ValueError, match=r"^HOROVOD_FUSION_THRESHOLD=64MB must be a number"):
        _environment.translated({"HOROVOD_FUSION_THRESHOLD": "64MB"})


def test_init_reads_them(monkeypatch):
    monkeypatch.setenv("HOROVOD_STALL_CHECK_TIME_SECONDS", "77")
    monkeypatch.delenv("FARANDOLE_WARN_AFTER", raising=False)
    seen = []
    _environment.reading_settings(lambda: seen.append(os.environ["FARANDOLE_WARN_AFTER"]))()
    assert seen == ["77"]
    monkeypatch.delenv("FARANDOLE_WARN_AFTER")


@pytest.mark.parametrize(("version", "refused"), [("0.28.1", True), ("0.19.5", True), ("0.28.1+farandole", False)])
def test_horovod_itself_beside_it_is_refused(monkeypatch, version, refused):
    monkeypatch.setattr(_environment.metadata, "version", lambda name: version)
    if refused:
        with pytest.raises(ImportError, match=f"^Horovod {version} and farandole-horovod .* pip uninstall -y horovod"):
            _environment.check_alone()
    else:
        _environment.check_alone()


def test_a_missing_plugin_is_told_with_its_command():
    told = pytest.raises(ImportError, match=r"^horovod.nothing needs farandole-nothing: python -m pip install")
    with told, _environment.needing("farandole-nothing"):
        import farandole_nothing  # noqa: F401
    with pytest.raises(ModuleNotFoundError, match="no_such_module"), _environment.needing("farandole-nothing"):
        import no_such_module  # noqa: F401


def test_the_version_is_that_of_the_api():
    assert horovod.__version__ == "0.28.1"
    assert horovod.__farandole_version__ == farandole.__version__
    assert horovod.__file__.endswith("horovod/__init__.py")
