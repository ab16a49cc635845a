"""Graph -> problem -> plan: roots and views, candidate orders, what each order costs."""
