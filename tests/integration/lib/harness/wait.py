# SPDX-License-Identifier: MIT
"""Waiting for conditions, the only waiting that tests do."""
import select
import time


def wait_until(condition, what, limit=60.0, every=0.05):
    """Call condition() until it returns something true, and return that.

    Raises AssertionError naming `what` after `limit` seconds. An exception from condition() is
    passed on at once: a condition that may legitimately raise catches that itself.
    """
    deadline = time.monotonic() + limit
    while True:
        value = condition()
        if value:
            return value
        left = deadline - time.monotonic()
        if left <= 0:
            raise AssertionError(f"waited {limit:g} s in vain: {what}")
        select.select([], [], [], min(every, left))
