"""The count of functions that a sum passes: names of C++, stacks at steps, missing steps. Nothing is compiled."""

from __future__ import annotations

import pytest
from call_paths import Case, Function, PathError, listed, merged, name_of, parameters_of, passed, path_of, section

OUTER = "farandole::(anonymous namespace)::RunOne(_object*, long)"
LAMBDA = f"{OUTER}::{{lambda()#1}}::operator()() const"
STEPS = {"written": "Put", "reduced": "Run"}


def function(name: str, line: int = 1) -> Function:
    return Function(name, "core/src/a.cc", f"farandole::{name}()", line)


def case(union: bool) -> Case:
    return Case("4 bytes", 4, 3, union, {}, STEPS)


@pytest.mark.parametrize(
    ("signature", "name"),
    [
        ("farandole::Engine::Submit(farandole::Request, bool)", "Engine::Submit"),
        ("farandole::SlotBuffer::AllHaveWritten(unsigned long, farandole::Share) const", "SlotBuffer::AllHaveWritten"),
        (f"_object* farandole::WithoutCppExceptions<{LAMBDA}>({LAMBDA})", "WithoutCppExceptions"),
        ("unsigned long farandole::Count<farandole::Span<long const> >(farandole::Span<long const> const&)", "Count"),
        (LAMBDA, "RunOne"),
        ("farandole::(anonymous namespace)::Begun::~Begun()", "Begun::~Begun"),
    ],
)
def test_names_are_short(signature: str, name: str) -> None:
    assert name_of(signature) == name


def test_overloads_are_told_apart_by_what_they_take() -> None:
    few = Function("Submit", "a.cc", "farandole::Submit(farandole::Request, std::shared_ptr<farandole::A>*)", 1)
    assert parameters_of(few.signature) == "(Request, shared_ptr*)"
    assert few.title([few, function("Run")]) == "Submit"
    assert few.title([few, Function("Submit", "a.cc", "farandole::Submit(bool)", 2)]) == "Submit(Request, shared_ptr*)"


def test_lambdas_and_instances_of_templates_are_merged() -> None:
    outer = Function("RunOne", "a.cc", OUTER, 1)
    instance, other = (Function("Until", "b.h", f"bool farandole::Until<{each}>()", 5) for each in "AB")
    inner = Function("RunOne", "a.cc", LAMBDA, 2)
    assert merged({1: inner, 2: outer, 3: instance, 4: other}) == {1: outer, 2: outer, 3: instance, 4: instance}


def test_the_stack_at_each_step_counts_and_calls_on_the_side_do_not() -> None:
    run, put, side, reduce, library = 10, 11, 12, 13, 14
    functions = {run: function("Engine::Run"), put: function("Put"), side: function("Size"), reduce: function("Run")}
    tree = [(0, 0), (0, run), (1, library), (2, put), (3, side), (1, side), (1, reduce)]
    assert {each.name: steps for each, steps in passed(tree, functions, STEPS).items()} == {
        "Engine::Run": ["written", "reduced"],
        "Put": ["written"],
        "Run": ["reduced"],
    }


def test_the_most_frequent_path_or_the_union_is_taken() -> None:
    put, run, rare = function("Put"), function("Run"), function("Rare")
    usual = {put: ["written"], run: ["reduced"]}
    unusual = {put: ["written"], rare: ["reduced"], run: ["reduced"]}
    assert path_of(case(union=False), [unusual, usual, usual]) == usual
    assert path_of(case(union=True), [usual, unusual]) == {**usual, rare: ["reduced"]}


def test_a_step_that_is_never_reached_is_an_error() -> None:
    with pytest.raises(PathError, match="'4 bytes' never reached the step 'reduced', the function Run"):
        path_of(case(union=True), [{function("Put"): ["written"]}])


@pytest.mark.parametrize(
    ("reached", "text"), [("wxyz", "all"), ("wxy", "w to y"), ("zyx", "x to z"), ("xw", "w, x"), ("wxz", "w, x, z")]
)
def test_steps_are_listed_in_their_order(reached: str, text: str) -> None:
    assert listed("wxyz", reached) == text


def test_the_page_has_a_row_for_each_function() -> None:
    text = section(case(union=False), {function("Engine::Run"): ["written", "reduced"], function("Put"): ["written"]})
    assert "## 4 bytes: 2 functions" in text
    assert "| `Engine::Run` | [a.cc](../../core/src/a.cc) | all |\n" in text
    assert "| `Put` | [a.cc](../../core/src/a.cc) | written |\n" in text
