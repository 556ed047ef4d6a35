"""Whether a table that is there already is one that pipelines can write to, and read file by file.

Files are written and read without an engine in between: nothing would fill in the partition columns of tables
that are not ours, check constraints, or leave out what a deletion vector names. A table that asks for any of
it is refused as it is.
"""

from collections.abc import Iterator
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable, Schema

from pyspark_topics.errors import PipelineFailed
from pyspark_topics.pipelines.tables.places import is_marked

# Columns that are NULL in some rows of every table of ours.
_NULLABLE = ("node", "tag", "meta", "gap_to", "reason")
# Features that ask nothing of a writer that only adds rows and merges files.
_HARMLESS = frozenset(
    (
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",  # the constraints themselves are looked at
        "generatedColumns",  # and so are the columns
        "invariants",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    )
)
_CONSTRAINT = "delta.constraints."
# What a column may say of itself that a writer would have to obey.
_RULES = ("delta.generationExpression", "delta.invariants", "delta.identity.start")


def refuse_other_table(table: DeltaTable, wanted: Schema) -> None:
    why = next(misfits(table, wanted), None)
    if why is not None:
        path = unquote(table.table_uri.removeprefix("file://")).rstrip("/")
        raise PipelineFailed(
            f"{path} is a table of something else: {why}; nothing was written: give another folder"
        )


def misfits(table: DeltaTable, wanted: Schema) -> Iterator[str]:
    """What is in the way, most telling first."""
    found = {field.name: field for field in table.schema().fields}
    for field in wanted.fields:
        if field.name not in found:
            yield f'it has no column "{field.name}"'
        elif found[field.name].type != field.type:
            yield f'its column "{field.name}" is {_kind(found[field.name])} and not {_kind(field)}'
        elif not found[field.name].nullable and field.name in _NULLABLE:
            yield f'its column "{field.name}" cannot be NULL'
    # Tables of ours have more columns where there is one for what does not fit, and they have a day.
    more = found.keys() - {field.name for field in wanted.fields} - {"day"}
    for name in sorted(more) if "_rescued" not in found else ():
        yield f'it has a column "{name}"'
    metadata, protocol = table.metadata(), table.protocol()
    if metadata.partition_columns and not is_marked(table):
        yield f"it is partitioned by {', '.join(metadata.partition_columns)}"
    for key in metadata.configuration:
        if key.startswith(_CONSTRAINT):
            yield f"it has the constraint {key.removeprefix(_CONSTRAINT)}"
    for name, field in found.items():
        if any(rule in field.metadata for rule in _RULES):
            yield f'its column "{name}" has rules of its own'
    if metadata.configuration.get("delta.columnMapping.mode", "none") != "none":
        yield "its columns have other names in its files (column mapping)"
    for feature in sorted({*(protocol.reader_features or ()), *(protocol.writer_features or ())} - _HARMLESS):
        yield f"it needs the table feature {feature}"
    if not is_marked(table) and pa.table(table.get_add_actions()).num_rows:
        yield (
            "it was written by another program or by an earlier version of topics: replay it with the "
            "program that wrote it, and archive that"
        )


def _kind(field: object) -> str:
    kind = getattr(field, "type", None)
    return str(getattr(kind, "type", kind))
