"""Definitions of ensembles of decision trees: all trees go down one level at a time, for all rows at once.

    feature = Gather(features, node); x' = GatherND<batch_dims=1>(x, feature)
    node    = Where(x' <= Gather(thresholds, node), Gather(children_if_true, node), Gather(children_if_false, node))

A leaf is its own child, so after as many levels as the deepest tree has each tree is in a leaf, whose weights are
gathered and added up.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.formats.tflite.exporting.definition_body import TO_FLOAT, DefinitionBody, Undefined

DEEPEST = 128  # levels of the deepest trees that are written: each level is some operators
LEAF = "LEAF"
FIRST = 12  # the first opset that has LessOrEqual
LESS = ("BRANCH_LT", "BRANCH_GTE")
"""Comparisons that Less decides; where a model has others, too, LessOrEqual does with the next smaller number."""
MEMBER = "BRANCH_MEMBER"
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", MEMBER)
"""Comparisons, by the numbers that a TreeEnsemble has for them."""
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
REDUCTIONS = {"MIN": "ReduceMin", "MAX": "ReduceMax"}
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")


class Trees:
    """The nodes of all trees, under construction: a node goes to one child where a comparison holds, else to another.

    Args:
        targets: the numbers that a leaf has.
        modes: the comparisons of all nodes.
    """

    def __init__(self, targets: int, modes: Collection[str]) -> None:
        self.targets = targets
        self.comparison = "Less" if {*modes} - {LEAF} <= {*LESS} else "LessOrEqual"
        self.features: list[int] = []
        self.thresholds: list[float] = []
        self.children: list[tuple[int, int]] = []  # where the comparison holds, and where not
        self.missing: list[bool] = []  # True where a missing number goes as if the comparison held
        self.weights: list[NDArray[np.float32] | None] = []
        """Of a leaf, for each target; NaN where it says nothing of one."""
        self.roots: list[int] = []

    def leaf(self, weights: NDArray[np.float32]) -> int:
        """Add a leaf; return its number."""
        return self._add(0, 0.0, weights)

    def branch(self, mode: str, feature: int, threshold: np.float32, *, tracks_true: bool) -> tuple[int, list[Any]]:
        """Add nodes for a comparison; return the first, and where children go: (node, slot, whether the true one)."""
        below = _below(threshold)
        if mode in ("BRANCH_EQ", "BRANCH_NEQ"):  # not above, and not below
            is_equal = mode == "BRANCH_EQ"
            first, second = (self._add(feature, float(each), None) for each in (threshold, below))
            self.children[first] = (second, first)
            self.missing[first] = is_equal and tracks_true  # it is not below, either
            return first, [(first, 1, not is_equal), (second, 0, not is_equal), (second, 1, is_equal)]
        is_swapped = mode in ("BRANCH_GT", "BRANCH_GTE")
        limit = below if mode in LESS and self.comparison != "Less" else threshold
        node = self._add(feature, float(limit), None)
        self.missing[node] = tracks_true != is_swapped
        return node, [(node, 0, not is_swapped), (node, 1, is_swapped)]

    def _add(self, feature: int, threshold: float, weights: NDArray[np.float32] | None) -> int:
        node = len(self.features)
        self.features.append(feature)
        self.thresholds.append(threshold)
        self.children.append((node, node))
        self.missing.append(False)
        self.weights.append(weights)
        return node

    def membership(self, feature: int, members: Sequence[np.float32], *, tracks_true: bool) -> tuple[int, list[Any]]:
        """Add nodes that compare with each member of a set, one behind the other; return what `branch` does."""
        first, slots = self.branch("BRANCH_EQ", feature, members[0], tracks_true=tracks_true)
        for member in members[1:]:
            following, others = self.branch("BRANCH_EQ", feature, member, tracks_true=tracks_true)
            self.connect([slot for slot in slots if not slot[2]], following, following)
            slots = [slot for slot in slots if slot[2]] + others
        return first, slots

    def connect(self, slots: Sequence[Any], if_true: int, if_false: int) -> None:
        """Let nodes go to children."""
        for node, slot, is_true in slots:
            pair = list(self.children[node])
            pair[slot] = if_true if is_true else if_false
            self.children[node] = (pair[0], pair[1])

    def depth(self) -> int:
        """Return the levels of the deepest tree, unless a node is its own ancestor, or there are too many."""
        level, depth = set(self.roots), 0
        while level := {child for node in level if self.weights[node] is None for child in self.children[node]}:
            depth += 1
            if depth > DEEPEST:
                raise Undefined
        return depth

    @property
    def is_complete(self) -> bool:
        """True if every leaf says something of every target."""
        return not any(each is not None and np.isnan(each).any() for each in self.weights)

    def table(self, *, counts: bool = False) -> NDArray[np.float32]:
        """Return the weights of each node, 0 where it says nothing; or 1 where a leaf says something of a target."""
        rows = np.zeros((len(self.weights), self.targets), np.float32)
        for place, each in enumerate(self.weights):
            if each is not None:
                rows[place] = ~np.isnan(each) if counts else np.nan_to_num(each)
        return rows

    @property
    def is_of_all_targets(self) -> bool:
        """True if for every target there is a tree of which each leaf says something of it."""
        sure = np.zeros(self.targets, bool)
        for root in self.roots:
            said, waiting = np.ones(self.targets, bool), [root]
            while waiting:
                node = waiting.pop()
                weights = self.weights[node]
                if weights is None:
                    waiting += {*self.children[node]}
                else:
                    said &= ~np.isnan(weights)
            sure |= said
        return bool(sure.all())


def _below(threshold: np.float32) -> np.float32:
    """Return the next smaller number; NaN, which nothing is at most, where there is none."""
    if threshold == -np.inf:
        return np.float32(np.nan)
    limits = np.finfo(np.float32)
    if threshold == limits.min:
        return np.float32(-np.inf)
    # Some kernels take the numbers next to 0 for 0.
    is_tiny = abs(threshold) <= limits.tiny
    return threshold - limits.tiny if is_tiny else np.nextafter(threshold, np.float32(-np.inf))


def write_trees(body: DefinitionBody, trees: Trees) -> str:
    """Add the nodes that give the leaf of each row and tree, `n t`."""
    depth, count = trees.depth(), None if body.shape is None else body.shape[-1]
    if body.rank not in (1, 2) or not isinstance(count, int) or not trees.roots:
        raise Undefined
    if body.imports.get("", FIRST) < FIRST or not 0 <= min(trees.features) <= max(trees.features) < count:
        raise Undefined
    x = body.rows()
    children = np.array(trees.children, np.int32)
    features, thresholds = np.array(trees.features, np.int32), np.array(trees.thresholds, np.float32)
    tables: list[NDArray[Any]] = [features, thresholds, children[:, 0], children[:, 1]]
    missing = np.array(trees.missing)
    if missing.any():
        tables.append(missing)
    constants = [body.const(table if place else table[:, None]) for place, table in enumerate(tables)]
    roots = np.array([trees.roots], np.int64)
    node = ""
    for level in range(max(depth, 1)):
        if level:
            of_nodes, *facts = (body.add("Gather", table, node) for table in constants)
            numbers = body.add("GatherND", x, of_nodes, batch_dims=1)
        else:  # the roots are known
            facts = [body.const(table[roots]) for table in tables[1:]]
            numbers = body.add("Gather", x, body.const(tables[0][roots[0]]), axis=1)
        holds = body.add(trees.comparison, numbers, facts[0])  # of a missing number it does not
        if missing.any():
            holds = body.add("Or", holds, body.add("And", body.add("IsNaN", numbers), facts[3]))
        node = body.add("Where", holds, facts[1], facts[2])
    return node


def aggregated(
    body: DefinitionBody,  # the nodes of a definition
    trees: Trees,
    aggregate: str,  # of `AGGREGATES`
) -> str:
    """Add the nodes that aggregate what leaves say, `n k`, unless a leaf says nothing of a target, and all must."""
    leaf = write_trees(body, trees)
    if aggregate in ("MIN", "MAX") and not trees.is_complete:
        raise Undefined
    result = _over_trees(body, trees.table(), leaf, REDUCTIONS.get(aggregate, "ReduceSum"))
    return body.add("Div", result, body.single(len(trees.roots))) if aggregate == "AVERAGE" else result


def _over_trees(body: DefinitionBody, table: NDArray[np.float32], leaf: str, reduction: str) -> str:
    """Add a reduction of rows of a table over all trees."""
    count = table.shape[1]
    rows = body.add("Gather", body.const(table[:, 0] if count == 1 else table), leaf)
    reduced = body.reduce(reduction, rows, 1)
    return reduced if count == 1 else body.reshape(reduced, -1, count)


def transformed(body: DefinitionBody, scores: str, transform: str, count: int = 2) -> str:
    """Add what a post_transform makes of scores, `n k`; of one score few are known."""
    if transform == "NONE":
        return scores
    if transform == "PROBIT":
        return _probit(body, scores)
    if count == 1:  # kernels leave it as it is
        raise Undefined
    if transform == "LOGISTIC":
        return body.add("Sigmoid", scores)
    return body.add("Softmax", scores, axis=1) if transform == "SOFTMAX" else _softmax_of_others(body, scores)


def _probit(body: DefinitionBody, scores: str) -> str:
    """Add the quantile of the normal distribution by the approximation that kernels have: `a = 0.147`.

    x = 2 score - 1; l = log((1 - x) (1 + x)); v = 2 / (pi a) + l / 2; sqrt(2) sign(x) sqrt(sqrt(v² - l / a) - v)
    """
    one, half = body.single(1), body.single(0.5)
    x = body.add("Sub", body.add("Mul", scores, body.single(2)), one)
    log = body.add("Log", body.add("Mul", body.add("Sub", one, x), body.add("Add", one, x)))
    v = body.add("Add", body.add("Mul", log, half), body.single(2 / (3.14159 * 0.147)))
    square = body.add("Sub", body.add("Mul", v, v), body.add("Mul", log, body.single(1 / 0.147)))
    size = body.add("Sqrt", body.add("Sub", body.add("Sqrt", square), v))
    is_below = body.add("Less", x, body.single(0))
    return body.add("Mul", body.add("Where", is_below, body.single(-np.sqrt(2)), body.single(np.sqrt(2))), size)


def _softmax_of_others(body: DefinitionBody, scores: str) -> str:
    """Add a softmax in which a score of nearly 0 counts nothing, and stays so small."""
    best = body.reduce("ReduceMax", scores, 1)
    is_other = body.add("Greater", body.add("Abs", scores), body.single(1e-7))
    powers = body.add("Exp", body.add("Sub", scores, best))
    total = body.reduce("ReduceSum", body.add("Where", is_other, powers, body.single(0)), 1)
    small = body.add("Mul", scores, body.add("Exp", body.add("Neg", best)))
    return body.add("Div", body.add("Where", is_other, powers, small), total)


def numbers_of(body: DefinitionBody, name: str) -> NDArray[np.float32]:
    """Return an attribute that is a list of numbers, or a tensor of another name."""
    tensor = body.node.attributes.get_tensor(f"{name}_as_tensor", None)
    return body.floats(name) if tensor is None else tensor.numpy().astype(np.float32).reshape(-1)


def _said(body: DefinitionBody, kind: str, targets: int, first: int) -> dict[tuple[int, int], NDArray[np.float32]]:
    """Return tree and node of leaves -> their weights, for each target; NaN where they say nothing of one."""
    places, ids, of_trees = (body.integers(f"{kind}_{name}") for name in ("nodeids", "ids", "treeids"))
    weights = numbers_of(body, f"{kind}_weights")
    if not len(places) == len(ids) == len(of_trees) == weights.size or targets < 1:
        raise Undefined
    said: dict[tuple[int, int], NDArray[np.float32]] = {}
    for tree, place, target, weight in zip(of_trees, places, ids, weights, strict=True):
        row = said.setdefault((tree, place), np.full(targets, np.nan, np.float32))
        if not 0 <= target - first < targets or not np.isnan(row[target - first]):  # kernels add some of them up
            raise Undefined
        row[target - first] = weight
    return said


def trees_of(
    body: DefinitionBody,  # of a TreeEnsembleClassifier or a TreeEnsembleRegressor
    kind: str,  # `class` or `target`: what names of attributes begin with
    targets: int,  # how many of them there are
    first: int = 0,  # the first of them
) -> Trees:
    """Return the trees that attributes list."""
    ints, modes = body.integers, body.node.attributes.get_strings("nodes_modes", [])
    names, values = (
        ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids"),
        numbers_of(body, "nodes_values"),
    )
    of_nodes, nodes, features, if_true, if_false = (ints(f"nodes_{name}") for name in names)
    tracks = ints("nodes_missing_value_tracks_true") or [0] * len(nodes)
    lists: Sequence[Any] = (of_nodes, modes, features, if_true, if_false, tracks, values)
    keys = list(zip(of_nodes, nodes, strict=False))
    if {len(each) for each in lists} != {len(nodes)} or len({*keys}) < len(nodes) or not nodes:
        raise Undefined
    said, trees = _said(body, kind, targets, first), Trees(targets, modes)
    numbers: dict[tuple[int, int], int] = {}
    slots: dict[tuple[int, int], list[Any]] = {}
    for key, mode, feature, value, track in zip(keys, modes, features, values, tracks, strict=True):
        if mode == LEAF:
            numbers[key] = trees.leaf(said.get(key, np.full(targets, np.nan, np.float32)))
        elif mode in MODES[:-1]:
            numbers[key], slots[key] = trees.branch(mode, feature, value, tracks_true=bool(track))
        else:
            raise Undefined
    inner: set[tuple[int, int]] = set()
    for key, *children in zip(keys, if_true, if_false, strict=True):
        if key in slots:
            pair = [(key[0], child) for child in children]
            if not all(each in numbers for each in pair):
                raise Undefined
            inner.update(pair)
            trees.connect(slots[key], *(numbers[each] for each in pair))
    roots = list({key[0]: key for key in reversed(keys)}.values())[::-1]  # the first node of each tree
    if not inner.isdisjoint(roots):
        raise Undefined
    trees.roots = [numbers[key] for key in roots]
    return trees


def regressor(body: DefinitionBody) -> None:
    """GatherND, comparisons and Where for each level of the trees; ReduceSum of what the leaves say."""
    targets, base = body.integer("n_targets", 1), numbers_of(body, "base_values")
    aggregate = body.text("aggregate_function", "SUM")
    trees = trees_of(body, "target", targets)
    if aggregate not in AGGREGATES or base.size not in (0, targets) or body.kind not in TO_FLOAT:
        raise Undefined
    scores = aggregated(body, trees, aggregate)
    if base.any():
        if targets > 1 and not trees.is_of_all_targets:  # kernels add it to what leaves say alone
            raise Undefined
        scores = body.add("Add", scores, body.const(base))
    body.give(transformed(body, scores, body.text("post_transform", "NONE"), targets))


def classifier(body: DefinitionBody) -> None:
    """GatherND, comparisons and Where for each level of the trees; ReduceSum, ArgMax, Sigmoid or Softmax."""
    labels, base, ids = (
        body.labels("classlabels_int64s"),
        numbers_of(body, "base_values"),
        {*body.integers("class_ids")},
    )
    transform = body.text("post_transform", "NONE")
    if labels.size < 2 or body.kind not in TO_FLOAT or transform not in TRANSFORMS[: 3 if labels.size == 2 else None]:
        raise Undefined
    if labels.size == 2:  # of scores of both kernels choose by the second alone, and give no label: none is written
        if len(ids) != 1:
            raise Undefined
        _of_one_score(body, labels, base, ids.pop(), transform)
        return
    trees = trees_of(body, "class", labels.size)
    if base.size not in (0, labels.size):
        raise Undefined
    leaf = write_trees(body, trees)
    scores = candidates = _over_trees(body, trees.table(), leaf, "ReduceSum")
    if base.size:
        scores = candidates = body.add("Add", scores, body.const(base))
    elif not trees.is_of_all_targets:  # a class of which no leaf says anything is not chosen
        counts = _over_trees(body, trees.table(counts=True), leaf, "ReduceMax")
        is_said = body.add("Greater", counts, body.single(0))
        candidates = body.add("Where", is_said, scores, body.const(np.array(np.finfo(np.float32).min)))
    best = body.add("ArgMax", candidates, axis=1, keepdims=0)
    body.give(body.add("Gather", body.const(labels), best))
    body.give(transformed(body, scores, transform), 1)


def _of_one_score(
    body: DefinitionBody, labels: NDArray[Any], base: NDArray[np.float32], target: int, transform: str
) -> None:
    """Write a classifier of two labels whose leaves say something of one: kernels make up the other score.

    1. The second label is chosen from above 0.5 on where no weight is negative, else from above 0 on.
    2. A score of the first label counts as the second's. The first's is 1 less it, or its negation; a LOGISTIC makes
       probabilities of it and its negation, and a SOFTMAX nothing.
    3. Of the second label, the first's score is 0; a base value is not known to count then.
    """
    trees = trees_of(body, "class", 1, target)
    if base.size > (target == 0):
        raise Undefined
    score = _over_trees(body, trees.table(), write_trees(body, trees), "ReduceSum")
    if base.any():
        score = body.add("Add", score, body.const(base))
    is_probability = bool(np.all(numbers_of(body, "class_weights") >= 0))
    is_second = body.add("Greater", score, body.single(0.5 if is_probability else 0))
    place = body.reshape(body.add("Cast", is_second, to=onnx.TensorProto.INT64), -1)
    body.give(body.add("Gather", body.const(labels), place))
    if target:
        other = body.add("Mul", score, body.single(0))
    elif transform == "LOGISTIC" or not is_probability:
        other = body.add("Neg", score)
    else:
        other = body.add("Sub", body.single(1), score)
    both = body.add("Concat", other, score, axis=1)
    body.give(both if transform == "SOFTMAX" and not target else transformed(body, both, transform), 1)


def _are_places(numbers: Sequence[int], count: int) -> bool:
    return all(0 <= number < count for number in numbers)


def _children(body: DefinitionBody, nodes: int, leaves: int) -> list[list[tuple[int, int]]]:
    """Return where a comparison holds, and where not: for each node a place, and whether it is a leaf's."""
    sides = []
    for side in ("true", "false"):
        places, kinds = (body.integers(f"nodes_{side}{name}") for name in ("nodeids", "leafs"))
        if not len(places) == len(kinds) == nodes:
            raise Undefined
        sides.append(list(zip(places, kinds, strict=True)))
    if not all(0 <= place < (leaves if is_leaf else nodes) for place, is_leaf in chain(*sides)):
        raise Undefined
    return sides


