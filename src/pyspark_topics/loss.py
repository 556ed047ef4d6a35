"""Loss is data: what becomes of a range that the server dropped before it could be read."""

from dataclasses import dataclass

import pyarrow as pa

from pyspark_topics.errors import RecordsLost
from pyspark_topics.schema import ReadSchema

# Reasons of ours beside the server's: the planned range belonged to a life of the topic that has ended.
RECREATED = "recreated"
TOPIC_DELETED = "topic_deleted"


@dataclass(frozen=True)
class LossPolicy:
    mode: str
    schema: ReadSchema

    def announce(self, topic: str, gap_from: int, gap_to: int, reason: str) -> pa.RecordBatch | None:
        """The row to deliver in place of the lost range, if any."""
        if self.mode == "fail":
            raise RecordsLost(topic, gap_from, gap_to, reason)
        if self.mode == "ignore" or not self.schema.has_loss_rows:
            return None
        return self.schema.tombstone(topic, gap_from, gap_to, reason)
