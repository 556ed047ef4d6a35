"""One page for all watchers at a place, also for those that each leave out what they wrote themselves.

    page ─▶ what everybody is told ─┬─▶ a watcher that wrote nothing of it: the same bytes
                                    └─▶ a watcher that did: the page without its lines

Whose a record is, its row says. So the page is read once, and one for whom nothing is left out costs no more
than any other watcher.
"""

from dataclasses import replace

from topics.flow.watch.subscription import Delivery, Place, delivery_of, next_page
from topics.log import Engine, Topic
from topics.storage import node_of


class CommonDelivery:
    """Only for one turn of the loop: in the next one the topic may have moved."""

    __slots__ = ("_lines", "_page", "_place", "_topic", "_upto", "_without", "_written_by", "delivery")

    def __init__(self, engine: Engine, topic: Topic, place: Place, upto: int | None) -> None:
        """Nothing beyond `upto` is told."""
        self._topic = topic
        self._place = place
        self._upto = upto
        self._page = next_page(engine, topic, place, upto)
        self.delivery = delivery_of(topic, place, self._page, upto)
        self._lines: list[bytes] = []
        # The lines of each node; None until somebody asks.
        self._written_by: dict[str, list[int]] | None = None
        self._without: dict[frozenset[str], Delivery] = {}

    @property
    def is_whole(self) -> bool:
        """It goes to the end. A page that was cut short would be longer for one that leaves something out."""
        return not self.delivery.more

    def without(self, nodes: frozenset[str]) -> Delivery:
        """What one is told that does not want the records of these nodes."""
        written_by = self._written_by
        if written_by is None:
            written_by = self._written_by = self._sort_by_node()
        if nodes.isdisjoint(written_by):
            return self.delivery
        own = nodes.intersection(written_by)
        found = self._without.get(own)
        if found is None:
            left_out = {line for node in own for line in written_by[node]}
            found = self._without[own] = self._leave_out(left_out)
        return found

    def _sort_by_node(self) -> dict[str, list[int]]:
        written_by: dict[str, list[int]] = {}
        if self._page.count:
            self._lines = self._page.rows[:-1].split(b"\n")
            for at, line in enumerate(self._lines):
                node = node_of(line)
                if node is not None:
                    written_by.setdefault(node, []).append(at)
        return written_by

    def _leave_out(self, left_out: set[int]) -> Delivery:
        lines = [line for at, line in enumerate(self._lines) if at not in left_out]
        lines.append(b"")
        page = replace(self._page, rows=b"\n".join(lines), count=len(lines) - 1)
        return delivery_of(self._topic, self._place, page, self._upto)
