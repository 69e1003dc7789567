"""Decisions over a plan's typed nodes, without Spark: the plans here have the form of `TreeNode.toJSON`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from foldhouse.errors import DefinitionError
from foldhouse.logic.asked import check_words
from foldhouse.logic.decided import Identity
from foldhouse.logic.needed import needed_columns
from foldhouse.logic.plan import plan_from_json, source_name
from foldhouse.logic.repeatable import check_repeatable, check_text
from foldhouse.logic.shape import Origin, Shape, origins_of, shape_of

CATALYST = "org.apache.spark.sql.catalyst."
Tree = list[dict[str, Any]]


def expression(kind: str, *children: Tree, **facts: Any) -> Tree:
    given = {"class": f"{CATALYST}expressions.{kind}", "num-children": len(children), **facts}
    return [given, *(one for child in children for one in child)]


def column(name: str, number: int, kind: str = "long") -> Tree:
    return expression("AttributeReference", name=name, dataType=kind, exprId={"id": number})


def alias(name: str, number: int, made: Tree) -> Tree:
    return expression("Alias", made, name=name, exprId={"id": number})


def literal(value: str | None, kind: str) -> Tree:
    return expression("Literal", value=value, dataType=kind)


def node(kind: str, *children: Tree, **fields: Any) -> Tree:
    given = {"class": f"{CATALYST}plans.logical.{kind}", "num-children": len(children), **fields}
    return [given, *(one for child in children for one in child)]


K, N, T, X = column("k", 1, "string"), column("n", 2), column("t", 3, "timestamp"), column("x", 4, "double")


def source(place: int = 0, first: int = 0) -> Tree:
    kinds = [("k", "string"), ("n", "long"), ("t", "timestamp"), ("x", "double")]
    output = [column(name, first + number, kind) for number, (name, kind) in enumerate(kinds, 1)]
    leaf = node("LocalRelation", output=output, data=None)
    return node("SubqueryAlias", leaf, identifier={"name": source_name(place)})


def project(*columns: Tree, below: Tree | None = None) -> Tree:
    return node("Project", below or source(), projectList=list(columns))


def aggregate(groups: list[Tree], *columns: Tree, below: Tree | None = None) -> Tree:
    return node("Aggregate", below or source(), groupingExpressions=groups, aggregateExpressions=[*groups, *columns])


def aggregated(function: Tree) -> Tree:
    return expression("aggregate.AggregateExpression", function)


def ascending(given: Tree) -> Tree:
    return expression("SortOrder", given)


def window(function: Tree, partition: list[Tree], order: list[Tree], frame: str = "RowFrame") -> Tree:
    bounds = expression("UnboundedPreceding$"), expression("CurrentRow$")
    framed = expression("SpecifiedWindowFrame", *bounds, frameType={"object": f"{CATALYST}expressions.{frame}$"})
    ordered = [ascending(one) for one in order]
    spec = expression("WindowSpecDefinition", *partition, *ordered, framed)
    made = alias("w", 50, expression("WindowExpression", function, spec))
    return node("Window", source(), windowExpressions=[made], partitionSpec=partition, orderSpec=ordered)


def join(left: Tree, right: Tree, condition: Tree, how: str = "Inner") -> Tree:
    kind = {"object": f"{CATALYST}plans.{how}$"}
    return node("Join", left, right, condition=condition, joinType=kind)


def equal(one: Tree, other: Tree) -> Tree:
    return expression("EqualTo", one, other)


def shape(tree: Tree, places: int = 1) -> Shape:
    return shape_of(plan_from_json(json.dumps(tree)), places)


def refused(tree: Tree, *unique: tuple[str, ...]) -> str:
    with pytest.raises(DefinitionError) as failure:
        check_repeatable(plan_from_json(json.dumps(tree)), [Identity(one) for one in unique])
    return str(failure.value)


def accepted(tree: Tree, *unique: tuple[str, ...]) -> None:
    check_repeatable(plan_from_json(json.dumps(tree)), [Identity(one) for one in unique])


LAG = expression("Lag", N, literal("1", "integer"), literal(None, "void"))


def test_projections_and_filters_are_linear() -> None:
    assert shape(project(K, alias("m", 9, expression("Add", N, N)))).is_linear
    assert shape(node("Filter", source(), condition=equal(K, K))).is_linear
    assert shape(node("Union", source(), source(0, 20))).is_linear


def test_rows_that_are_no_sources_are_not_linear() -> None:
    literal_rows = node("LocalRelation", output=[column("k", 30)])
    assert shape(node("Union", project(K), literal_rows)) == Shape()
    assert not shape(node("Union", project(K), literal_rows)).is_known
    assert shape(aggregate([], alias("c", 9, aggregated(expression("aggregate.Count", N))))) == Shape()


def test_groupings_and_windows_are_kept_by_the_columns_they_share() -> None:
    assert shape(aggregate([K, T])).cells == (("k", "t"),)
    assert shape(window(LAG, [K], [T])).cells == (("k",),)
    count = alias("c", 9, aggregated(expression("aggregate.Count", N)))
    assert shape(aggregate([K, T], count, below=window(LAG, [T], [N]))).cells == (("t",),)
    assert shape(aggregate([K], count, below=window(LAG, [T], [N]))) == Shape()
    assert shape(window(LAG, [], [T])) == Shape()
    assert shape(window(LAG, [expression("Upper", K)], [T])) == Shape()
    assert shape(node("Distinct", project(K, N))).cells == (("k", "n"),)


def test_a_renamed_column_is_followed_and_a_computed_one_is_not() -> None:
    renamed = project(alias("key", 9, K), N)
    assert shape(aggregate([column("key", 9)], below=renamed)).cells == (("k",),)
    computed = project(alias("k", 9, expression("Upper", K)), N)
    assert shape(aggregate([column("k", 9)], below=computed)) == Shape()


def test_joins_on_equal_columns_make_cells_and_stars() -> None:
    both = equal(K, column("k", 21, "string"))
    assert shape(join(source(), source(1, 20), both), 2).cells == (("k",), ("k",))
    assert shape(join(source(), source(1, 20), expression("Or", both, both)), 2) == Shape()
    assert shape(join(source(), source(1, 20), expression("Not", both)), 2) == Shape()
    more = expression("And", both, expression("GreaterThan", N, column("n", 22)))
    assert shape(join(source(), source(1, 20), more), 2).cells == (("k",), ("k",))
    third = join(join(source(), source(1, 20), both), source(2, 40), equal(N, column("n", 42)), "LeftOuter")
    assert {branch.place for branch in shape(third, 3).branches} == {1, 2}


def test_a_tree_is_rooted_where_each_row_needs_one_row_of_the_others() -> None:
    """Customers (0) with orders (1) with lines (2): the lines need one order each, and the orders one customer."""
    of_customer = equal(K, column("k", 21, "string"))
    of_order = equal(column("n", 22), column("n", 42))
    chain = join(join(source(), source(1, 20), of_customer), source(2, 40), of_order)
    tree = shape_of(plan_from_json(json.dumps(chain)), 3, [("k",), ("n",), ("t",)])
    assert (tree.root, [(one.parent, one.place) for one in tree.branches]) == (2, [(2, 1), (1, 0)])
    assert shape(chain, 3).root == 0  # where no unique columns are known, the first source
    left = join(join(source(), source(1, 20), of_customer, "LeftOuter"), source(2, 40), of_order)
    assert shape_of(plan_from_json(json.dumps(left)), 3, [("k",), ("n",), ("t",)]).root == 0


@pytest.mark.parametrize(("how", "is_tree"), [("LeftSemi", True), ("LeftAnti", True), ("FullOuter", False)])
def test_only_joins_whose_rows_all_contain_a_left_row_make_trees(how: str, is_tree: bool) -> None:
    one = join(source(), source(1, 20), equal(K, column("k", 21, "string")))
    assert bool(shape(join(one, source(2, 40), equal(N, column("n", 42)), how), 3).branches) == is_tree


def test_a_tree_on_the_right_is_joined_where_it_may_start() -> None:
    of_third = equal(column("n", 22), column("n", 42))
    for how, found in (("Inner", 1), ("LeftOuter", 1), ("RightOuter", 0)):
        right = join(source(1, 20), source(2, 40), of_third, how)
        tree = shape(join(source(), right, equal(K, column("k", 21, "string")), "LeftOuter"), 3)
        assert (bool(tree.branches), how) == (bool(found), how)
    right = join(source(2, 40), source(1, 20), of_third, "LeftOuter")  # rooted at 2, and joined at 1
    assert shape(join(source(), right, equal(K, column("k", 21, "string"))), 3) == Shape()


def test_a_subquery_makes_everything_matter() -> None:
    inner = aggregate([], alias("m", 90, aggregated(expression("aggregate.Max", column("n", 22)))), below=source(0, 20))
    tree = node("Filter", source(), condition=equal(N, expression("ScalarSubquery", plan=inner)))
    accepted(tree)
    assert shape(tree) == Shape()


def test_origins_are_source_columns_and_days() -> None:
    tree = project(
        alias("key", 9, K), alias("day", 10, expression("ParseToDate", T)), alias("u", 11, expression("Upper", K))
    )
    found = origins_of(plan_from_json(json.dumps(tree)), ["key", "day", "u"])
    assert found == {"key": Origin("k"), "day": Origin("t", is_day=True)}


@pytest.mark.parametrize(
    "kind", ["Rand", "Uuid", "CurrentDate", "Now", "SparkPartitionID", "CallMethodViaReflection", "AesEncrypt"]
)
def test_what_gives_another_answer_is_refused_wherever_it_stands(kind: str) -> None:
    name = {"Rand": "rand", "Now": "now", "Uuid": "uuid"}.get(kind, "")
    deep = expression("Upper", expression("Cast", expression(kind), dataType="string"))
    inner = project(alias("z", 9, deep))
    for tree in (inner, node("Filter", source(), condition=equal(K, deep)), aggregate([deep]), project(K, below=inner)):
        assert name in refused(tree)
    assert name in refused(node("Filter", source(), condition=equal(K, expression("ScalarSubquery", plan=inner))))


def test_what_nobody_knows_is_refused_by_name() -> None:
    assert "BrandNew" in refused(project(alias("z", 9, expression("BrandNew", K))))
    assert "ShuffleOfRows" in refused(node("ShuffleOfRows", source()))
    foreign = [{"class": "com.example.Abs", "num-children": 0}]
    assert "com.example.Abs" in refused(project(alias("z", 9, foreign)))
    assert "not a source of the table" in refused(node("Union", project(K), node("LogicalRelation")))
    assert "sample" in refused(node("Sample", source()))


def test_a_function_of_a_user_says_itself_whether_it_is_deterministic() -> None:
    accepted(project(alias("z", 9, expression("PythonUDF", N, name="f", udfDeterministic=True))))
    assert "f(n)" in refused(project(alias("z", 9, expression("PythonUDF", N, name="f", udfDeterministic=False))))
    assert "not deterministic" in refused(
        project(alias("z", 9, expression("objects.StaticInvoke", isDeterministic=False)))
    )


@pytest.mark.parametrize("word", ["now", "today", "Tomorrow", " yesterday "])
def test_text_that_spark_takes_for_the_present_is_refused(word: str) -> None:
    def cast(given: Tree, kind: str = "date") -> Tree:
        return project(alias("z", 9, expression("Cast", given, dataType=kind)))

    for kind in ("date", "timestamp", "timestamp_ntz"):
        assert "another value at another time" in refused(cast(literal(word, "string"), kind))
        with pytest.raises(DefinitionError, match="another value at another time"):
            check_text(f"coalesce(t, {kind}/* a */'{word}')")
    accepted(cast(literal(word, "string"), "binary"))
    accepted(cast(literal("epoch", "string")))
    accepted(cast(K))
    check_text("timestamp '2024-01-01' < t AND d > date 'epoch' AND w = 'now'")
    assert "another value" in refused(cast(expression("Concat", literal("to", "string"), literal("day", "string"))))


def test_a_window_has_to_order_rows_that_differ() -> None:
    message = refused(window(LAG, [K], [T]))
    assert "lag(n, 1, None) OVER (... ORDER BY t)" in message
    assert "order by n, x as well" in message
    accepted(window(LAG, [K], [T, N, X]))
    accepted(window(LAG, [K], [T]), ("t", "k"))  # no two rows have the same k and t
    assert "order by" in refused(window(LAG, [K], [T]), ("n",))
    accepted(window(expression("Rank", T), [K], [T]))
    total = aggregated(expression("aggregate.Sum", N))
    accepted(window(total, [K], [T], frame="RangeFrame"))
    assert "sum(n)" in refused(window(total, [K], [T]))
    listed = aggregated(expression("aggregate.CollectList", N))
    assert "collect_list" in refused(window(listed, [K], [T], frame="RangeFrame"))


def test_a_limit_has_to_follow_an_order_of_all_rows() -> None:
    def limited(*order: Tree) -> Tree:
        below = (
            node("Sort", source(), order=[ascending(one) for one in order], **{"global": True}) if order else source()
        )
        return node("GlobalLimit", node("LocalLimit", below))

    assert "without an order" in refused(limited())
    assert "order by k, t, x as well" in refused(limited(N))
    accepted(limited(N), ("n",))
    accepted(limited(K, N, T, X))
    assert "dropDuplicates(k)" in refused(node("Deduplicate", source(), keys=[K]))
    accepted(node("Deduplicate", source(), keys=[K]), ("k",))
    accepted(node("Deduplicate", source(), keys=[K, N, T, X]))


def test_aggregates_have_to_be_the_same_in_any_order() -> None:
    def of(kind: str, *given: Tree) -> Tree:
        return aggregate([K], alias("a", 9, aggregated(expression(f"aggregate.{kind}", *given))))

    for kind in ("First", "Last", "AnyValue", "CollectList", "CollectSet", "Mode"):
        assert "order in which rows are read" in refused(of(kind, N)), kind
    ordered = expression("SortArray", aggregated(expression("aggregate.CollectList", N)))
    accepted(aggregate([K], alias("a", 9, ordered)))
    assert "max_by" in refused(of("MaxBy", N, T))
    accepted(of("MaxBy", N, expression("CreateNamedStruct", literal("t", "string"), T, literal("n", "string"), N)))
    accepted(of("MaxBy", N, T), ("k", "t"))
    accepted(of("Sum", N))
    accepted(of("Max", X))
    for kind in ("Sum", "Average", "StddevSamp"):
        assert "floats" in refused(of(kind, X)), kind
    assert "floats" in refused(of("Sum", expression("Multiply", X, X)))
    accepted(of("Sum", expression("Cast", X, dataType="decimal(12,2)")))
    accepted(of("Sum", expression("If", equal(K, K), literal("1", "integer"), literal("0", "integer"))))


def test_a_plan_that_cannot_be_read_is_refused() -> None:
    for text in ("", "[]", "{}", "null", '[{"class": "x"}]', '[{"class": "x", "num-children": 1}]'):
        with pytest.raises(DefinitionError, match="could not be read"):
            plan_from_json(text)


TEXTS = {
    "n > 1 AND upper(k) IN ('a', 'nowhere') OR cast(n AS decimal(10, 2)) > 1": "",
    "CASE WHEN n > 1 THEN coalesce(k, 'rand()') END": "",
    "`rand` + `now`": "",
    "transform(array(n), x -> x + 1)": "",
    "rand() > 0.5": "random",
    "RAND /* how */ () > 0.5": "random",
    "`rand`() > 0.5": "cannot be checked",
    "n > lag(n) OVER (PARTITION BY k ORDER BY t)": "order",
    "n > max(n) OVER (PARTITION BY k)": "cannot be checked",
    "n = (SELECT max(n) FROM t)": "cannot be checked",
    "t > current_timestamp": "time of day",
    "k = current_user": "depends on the session",
    "t > 'now'": "present time",
    "d = date 'today'": "another value at another time",
    "brand_new(k)": "not known to give",
    "r'\\' = rand() or k = '": "cannot be checked",
    "'\\'' = k and rand() > 0.5 and k = '\\''": "random",
    "k = 'it''s' and uuid() = 'x'": "random",
    "reflect('java.util.UUID', 'randomUUID')": "Java code",
    "sum(x)": "floats",
    "first(n)": "order",
}


@pytest.mark.parametrize("text", TEXTS)
def test_text_that_is_sent_to_a_server_is_judged_by_its_words(text: str) -> None:
    if not TEXTS[text]:
        check_words(text)
        return
    with pytest.raises(DefinitionError, match=TEXTS[text]):
        check_words(text)


def test_a_column_wins_over_a_function_of_its_name() -> None:
    check_words("user = 'a' AND current_date > t", {"user", "current_date"})
    with pytest.raises(DefinitionError):
        check_words("user = 'a'", {"k"})


def needed(tree: Tree, inputs: list[list[str]]) -> tuple[tuple[str, ...], ...]:
    return needed_columns(plan_from_json(json.dumps(tree)), inputs)


def test_only_columns_that_can_change_a_row_are_needed() -> None:
    names = ["k", "n", "t"]
    assert needed(source(), [names]) == (("k", "n", "t"),)
    assert needed(project(K), [names]) == (("k",),)
    assert needed(project(alias("m", 9, expression("Add", N, N))), [names]) == (("n",),)
    assert needed(project(K, below=node("Filter", source(), condition=equal(N, N))), [names]) == (("k", "n"),)
    unused = project(K, alias("u", 9, expression("Upper", T)))
    assert needed(project(K, below=unused), [names]) == (("k",),)
    both = equal(K, column("k", 21, "string"))
    joined = join(source(), source(1, 20), both, "LeftOuter")
    assert needed(project(N, below=joined), [names, names]) == (("k", "n"), ("k",))
    stacked = node("Union", project(K, N), project(column("n", 22), column("k", 21, "string"), below=source(1, 20)))
    assert needed(project(K, below=stacked), [names, names]) == (("k",), ("n",))


def test_groups_need_what_they_are_grouped_by_and_a_source_without_a_column_its_first_one() -> None:
    names = ["k", "n", "t"]
    for tree, columns in ((node("Distinct", project(K, N)), ("k", "n")), (aggregate([K]), ("k",))):
        assert needed(project(K, below=tree), [names, names]) == (columns, ("k",))


def test_where_a_plan_is_not_understood_all_columns_are_needed() -> None:
    names = ["k", "n", "t"]
    for tree in (
        window(LAG, [K], [T]),
        node("Union", project(K), project(column("k", 21, "string"), below=source(1, 20)), byName=True),
    ):
        assert needed(project(K, below=tree), [names, names]) == (tuple(names), tuple(names))
    inner = aggregate([], alias("m", 90, aggregated(expression("aggregate.Max", column("n", 22)))), below=source(0, 20))
    with_subquery = node("Filter", source(), condition=equal(N, expression("ScalarSubquery", plan=inner)))
    assert needed(project(K, below=with_subquery), [names]) == (tuple(names),)
