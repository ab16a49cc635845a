"""Graph -> problem -> plan: roots and views, candidate orders, what each order costs."""

from relayout.infer.build import Sites, build
from relayout.infer.candidates import Label, identity, placed
from relayout.infer.planning import Crossing, Plan, plan, size_of
from relayout.infer.sites import Form, Order, Port, Root, Site, View, order_of

__all__ = [
    "Crossing",
    "Form",
    "Label",
    "Order",
    "Plan",
    "Port",
    "Root",
    "Site",
    "Sites",
    "View",
    "build",
    "identity",
    "order_of",
    "placed",
    "plan",
    "size_of",
]
