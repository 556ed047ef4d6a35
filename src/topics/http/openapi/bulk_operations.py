"""What the routes of the bulk plane and those for operators are for."""

from __future__ import annotations

from topics.http.openapi import bulk_models as models
from topics.http.openapi.describing import (
    ARROW_STREAM,
    BAD_ROWS,
    BAD_WRITE,
    KEY_HEADER,
    NO_TOPIC,
    ONE_TOPIC,
    Operation,
    switch,
    text,
)
from topics.http.routes.admin import PurgeBody
from topics.http.routes.cursors import CursorBody
from topics.http.routes.scan import ScanBody
from topics.http.routes.stages import CommitBody
from topics.values.settings import MAX_IDEMPOTENCY_KEY_BYTES

_NAMED = ONE_TOPIC + "/cursors/:consumer"
_SNAPSHOT = ONE_TOPIC + "/segments/:snapshot"
_PURGE, _HOLD = "/v0/admin/purge", "/v0/admin/backup"

BULK: dict[tuple[str, str], Operation] = {
    ("POST", ONE_TOPIC + "/scan"): Operation(
        id="scan",
        tag="Bulk",
        summary="Read a range of records as columns.",
        takes=ScanBody,
        answers={200: ARROW_STREAM},
        errors=(NO_TOPIC,),
    ),
    ("POST", ONE_TOPIC + "/append"): Operation(
        id="bulkAppend",
        tag="Bulk",
        summary="Write columns: every record batch is one write.",
        takes=ARROW_STREAM,
        query=(
            switch("create", "Whether a missing topic is created.", default=True),
            text("idempotency_key", "Makes a retry safe.", maxLength=MAX_IDEMPOTENCY_KEY_BYTES),
        ),
        headers=(KEY_HEADER,),
        answers={200: models.BulkAppended, 201: models.BulkAppended},
        errors=BAD_WRITE,
    ),
    ("GET", ONE_TOPIC + "/segments"): Operation(
        id="takeSnapshot",
        tag="Bulk",
        summary="The files that hold a topic's sealed records; they stay while the snapshot is leased.",
        answers={200: models.Manifest},
        errors=(NO_TOPIC,),
    ),
    ("POST", _SNAPSHOT + "/renew"): Operation(
        id="renewSnapshot",
        tag="Bulk",
        summary="Keep a snapshot's files for longer.",
        answers={200: models.SnapshotLease},
        errors=(NO_TOPIC, "not_found"),
    ),
    ("DELETE", _SNAPSHOT): Operation(
        id="releaseSnapshot",
        tag="Bulk",
        summary="Let go of a snapshot's files.",
        answers={200: models.SnapshotReleased},
        errors=(NO_TOPIC,),
    ),
    ("GET", ONE_TOPIC + "/ledger"): Operation(
        id="ledger",
        tag="Bulk",
        summary="Why seqs are missing.",
        answers={200: models.Ledger},
        errors=(NO_TOPIC,),
    ),
    ("GET", ONE_TOPIC + "/cursors"): Operation(
        id="listCursors",
        tag="Bulk",
        summary="The named cursors of a topic.",
        answers={200: models.CursorList},
        errors=(NO_TOPIC,),
    ),
    ("GET", _NAMED): Operation(
        id="showCursor",
        tag="Bulk",
        summary="A named cursor and its lag.",
        answers={200: models.CursorState},
        errors=(NO_TOPIC, "not_found"),
    ),
    ("PUT", _NAMED): Operation(
        id="putCursor",
        tag="Bulk",
        summary="Set a named cursor.",
        takes=CursorBody,
        answers={200: models.CursorPut, 201: models.CursorPut},
        errors=(NO_TOPIC,),
    ),
    ("DELETE", _NAMED): Operation(
        id="dropCursor",
        tag="Bulk",
        summary="Remove a named cursor.",
        answers={200: models.CursorDropped},
        errors=(NO_TOPIC,),
    ),
    ("PUT", "/v0/stages/:id/parts/:n"): Operation(
        id="putPart",
        tag="Bulk",
        summary="Stage rows; nothing is visible before the commit.",
        takes=ARROW_STREAM,
        query=(text("topic", "For rows that name no topic."),),
        answers={200: models.StagePart},
        errors=BAD_ROWS,
    ),
    ("POST", "/v0/stages/:id/commit"): Operation(
        id="commitStage",
        tag="Bulk",
        summary="Make the rows of some parts visible, all at once and only once.",
        takes=CommitBody,
        answers={200: models.StageCommitted},
        errors=(*BAD_WRITE, "not_found", "stage_conflict"),
    ),
    ("DELETE", "/v0/stages/:id"): Operation(
        id="dropStage",
        tag="Bulk",
        summary="Forget a stage.",
        answers={200: models.StageDropped},
    ),
    ("POST", _PURGE): Operation(
        id="startPurge",
        tag="Operations",
        summary="Remove the bytes of deleted records from the disk, in the background.",
        takes=PurgeBody,
        answers={202: models.PurgeState},
        errors=(NO_TOPIC,),
    ),
    ("GET", _PURGE + "/:purge"): Operation(
        id="showPurge",
        tag="Operations",
        summary="How far a purge has come.",
        answers={200: models.PurgeState},
        errors=("not_found",),
    ),
    ("POST", _HOLD): Operation(
        id="holdFiles",
        tag="Operations",
        summary="The files of a backup of this moment; they stay as they are while the hold is leased.",
        answers={200: models.HeldFiles},
    ),
    ("POST", _HOLD + "/:hold/renew"): Operation(
        id="renewHold",
        tag="Operations",
        summary="Keep the files of a backup for longer.",
        answers={200: models.HoldLease},
        errors=("not_found",),
    ),
    ("DELETE", _HOLD + "/:hold"): Operation(
        id="releaseHold",
        tag="Operations",
        summary="Let go of the files of a backup.",
        answers={200: models.HoldReleased},
    ),
}