def _ensemble_trees(body: DefinitionBody, targets: int) -> Trees:
    """Return the trees of a TreeEnsemble, whose attributes list nodes and leaves."""
    ints, tensor = body.integers, body.node.attributes.get_tensor
    splits, modes, weights = (tensor(name, None) for name in ("nodes_splits", "nodes_modes", "leaf_weights"))
    if splits is None or modes is None or weights is None:
        raise Undefined
    features, leaf_targets, roots = (ints(name) for name in ("nodes_featureids", "leaf_targetids", "tree_roots"))
    tracks = ints("nodes_missing_value_tracks_true") or [0] * len(features)
    children = _children(body, len(features), len(leaf_targets))
    leaf_weights, numbers = weights.numpy().astype(np.float32), modes.numpy().tolist()
    fits = (
        len(splits.numpy()) == len(numbers) == len(tracks) == len(features),
        leaf_weights.shape == (len(leaf_targets),),
        *(_are_places(*each) for each in ((leaf_targets, targets), (roots, len(features)), (numbers, len(MODES)))),
    )
    if not all(fits):
        raise Undefined
    members = _members(numbers, splits.numpy(), tensor("membership_values", None))
    trees = Trees(targets, [MODES[number] for number in numbers])
    rows = np.full((len(leaf_targets), targets), np.nan, np.float32)
    rows[np.arange(len(rows)), leaf_targets] = leaf_weights
    leaves = list(map(trees.leaf, rows))
    branches = [
        trees.membership(feature, listed, tracks_true=bool(track))
        if MODES[number] == MEMBER
        else trees.branch(MODES[number], feature, listed[0], tracks_true=bool(track))
        for number, feature, listed, track in zip(numbers, features, members, tracks, strict=True)
    ]
    firsts = [first for first, _ in branches]
    sides = [[(leaves if is_leaf else firsts)[place] for place, is_leaf in side] for side in children]
    for (_, slots), if_true, if_false in zip(branches, *sides, strict=True):
        trees.connect(slots, if_true, if_false)
    trees.roots = [firsts[root] for root in roots]
    return trees


