"""Taking topics back, with what is layered on them: leases, routers, named cursors."""

from __future__ import annotations

from topics.flow.cursors import Cursors
from topics.flow.routers.registry import Routers
from topics.keep import rewind as rewinding
from topics.log.engine import Engine
from topics.log.topic import Topic


def truncate(engine: Engine, routers: Routers, topic: Topic, head: int) -> None:
    """Forget everything above `head`: a lease or a router must not refer to what is written there next."""
    rewinding.truncate(engine, topic, head)
    if topic.config.is_queue:
        table = topic.extension.table
        table.forget({seq for seq in table.known() if seq > head})
    for router in routers.table.from_source(topic):
        router.cursor = router.sent = min(router.cursor, head)
    for router in routers.table.into(topic):
        router.keys_scanned = min(router.keys_scanned, head)


def begin_new_epochs(engine: Engine, routers: Routers, cursors: Cursors, offset: int) -> None:
    """Named cursors stay, and still say for which epoch they were set."""
    rewinding.begin_new_epochs(engine, offset)
    cursors.renumber(offset)
    # Steps in the journal refer to the old ids, and the journal ends here.
    routers.referred = {}
