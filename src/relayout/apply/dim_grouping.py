"""The dimensions in which each operand is stored once its order is chosen: those that need no Reshape on the way."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from relayout.apply.transposing import transposed
from relayout.infer.allowed_orders import repaired
from relayout.infer.graph_sites import Sites
from relayout.infer.plans import Plan
from relayout.infer.sites import Form, Label, Port, Root, Site, order_of
from relayout.infer.stored_orders import orders, placed
from relayout.rules import is_reshaped
from relayout.rules.signature import unchanged

# The fewest Reshapes around one site: what stands beside its operands, and forms of equal orders.

Token = tuple[int, int]
"""One factor of a site as its operands hold it: (factor of the site, which of the leaves that it has there)."""


class Neighbours(NamedTuple):
    """The neighbours of an operand: the form in which an input is given, or the forms that readers of an output want.

    A constant is given in none: it is re-laid for nothing.
    """

    producer_form: Form | None = None
    reader_forms: frozenset[Form] = frozenset()

    def reshapes(self, form: Form) -> int:
        """Count the Reshapes beside an operand in `form`."""
        if self.producer_form is not None:
            return reshapes_between(self.producer_form, form)
        return sum([reshapes_between(form, other) for other in self.reader_forms])


def reshapes_between(form: Form, other: Form) -> int:
    """Count the Reshapes that bring a value from one form into another, beside a Transpose where the orders differ.

    An estimate where extents are dynamic: then dimensions that a Transpose would join stay apart.
    """
    if form == other:
        return 0
    if order_of(form) == order_of(other):
        return 1
    before, after = transposed(form, other)
    return (before != form) + (after != other)


def reshapes_beside(beside: Sequence[Neighbours], forms: Sequence[Form]) -> int:
    """Count the Reshapes beside all operands of a site."""
    return sum(each.reshapes(form) for each, form in zip(beside, forms, strict=True))


def fewest_of(site: Site, free: Sequence[Port], now: Sequence[Form], beside: Sequence[Neighbours]) -> Sequence[Form]:
    """Return the forms of a site's operands with the fewest Reshapes around it; `now` where none has fewer."""
    return site.pattern.of(_fewest, (now, beside), free, now, beside, site.signature.unidirectional)


def _fewest(
    free: Sequence[Port], now: Sequence[Form], beside: Sequence[Neighbours], unidirectional: bool
) -> Sequence[Form]:
    """The forms of a site's operands with the fewest Reshapes around it: those of an operand as it is given, or as its
    readers want it, or `now`.
    """
    tokens = [_tokens(port) for port in free]
    full = max(map(len, tokens), default=0)
    read = [place for place, port in enumerate(free) if not port.output]
    best, least = None, reshapes_beside(beside, now)
    for dims in _offered(tokens, now, beside):
        dealt = [_dealt(other, dims) for other in tokens]
        whole = [each for each in dealt if each is not None]
        if len(whole) < len(free) or [*map(order_of, whole)] != [*map(order_of, now)]:
            continue
        # Of one that is stretched dimensions may be missing in front; the result has as many as the longest operand.
        forms = [
            form[ones_in_front(form) * (len(axis_tokens) < full) :]
            for form, axis_tokens in zip(whole, tokens, strict=True)
        ]
        if read and all(len(forms[place]) < len(dims) for place in read):
            longest = read[0] if unidirectional else min(read, key=lambda at: beside[at].reshapes(whole[at]))
            forms[longest] = whole[longest]
        needed = reshapes_beside(beside, forms)
        if needed < least or (needed == least and best is None):  # what follows may follow, too
            best, least = forms, needed
    return now if best is None else tuple(best)


def _offered(
    tokens: Sequence[Mapping[int, Token]], now: Sequence[Form], beside: Sequence[Neighbours]
) -> dict[tuple[tuple[Token, ...], ...], None]:
    """The dimensions in which operands are given or wanted, each once: of a thousand operands nearly all are alike.

    Operands with the most tokens count; their orders stay.
    """
    full = max(map(len, tokens), default=0)
    dimensions: dict[tuple[tuple[Token, ...], ...], None] = {}
    for each, axis_tokens, order in zip(beside, tokens, map(order_of, now), strict=True):
        for form in (*sorted(each.reader_forms), *(() if each.producer_form is None else (each.producer_form,))):
            if len(axis_tokens) == full and order_of(form) == order:
                dimensions[tuple(tuple(axis_tokens[leaf] for leaf in dim) for dim in form)] = None
    return dimensions


