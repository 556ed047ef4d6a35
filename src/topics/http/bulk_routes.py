"""The bulk plane: for readers and writers that move columns instead of records.

What it is made of is put together here, because nobody else uses it. Nothing in it imports pyarrow before the
first request that needs it.
"""

from __future__ import annotations

from topics.flow.cursors import Cursors
from topics.flow.pins import Pins
from topics.flow.stages import Stages
from topics.http.bulk_append_routes import BulkAppendRoutes
from topics.http.cursor_routes import CursorRoutes
from topics.http.routing import Route
from topics.http.scan_routes import ScanRoutes
from topics.http.segment_routes import SegmentRoutes
from topics.http.service import Service
from topics.http.stage_routes import StageRoutes


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
