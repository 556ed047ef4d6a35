"""The bulk plane: for readers and writers that move columns instead of records.

What it is made of is put together here, because nobody else uses it. Nothing in it imports pyarrow before the
first request that needs it.
"""

from __future__ import annotations

from topics.flow.cursors import Cursors
from topics.flow.pins import Pins
from topics.flow.stages.stages import Stages
from topics.http.routes.arrow_append import BulkAppendRoutes
from topics.http.routes.cursors import CursorRoutes
from topics.http.routes.scan import ScanRoutes
from topics.http.routes.segments import SegmentRoutes
from topics.http.routes.service import Service
from topics.http.routes.stages import StageRoutes
from topics.http.wire.routing import Route


class BulkPlane:
    def __init__(self, service: Service) -> None:
        """Before recovery: cursors and stages have frames of their own in the journal."""
        self._service = service
        self.cursors = Cursors(service.engine)
        self.pins = Pins(service.engine)
        self.stages = Stages(service.engine)
        service.engine.extensions += [self.cursors, self.stages]

    def routes(self) -> list[Route]:
        return [
            *ScanRoutes(self._service).routes(),
            *BulkAppendRoutes(self._service).routes(),
            *SegmentRoutes(self._service, self.pins).routes(),
            *CursorRoutes(self._service, self.cursors).routes(),
            *StageRoutes(self._service, self.stages).routes(),
        ]

    def start(self) -> None:
        """Recovery is over."""
        self.stages.start()