def _tokens(port: Port) -> dict[int, Token]:
    """Leaf of the port's root -> the site's token."""
    return {leaf: (factor, k) for factor, leaves in port.factors.items() for k, leaf in enumerate(leaves)}


def _dealt(tokens: Mapping[int, Token], dims: Sequence[Sequence[Token]]) -> Form | None:
    """Return an operand's form under the dimensions `dims`; None where it holds a part of one of them only."""
    leaves = {token: leaf for leaf, token in tokens.items()}
    form = []
    for dim in dims:
        present = tuple(leaves[token] for token in dim if token in leaves)
        if present and len(present) != len(dim):
            return None
        form.append(present)
    return tuple(form)


def ones_in_front(form: Form) -> int:
    """Count the axes of one element before all others."""
    return next((place for place, dim in enumerate(form) if dim), len(form))


Forms = dict[Port, Form]


def forms(plan: Plan) -> tuple[Forms, dict[Site, Label]]:
    """The form of every operand of a plan, and the labels that say so: the plan's, but for where size-1 axes lie.

    An operator that counts no axes takes the dimensions in which its operands come, or those in which what it gives is
    read, and one that belongs to its reader those that the reader wants. Size-1 axes of any other lie where its
    operands, or those who read it, have them. What quantizes a result has the dimensions in which that is made.
    """
    choice = _Choice(plan)
    if choice.uneven:
        choice.follow_producers()
        choice.go_back()
        _follow_producers(plan.sites.sites, choice.chosen)
        _follow_readers(plan.sites.sites, choice.chosen)
        _stay_as_made(plan.sites, choice.chosen)
    return choice.chosen, choice.labels


