"""A factor or a constant that spans some axes, from `a.axis` on; or that has one element, for all axes."""

from __future__ import annotations


def over(f, x, a):
    """f in a shape that broadcasts over x."""
    return f.reshape((1,) * a.axis + f.shape + (1,) * (x.ndim - a.axis - f.ndim))


def multiply(a, reads, writes):
    """y = x f (+ b)."""
    (x, f, *b), (y,) = reads, writes
    y[...] = x * over(f, x, a)
    if b:
        y += over(b[0], x, a)


def add(a, reads, writes):
    """y = x + b."""
    (x, b), (y,) = reads, writes
    y[...] = x + over(b, x, a)


def total(a, reads, writes):
    """db = the sum of dy over all axes that b does not span."""
    (dy,), (db,) = reads, writes
    along = tuple(k for k, n in enumerate(over(db, dy, a).shape) if n == 1)
    db[...] = dy.sum(along).reshape(db.shape)


def total_of_products(a, reads, writes):
    """df = the sum of x dy over all axes that f does not span."""
    x, dy = reads
    total(a, [x * dy], writes)


KINDS = {
    "broadcast.multiply": multiply,
    "broadcast.add": add,
    "broadcast.sum": total,
    "broadcast.sum_products": total_of_products,
}
