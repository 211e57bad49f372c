"""Expressions: every tree written as text is parsed to the same layout; errors name position and rule."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings

import oracle
from layouts import canonical
from strategies import trees
from tempi import _draw
from tempi.expression import ExpressionError, names, parse
from tempi.layout import Box, Dim, Layout, Table, from_engine

SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large)

#: Its only SHORT is not there, so the struct is not padded to a SHORT's alignment (MPI-5.0 5.1.6).
_NO_SHORT = oracle.Darray(2, 1, (1,), ("BLOCK",), (None,), (2,), oracle.Named("SHORT"))
AN_EMPTY_MEMBER = oracle.Struct((1, 1), (0, -1), (_NO_SHORT, oracle.Named("BYTE")))

some = settings(max_examples=250, deadline=None, suppress_health_check=SLOW)


@some
@given(trees())
@example(AN_EMPTY_MEMBER)
def test_text_of_a_tree_parses_to_its_layout(tree: oracle.Tree) -> None:
    with canonical(tree) as expected:
        assert parse(str(tree)).layout() == from_engine(expected)


@some
@given(trees())
@example(AN_EMPTY_MEMBER)
def test_rows_are_the_runs_of_the_type_map(tree: oracle.Tree) -> None:
    for count in (1, 3):
        rows = parse(str(tree)).layout().rows(count)
        spelled = [np.arange(offset, offset + n) for _, offset, n in rows]
        offsets = np.concatenate([np.zeros(0, np.int64), *spelled])
        np.testing.assert_array_equal(offsets, oracle.element_offsets(tree, count))
        assert rows[:, 0].tolist() == [0, *np.cumsum(rows[:, 2])[:-1]][: len(rows)]


@some
@given(trees())
def test_sample_places_every_byte(tree: oracle.Tree) -> None:
    shown = _draw.sample(parse(str(tree)).layout(), 2, most=1 << 20)
    np.testing.assert_array_equal(shown.offsets, oracle.element_offsets(tree, 2))
    assert (shown.first, shown.last) == oracle.span(tree, 2) or shown.size == 0


@pytest.mark.parametrize("name", oracle.NAMED)
def test_basic_type_is_what_the_compiler_says(name: str) -> None:
    expected = oracle.Named(name).type_map
    for written in (name, f"MPI_{name}", f"MPI.{name}"):
        layout = parse(written).layout()
        assert (layout.size, layout.extent) == (expected.size, expected.extent)
    assert name in names()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("vector(3, 2, 4, INT)", "MPI_Type_vector(3, 2, 4, MPI_INT)"),
        ("vector(3, 2, 4, INT)", "vector(count=3, blocklength=2, stride=4, type=INT)"),
        ("vector(3, 2, 4, INT)", "Create_vector(1+2, 4//2, -4*-1, INT)"),
        ("subarray([4]*3, [1, 2, 3], (0, 1, 0), INT)", "subarray([4,4,4],[1,2,3],[0,1,0],INT,order='C')"),
        ("subarray([4,5],[2,3],[1,1],INT,order='F')", "subarray([5,4],[3,2],[1,1],INT,MPI_ORDER_C)"),
        ("indexed([1]*4, range(0,12,3), INT)", "vector(4, 1, 3, INT)"),
        ("darray(2,1,[9],[CYCLIC],[DFLT],[2],INT)", "darray(2,1,[9],['cyclic'],[1],[2],INT,order=C)"),
        ("darray(2,1,[9],[MPI_DISTRIBUTE_BLOCK],[None],[2],INT)", "darray(2,1,[9],[BLOCK],[5],[2],INT)"),
        ("contiguous(2, MPI_2INT)", "contiguous(2, TWOINT)"),
    ],
)
def test_other_spellings_are_the_same_type(one: str, other: str) -> None:
    assert parse(one).layout() == parse(other).layout()


@pytest.mark.parametrize(
    ("text", "at", "rule"),
    [
        ("", 0, "invalid syntax"),
        ("vector(3,1,2,", 6, "never closed"),
        ("vector(3,1,2,INT) INT", 18, "invalid syntax"),
        ("vector(3,1,INT)", 11, "stride: expected an integer"),
        ("vector(3,1,2)", 0, "type is missing: vector(count, blocklength, stride, type)"),
        ("vector(3,1,2,INT,5)", 17, "too many arguments"),
        ("vector(3,1,2,INT,count=3)", 17, "count is given twice"),
        ("vector(3,1,2,INT,speed=3)", 17, "no argument is called speed"),
        ("vector(-3,1,2,INT)", 7, "count: -3 is negative"),
        ("vector(3,1.5,2,INT)", 9, "blocklength: expected an integer"),
        ("vector(True,1,2,INT)", 7, "count: expected an integer"),
        ("vector(2**70,1,2,INT)", 7, "count: expected an integer"),
        ("vector(9//0,1,2,INT)", 10, "division by zero"),
        ("vector(9999999999999999999,1,2,INT)", 7, "does not fit in 64 bits"),
        ("vector(3,1,2,INTT)", 13, "no basic type is called INTT"),
        ("contiguous(2, vector)", 14, "vector needs arguments"),
        ("contiguous(2, 7)", 14, "expected a datatype"),
        ("tensor(3, INT)", 0, "no constructor is called tensor"),
        ("__import__('os').system('true')", 0, "no constructor is called that"),
        ("indexed(3, [1], INT)", 8, "blocklengths: expected a list"),
        ("indexed([1,2], [0], INT)", 0, "blocklengths has 2, displacements has 1"),
        ("indexed([1]*99999999, [0], INT)", 8, "at most"),
        ("indexed([1], range(10**9), INT)", 19, "expected an integer"),
        ("struct([1], [0], INT)", 17, "types: expected a list"),
        ("subarray([4], [3], [2], INT)", 0, "dimension 0: start 2 + subsize 3 is not within size 4"),
        ("subarray([4], [3], [1], INT, order='X')", 0, "order is 'C' or 'F'"),
        ("darray(2,0,[9],[DICE],[DFLT],[2],INT)", 0, "BLOCK, CYCLIC or NONE, not DICE"),
        ("f90_real(60, 10)", 0, "no Fortran kind"),
        ("contiguous(2, contiguous(4611686018427387904, INT))", 14, "63 bits"),
    ],
)
def test_error_names_position_and_rule(text: str, at: int, rule: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    assert rule in caught.value.rule
    assert caught.value.position == at
    assert f"character {at + 1}" in str(caught.value)


def test_too_deep_text_is_an_error_too() -> None:
    with pytest.raises(ExpressionError):
        parse("dup(" * 3000 + "INT" + ")" * 3000)


def test_struct_is_padded_to_its_alignment() -> None:
    assert parse("struct([1,1],[0,8],[DOUBLE,CHAR])").layout().extent == 16
    assert parse("struct([0,1],[0,0],[DOUBLE,CHAR])").layout().extent == 1
    assert parse("struct([1,1],[0,16],[C_DOUBLE_COMPLEX,CHAR])").layout().extent == 24


def test_layout_is_a_plain_value() -> None:
    layout = parse("resized(0, 40, vector(3, 1, 2, DOUBLE))").layout()
    box = Box(offset=0, packed=0, run=8, dims=(Dim(3, 16, 8),))
    assert layout == Layout(24, 0, 40, 0, 40, 3, False, layout.footprint, (box,))
    assert hash(layout) == hash(parse("resized(0, 40, vector(3, 1, 2, DOUBLE))").layout())
    assert (layout.ub, layout.true_extent, layout.longest_run, box.size) == (40, 40, 8, 24)


def test_table_is_a_read_only_value() -> None:
    text = "hindexed([1,2,3,1,9], [0,16,50,100,200], BYTE)"
    table, again = (parse(text).layout().boxes[0].table for _ in range(2))
    assert isinstance(table, Table)
    assert table == again
    assert hash(table) == hash(again)
    assert not table.offsets.flags.writeable
    assert table.lengths is not None
    assert table.lengths.tolist() == [1, 2, 3, 1, 9]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("DOUBEL", "did you mean DOUBLE"),
        ("vector(4, 1, 8, MPI_FLAOT)", "did you mean FLOAT"),
        ("MPI_Type_vectr(4, 1, 8, INT)", "did you mean vector"),
        ("subarry([4], [2], [0], INT)", "did you mean subarray"),
        ("vector(count=4, blocklenght=1, stride=8, type=INT)", "did you mean blocklength"),
    ],
)
def test_a_misspelt_name_gets_its_near_match(text: str, meant: str) -> None:
    with pytest.raises(ExpressionError, match=meant):
        parse(text)


def test_a_name_like_no_other_gets_no_match() -> None:
    with pytest.raises(ExpressionError) as caught:
        parse("xyzzy")
    assert "did you mean" not in str(caught.value)
    with pytest.raises(ExpressionError, match="there are dup, contiguous"):
        parse("xyzzy(1, INT)")
