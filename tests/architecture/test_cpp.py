from cpp_rules import (
    LAYERS,
    backend_name_violations,
    cpp_environment_violations,
    foreign_header_violations,
    isolation_violations,
    layer_of,
    layer_violations,
    second_choices,
    second_ends,
    stream_violations,
)
from tree import Plant, cpp_sources


def test_layers_know_only_what_lies_below_them() -> None:
    assert layer_violations(cpp_sources()) == []


def test_only_its_own_folder_knows_a_backend_or_a_transport() -> None:
    assert isolation_violations(cpp_sources()) == []


def test_nothing_is_compiled_against_a_framework() -> None:
    assert foreign_header_violations(cpp_sources()) == []


def test_nothing_that_frameworks_load_uses_streams() -> None:
    assert stream_violations(cpp_sources()) == []


def test_backends_are_named_in_their_folder_only() -> None:
    assert backend_name_violations(cpp_sources()) == []


def test_protocol_and_plan_are_each_chosen_in_one_place() -> None:
    assert second_choices(cpp_sources()) == []


def test_an_operation_ends_in_one_place() -> None:
    assert second_ends(cpp_sources()) == []


def test_the_environment_is_read_in_one_cpp_file() -> None:
    assert cpp_environment_violations(cpp_sources()) == []


# ---- The rules can fail ----------------------------------------------------------------------------------------------


def test_a_layer_never_knows_one_above_it() -> None:
    assert all(name not in LAYERS[below] for name, known in LAYERS.items() for below in known)


def test_files_belong_to_layers() -> None:
    assert layer_of("core/src/world/layout.cc") == "world"
    assert layer_of("core/src/capi.cc") == "capi"
    assert layer_of("core/bindings/module.cc") == "bindings"
    assert layer_of("core/tests/cpp/reduce/half_test.cc") is None


def test_an_arrow_that_turns_round_is_found(plant: Plant) -> None:
    files = plant({"core/src/common/a.h": '#include <vector>\n#include "world/layout.h"\n'})
    assert layer_violations(files) == ["core/src/common/a.h:2: common may not know world (world/layout.h)"]


def test_a_second_choice_of_a_plan_is_found(plant: Plant) -> None:
    choice = "void Start() { plan_ = ChoosePlan(facts); }\n"
    assert second_choices(plant({"core/src/engine/a.cc": choice})) == []
    assert second_choices(plant({"core/src/engine/a.cc": choice, "core/src/engine/b.cc": choice})) == [
        "core/src/engine/a.cc:1: ChoosePlan(",
        "core/src/engine/b.cc:1: ChoosePlan(",
    ]


def test_a_second_end_of_an_operation_is_found(plant: Plant) -> None:
    ends = "void End() { done_.store(true); }\n"
    assert second_ends(plant({"core/src/engine/a.cc": ends})) == []
    assert len(second_ends(plant({"core/src/engine/a.cc": ends, "core/src/engine/b.cc": ends}))) == 2


def test_branches_do_not_know_each_other(plant: Plant) -> None:
    files = plant(
        {
            "core/src/controller/a.cc": '#include "backends/table.h"\n',
            "core/src/algorithms/b.cc": '#include "device/host.h"\n',
        }
    )
    assert len(layer_violations(files)) == 2


def test_an_include_in_a_comment_is_none(plant: Plant) -> None:
    assert (
        layer_violations(plant({"core/src/common/a.h": '// #include "world/layout.h"\n/*\n#include "world/b.h"\n*/\n'}))
        == []
    )


def test_an_include_without_its_layer_is_found(plant: Plant) -> None:
    assert layer_violations(plant({"core/src/common/a.cc": '#include "a.h"\n'})) == [
        'core/src/common/a.cc:1: write "a.h" with its path below core/src'
    ]


def test_an_unknown_layer_is_found(plant: Plant) -> None:
    assert len(layer_violations(plant({"core/src/misc/a.cc": "\n"}))) == 1


def test_the_c_header_is_included_at_the_border_only(plant: Plant) -> None:
    line = '#include "farandole/farandole.h"\n'
    assert layer_violations(plant({"core/src/capi.cc": line})) == []
    assert len(layer_violations(plant({"core/src/engine/engine.cc": line}))) == 1


def test_a_backend_known_outside_its_folder_is_found(plant: Plant) -> None:
    line = '#include "backends/nccl/communicators.h"\n'
    assert len(isolation_violations(plant({"core/src/backends/table.cc": line}))) == 1
    assert isolation_violations(plant({"core/src/backends/nccl/nccl.cc": line})) == []
    assert len(isolation_violations(plant({"core/src/engine/engine.cc": line}))) == 1


def test_a_transport_known_outside_its_folder_is_found(plant: Plant) -> None:
    line = '#include "transport/tcp/lanes.h"\n'
    assert isolation_violations(plant({"core/src/transport/tcp/tcp.cc": line})) == []
    assert isolation_violations(plant({"core/src/world/world.h": line})) == [
        "core/src/world/world.h:1: only its own folder knows transport/tcp (transport/tcp/lanes.h)"
    ]


def test_a_framework_s_header_is_found(plant: Plant) -> None:
    files = plant(
        {
            "core/src/device/a.cc": "#include <cuda_runtime.h>\n",
            "core/src/common/b.cc": "#include <Python.h>\n",
            "core/bindings/c.cc": "#include <pybind11/pybind11.h>\n",
            "plugins/torch/csrc/d.cc": "#include <torch/extension.h>\n#include <farandole/common/types.h>\n",
        }
    )
    assert len(foreign_header_violations(files)) == 4


def test_a_stream_in_what_frameworks_load_is_found(plant: Plant) -> None:
    streams = "#include <fstream>\n#include <string>\n"
    files = plant({"core/src/world/a.cc": streams, "plugins/torch/csrc/b.cc": streams, "core/benchmarks/c.cc": streams})
    assert [found.split(": ")[0] for found in stream_violations(files)] == [
        "core/src/world/a.cc:1",
        "plugins/torch/csrc/b.cc:1",
    ]


def test_a_backend_s_name_elsewhere_is_found(plant: Plant) -> None:
    files = plant(
        {
            "core/src/engine/a.cc": "// as nccl does\nint kMpiRanks;\nint compiled, impi;\n",
            "core/src/backends/nccl/b.cc": "int nccl; // unlike Gloo\n",
            "core/src/backends/mpi/c.cc": "",
            "core/src/backends/gloo/d.cc": "",
            "core/src/backends/echo/e.cc": "int echo;\n",
            "core/src/world/f.cc": "int echoes; auto& x = kEcho;\n",
            "core/src/backends/table.cc": "nccl mpi gloo\n",
        }
    )
    assert backend_name_violations(files) == [
        "core/src/backends/nccl/b.cc:1: names the backend gloo",
        "core/src/engine/a.cc:1: names the backend nccl",
        "core/src/engine/a.cc:2: names the backend mpi",
        "core/src/world/f.cc:1: names the backend echo",
    ]


def test_a_second_reader_of_the_environment_is_found(plant: Plant) -> None:
    files = plant(
        {
            "core/src/common/config.cc": 'auto* a = std::getenv("A");\n',
            "core/src/common/other.cc": '// getenv\nauto* text = "getenv";\nauto* a = getenv("A");\n',
            "core/tests/cpp/config_test.cc": 'setenv("A", "1", 1);\n',
        }
    )
    assert cpp_environment_violations(files) == [
        "core/src/common/other.cc:3: getenv; the environment is core/src/common/config.cc's"
    ]
