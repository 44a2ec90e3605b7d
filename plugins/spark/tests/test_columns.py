"""The columns that a model reads, and their comparison with its shapes. Pure."""

from types import SimpleNamespace

import farandole
import pytest
from farandole_spark.ml._columns import ARRAY, SCALAR, VECTOR, Column, check_shapes, columns_of


def kind(name):
    element = kind(name[6:-1]) if name.startswith("array<") else None
    return SimpleNamespace(simpleString=lambda: name, elementType=element)


def fields(**types):
    return [SimpleNamespace(name=name, dataType=kind(text)) for name, text in types.items()]


def test_numbers_vectors_and_arrays_are_columns():
    found = columns_of(
        fields(a="int", b="vector", c="array<float>", d="decimal(10,2)"), ["d", "a", "b", "c", "a"], False
    )
    assert found == [
        Column("d", SCALAR, "double"),
        Column("a", SCALAR, "int"),
        Column("b", VECTOR, "double"),
        Column("c", ARRAY, "float"),
    ]


@pytest.mark.parametrize(
    "text", ["string", "date", "timestamp", "map<string,int>", "array<string>", "array<array<int>>"]
)
def test_other_types_are_named(text):
    with pytest.raises(farandole.ArgumentError, match=f"'a' has the type {text}, which no model takes"):
        columns_of(fields(a=text), ["a"], False)


def test_a_transformation_may_read_strings():
    assert columns_of(fields(a="binary"), ["a"], True) == [Column("a", SCALAR, "binary")]


def test_a_missing_column_is_named_with_those_that_are_there():
    with pytest.raises(farandole.ArgumentError, match="no column 'c'; it has a, b"):
        columns_of(fields(a="int", b="int"), ["a", "c"], False)


@pytest.mark.parametrize("shape", [(-1, 4), (None, 2, 2), (None, None), (None, -1), None])
def test_shapes_that_fit(shape):
    check_shapes({"x": Column("x", VECTOR, "double", 4)}, ["x"], [shape], "input")


def test_shapes_that_do_not_fit_are_told():
    columns = {"x": Column("x", VECTOR, "double", 4)}
    with pytest.raises(farandole.ArgumentError, match=r"'x' has 4 numbers in each row, and .* shape is \(-1, 5\)"):
        check_shapes(columns, ["x"], [(-1, 5)], "input")
    with pytest.raises(farandole.ArgumentError, match="2 input shapes, and the estimator 1 input columns"):
        check_shapes(columns, ["x"], [(-1, 4), (-1, 1)], "input")