class _Choice:
    """The forms, site by site. Where every dimension is one factor, an order has one form, and there is no choice.

    Attributes:
        chosen: the form of every operand.
        labels: the label of every site.
        uneven: the computed roots that some operand has in a form with dimensions of no factor, or of several.
    """

    def __init__(self, plan: Plan) -> None:
        self.sites = plan.sites.sites
        self.labels = dict(zip(self.sites, plan.labels, strict=True))
        self.chosen: Forms = {}
        self.uneven: set[Root] = set()
        for site, label in self.labels.items():
            site_forms = site.pattern.of(_forms, label, site, label)
            self.chosen.update(zip(site.ports, site_forms.forms, strict=True))
            if site_forms.uneven:
                self._note([site.ports[position] for position in site_forms.uneven])
        if not self.uneven:
            return
        self.free = set[Site]()  # they count no axes
        for site in self.sites:
            signature = site.signature
            fixed = signature.variants or signature.tail or site.whole or signature.block
            if site.kind == "node" and not fixed and signature.changes is unchanged:
                self.free.update([site] if any(port.output for port in site.free_ports()) else [])
        wanting = (site for site in self.sites if site not in self.free)
        self.readers = _by_root(port for site in wanting for port in site.ports if not port.output)
        self.producer_forms: dict[Root, Form] = {}
        self.own: dict[Site, Sequence[Form]] = {}

    def _note(self, uneven: Iterable[Port]) -> None:
        self.uneven.update([port.view.root for port in uneven if not port.view.root.constant])

    def follow_producers(self) -> None:
        """Choose site by site, in the order of the graph."""
        for site in self.sites:
            if not self.uneven.isdisjoint([port.view.root for port in site.ports]):
                if site in self.free:
                    self._take(site)
                elif ones := site.pattern.of(_ones, None, site):
                    self._move(site, ones)
            for port in site.ports:
                if port.output:
                    self.producer_forms[port.view.root] = self.chosen[port]

    def go_back(self) -> None:
        """Choose again from the end: store operands in the source's dimensions where others won nothing, so that a
        Reshape stands where it did; else as all who read them want them, where that saves Reshapes.
        """
        readers = _by_root(port for site in self.sites for port in site.ports if not port.output)
        for site in reversed(self.sites):
            if site not in self.free or self.uneven.isdisjoint([port.view.root for port in site.ports]):
                continue
            free = site.free_ports()
            beside, now = self._beside(free, readers), tuple(self.chosen[port] for port in free)
            own = self.own.get(site)
            if own is None or reshapes_beside(beside, own) > reshapes_beside(beside, now):
                fewest = fewest_of(site, free, now, beside)
                own = fewest if reshapes_beside(beside, fewest) < reshapes_beside(beside, now) else now
            if own != now:
                self.chosen.update(zip(free, own, strict=True))
                self.producer_forms.update((port.view.root, self.chosen[port]) for port in free if port.output)
            if site.signature.broadcast:
                self._fill_out(free, readers, unidirectional=site.signature.unidirectional)

    def _fill_out(self, free: Sequence[Port], readers: Mapping[Root, Sequence[Port]], *, unidirectional: bool) -> None:
        """Give a single element more dimensions than others have size-1 axes behind all else, where the source has them
        elsewhere: one of no more dimensions is stretched element by element. Else it may have any number.

        Where the source has them so, too, there may be a fusion for what is computed, such as LayerNormalization, which
        wants a scalar.
        """
        ones = max(map(self._ones_behind, free), default=0)
        most = max(len(self.chosen[port]) for port in free)
        for port in free:
            root, form = port.view.root, self.chosen[port]
            if port.output or any(form):
                continue
            fixed = root.constant or (not root.runs and len(readers[root]) == 1)
            producer_form = self.producer_forms.get(root)
            if fixed and ones and len(form) <= ones:
                self.chosen[port] = ((),) * (ones + 1)
                self._note([port])
            elif producer_form is not None:
                others = [len(self.chosen[other]) for other in free if not (other is port or other.output)]
                longest = (
                    len(producer_form) if unidirectional and port is free[0] else max([len(producer_form), *others])
                )
                if longest == most:  # the result has as many dimensions as the longest operand
                    self.chosen[port] = producer_form

    def _ones_behind(self, port: Port) -> int:
        """Count the size-1 axes that stand behind all others of an operand, where the source has them elsewhere."""
        form = self.chosen[port]
        return ones_in_front(form[::-1]) if form != port.view.form and any(form) else 0

    def _beside(self, ports: Sequence[Port], readers: Mapping[Root, Sequence[Port]]) -> tuple[Neighbours, ...]:
        neighbours = []
        for port in ports:
            root = port.view.root
            if port.output:
                reader_forms = frozenset([self.chosen[reader] for reader in readers.get(root, ())])
                neighbours.append(Neighbours(reader_forms=reader_forms))
            else:
                neighbours.append(Neighbours(None if root.constant else self.producer_forms.get(root)))
        return tuple(neighbours)

    def _take(self, site: Site) -> None:
        """Store every operand of a site in the dimensions that need the fewest Reshapes around it."""
        free = site.free_ports()
        now, beside = tuple([self.chosen[port] for port in free]), self._beside(free, self.readers)
        fewest = fewest_of(site, free, now, beside)
        if fewest != now:
            self.own[site] = now
            self.chosen.update(zip(free, fewest, strict=True))
            self._note([port for port in free if not _is_even(self.chosen[port])])

    def _move(self, site: Site, ones: frozenset[int]) -> None:
        """Let a site's size-1 axes lie where fewer Reshapes are needed around it."""
        free, label = site.free_ports(), self.labels[site]
        beside = self._beside(free, self.readers)
        moved_label = site.pattern.of(_moved, (label, beside), site, label, ones, beside)
        if moved_label != label:
            self.labels[site] = moved_label
            self.chosen.update((port, placed(site, moved_label, port).form) for port in free)


class _Stored(NamedTuple):
    """The forms of a site's operands under a label, and which operands have dimensions of no factor or of several."""

    forms: tuple[Form, ...]
    uneven: tuple[int, ...]


def _forms(site: Site, label: Label) -> _Stored:
    forms = tuple([placed(site, label, port).form for port in site.ports])
    return _Stored(forms, tuple([position for position, form in enumerate(forms) if not _is_even(form)]))