def _members(modes: Sequence[int], splits: NDArray[Any], sets: ir.TensorProtocol | None) -> list[list[np.float32]]:
    """Return the numbers that each node compares with, unless one has no set. A NaN ends each set."""
    numbers = np.zeros(0, np.float32) if sets is None else sets.numpy().astype(np.float32)
    listed = iter(each[~np.isnan(each)] for each in np.split(numbers, np.flatnonzero(np.isnan(numbers))))
    result = [
        list(next(listed, ())) if MODES[mode] == MEMBER else [np.float32(split)]
        for mode, split in zip(modes, splits, strict=True)
    ]
    if not all(result):
        raise Undefined
    return result


def ensemble(body: DefinitionBody) -> None:
    """GatherND, comparisons and Where for each level of the trees; what the leaves say, added up."""
    targets, aggregate, transform = (
        body.integer(name, default)
        for name, default in (("n_targets", 1), ("aggregate_function", 1), ("post_transform", 0))
    )
    is_known = 0 <= aggregate < len(AGGREGATES) and 0 <= transform < len(TRANSFORMS)
    if not is_known or body.kind not in TO_FLOAT:
        raise Undefined
    scores = aggregated(body, _ensemble_trees(body, targets), AGGREGATES[aggregate])
    body.give(transformed(body, scores, TRANSFORMS[transform], targets))


DEFINITIONS: Mapping[str, Any] = {  # operator of ai.onnx.ml -> what adds the nodes that compute it
    "TreeEnsemble": ensemble,
    "TreeEnsembleClassifier": classifier,
    "TreeEnsembleRegressor": regressor,
}
