"""Graph -> problem -> plan: roots and views, candidate orders, what each order costs."""

from relayout.infer.allowed_orders import identity, repaired
from relayout.infer.build import ASKED, build
from relayout.infer.candidates import placement
from relayout.infer.formulation import Formulation, formulate, size_of
from relayout.infer.graph_sites import Sites
from relayout.infer.open_extents import nearest_order, orders_before
from relayout.infer.plans import Crossing, Plan, plan
from relayout.infer.sites import Form, Label, Order, Port, Root, Site, View, order_of
from relayout.infer.stored_orders import orders, placed
from relayout.infer.strided_copies import is_scattered

__all__ = [
    "ASKED",
    "Crossing",
    "Form",
    "Formulation",
    "Label",
    "Order",
    "Plan",
    "Port",
    "Root",
    "Site",
    "Sites",
    "View",
    "build",
    "formulate",
    "identity",
    "is_scattered",
    "nearest_order",
    "order_of",
    "orders",
    "orders_before",
    "placed",
    "placement",
    "plan",
    "repaired",
    "size_of",
]