def _is_even(form: Form) -> bool:
    """Tell whether every dimension is one factor."""
    return all(len(dim) == 1 for dim in form)


def _ones(site: Site) -> frozenset[int]:
    """Return the factors of a site that are size-1 axes of its operands and may lie anywhere."""
    signature = site.signature
    if site.kind != "node" or site.carried or signature.variants or signature.with_reader:
        return frozenset()
    bound_letters = {*signature.tail, *signature.head, *site.grain}
    several_elements = {factor for port in site.ports for factor, leaves in port.factors.items() if leaves}
    return frozenset(
        factor
        for factor, (letter, _) in enumerate(site.factors)
        if factor not in several_elements and letter not in bound_letters
    )


def _moved(site: Site, label: Label, ones: frozenset[int], beside: Sequence[Neighbours]) -> Label:
    """Return the label of equal orders with the fewest Reshapes around the site."""
    free = site.free_ports()

    def count(label: Label) -> int:
        pairs = zip(free, beside, strict=True)
        return sum(each.reshapes(placed(site, label, port).form) for port, each in pairs)

    best, least = label, count(label)
    alike: dict[Label, None] = {}
    for port, (producer_form, reader_forms) in zip(free, beside, strict=True) if least else ():
        for form in (*sorted(reader_forms), *([producer_form] if producer_form is not None else [])):
            if (other := _like(site, label, ones, port, form)) is not None:
                alike[other] = None
    for other in alike:
        if (needed := count(other)) < least:
            best, least = other, needed
    return best


def _like(site: Site, label: Label, ones: frozenset[int], port: Port, form: Form) -> Label | None:
    """Return the label with size-1 axes where `form` has them; None where it is not `form` for that operand."""
    rest = [factor for factor in label.order if factor not in ones]
    small = [factor for factor in label.order if factor in ones and site.factors[factor][0] in port.axes]
    order = [factor for factor in label.order if factor in ones and factor not in small]
    for dim in form:
        if not dim and small:
            order.append(small.pop(0))
        missing = len(dim)
        while missing > 0 and rest:
            order.append(rest.pop(0))
            missing -= len(port.factors.get(order[-1], ()))
    candidate = Label((*order, *rest, *small), label.variant)
    same = repaired(site, candidate.order) == candidate.order and orders(site, candidate) == orders(site, label)
    return candidate if same and placed(site, candidate, port).form == form else None


def _follow_producers(sites: Sequence[Site], chosen: Forms) -> None:
    """Let what belongs to its maker have its dimensions, as in the source, where that needs no more Reshapes.

    A Reshape between the two keeps a runtime from running both on integers.
    """
    producers = {
        port.view.root: port
        for site in sites
        if site.kind == "node" and not site.signature.with_reader
        for port in site.ports
        if port.output
    }
    readers = _by_root(port for site in sites for port in site.ports if not port.output)
    for site in sites:
        if not site.signature.with_producer:
            continue
        source, result = site.free_ports()
        producer = producers.get(source.view.root)
        if producer is None or producer.view.form != source.view.form:
            continue
        form = chosen[producer]
        if order_of(form) != order_of(chosen[source]):
            continue
        mirrored = _mirrored(form, source, result)
        reader_forms = {chosen[reader] for reader in readers.get(result.view.root, ())}
        now = len(reader_forms - {chosen[result]}) + (form != chosen[source])
        if mirrored is not None and len(reader_forms - {mirrored}) <= now:
            chosen[source], chosen[result] = form, mirrored


def _follow_readers(sites: Sequence[Site], chosen: Forms) -> None:
    """Let what belongs to its reader have its dimensions; a Reshape before what belongs to its maker is theirs.

    One that the source has behind it stays there, if no other place saves one.
    """
    following = [site for site in sites if site.signature.with_reader]
    if not following:
        return
    led = (site for site in sites if not site.signature.with_producer)
    readers = _by_root(port for site in led for port in site.ports if not port.output)
    there: dict[Root, Counter[Form]] = {}  # root -> how many operands have it in each form
    for site in sites:
        for port in site.ports:
            there.setdefault(port.view.root, Counter())[chosen[port]] += 1

    def before(source: Port, form: Form) -> int:
        """Count the Reshapes that bring what is dequantized into a form, from what is there without it."""
        if source.view.root.constant:
            return 0
        counts = there[source.view.root]
        others = [other for other, count in counts.items() if count > (other == chosen[source])]
        return min([reshapes_between(other, form) for other in others], default=0)

    for site in reversed(following):
        source, result = site.free_ports()
        behind = readers.get(result.view.root, [])
        reader_forms = {chosen[reader] for reader in behind}
        if len(reader_forms) == 1 and order_of(form := reader_forms.pop()) == order_of(chosen[result]):
            mirrored = _mirrored(form, result, source)
            if mirrored is None:
                continue
            always_reshaped = all(reader.view.form != result.view.form for reader in behind)
            if always_reshaped and before(source, chosen[source]) + (form != chosen[result]) <= before(
                source, mirrored
            ):
                continue
            for port, new_form in ((result, form), (source, mirrored)):
                counts = there[port.view.root]
                counts[chosen[port]] -= 1
                counts[new_form] += 1
                chosen[port] = new_form


def _stay_as_made(sites: Sites, chosen: Forms) -> None:
    """Let who reads a value that no runtime reshapes have it in the dimensions in which it is made, if all of them can.

    A Reshape stands behind what each makes of it; before what makes it, where all read it in other dimensions.
    """
    version = sites.graph.opset_imports.get("", 1)
    still = {root for root in sites.roots if not root.constant and not is_reshaped(root.value.dtype, version)}
    if not still:
        return
    ends: dict[Root, list[tuple[Site, Port]]] = {}
    for site in sites.sites:
        for port in site.free_ports():
            if port.view.root in still:
                ends.setdefault(port.view.root, []).append((site, port))
    for ends_of_root in ends.values():
        producers = [end for end in ends_of_root if end[1].output]
        read = [end for end in ends_of_root if not end[1].output]
        reader_forms = {chosen[port] for _, port in read}
        if (
            len(reader_forms) == 1
            and len(producers) == 1
            and _carry_over(*producers[0], next(iter(reader_forms)), chosen)
        ):
            continue
        for site, port in read if producers else ():
            _carry_over(site, port, chosen[producers[0][1]], chosen)


def _carry_over(site: Site, port: Port, form: Form, chosen: Forms) -> bool:
    """Give all operands of an operator that counts no axes the dimensions of one of them; whether it can have them."""
    if form == chosen[port]:
        return True
    free = site.free_ports()
    new_forms = [_mirrored(form, port, other) for other in free]
    must_stay = (
        site.kind != "node" or site.signature.changes is not unchanged or order_of(form) != order_of(chosen[port])
    )
    if must_stay or any(
        new_form is None or order_of(new_form) != order_of(chosen[o])
        for new_form, o in zip(new_forms, free, strict=True)
    ):
        return False
    chosen.update((other, new_form) for other, new_form in zip(free, new_forms, strict=True) if new_form is not None)
    return True


def _mirrored(form: Form, port: Port, other: Port) -> Form | None:
    """Return the same dimensions of another operand, whose factors of an axis may be others; None where one would be
    cut.

    None, too, where only one of the two has a factor: a file may state an extent of 1 for what its operator gives
    another.
    """
    here, there = ({factor for factor, leaves in each.factors.items() if leaves} for each in (port, other))
    if here != there:
        return None
    owner = {leaf: factor for factor, leaves in port.factors.items() for leaf in leaves}
    dims = []
    for dim in form:
        factors = list(dict.fromkeys(owner[leaf] for leaf in dim))
        if tuple(leaf for factor in factors for leaf in port.factors[factor]) != dim:
            return None
        dims.append(tuple(leaf for factor in factors for leaf in other.factors[factor]))
    return tuple(dims)


def _by_root(ports: Iterable[Port]) -> dict[Root, list[Port]]:
    """Root -> the operands that are views of it."""
    ports_by_root: dict[Root, list[Port]] = {}
    for port in ports:
        ports_by_root.setdefault(port.view.root, []).append(port)
    return ports_by_root
