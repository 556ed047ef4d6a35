"""Files of a load as rows of Spark, and what is wrong with a file that cannot be read.

Hadoop takes every path for a pattern, and skips some names without a message.
"""

import glob
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_topics.errors import PipelineFailed, written_for_users
from pyspark_topics.payload import ENVELOPE, as_records
from pyspark_topics.pipelines.state import StatePath
from pyspark_topics.rows import EVENT_TS
from topics.client import Refused

_OF_PATTERNS = re.compile(r"[*?\[\]{},\\]")
_PASSED_OVER = "a name that begins with _ or ., or ends with ._COPYING_"


def literally(path: str) -> str:
    """The pattern that finds this path, and nothing else."""
    return _OF_PATTERNS.sub(r"\\\g<0>", path)


def matching(pattern: str) -> list[str]:
    """Files that a load takes. One that is passed over and named outright is among them: it is refused."""
    found = [name for name in glob.glob(pattern, recursive=True) if os.path.isfile(name)]
    return [name for name in found if not _is_passed_over(name)] if glob.has_magic(pattern) else found


def none_matches(pattern: str) -> str:
    hidden = sorted(filter(os.path.isfile, glob.glob(pattern, recursive=True)))
    but = f" but what Spark passes over, such as {hidden[0]}: {_PASSED_OVER}" if hidden else ""
    return f"no file matches {pattern}{but}"


def why_unreadable(path: str) -> str | None:
    """Return why Spark cannot read a file of this name; None if it can."""
    folder, name = os.path.split(path)
    if _is_passed_over(path):
        return f"Spark passes over {_PASSED_OVER}"
    if ":" in name:
        return "Spark cannot read a file with : in its name"
    if ":" in folder and _OF_PATTERNS.search(path):
        return r"Spark cannot read a file below a folder with : in its name if any of *?[]{},\ is in the path"
    return None


def unreadable(path: str) -> str | None:
    """Return a message about a file of a load that Spark cannot read; None if it can."""
    why = why_unreadable(path)
    if why is None:
        return None
    return f"{path} cannot be loaded, {why}; rename it, or leave it out from now on with --skip {path}"


def _is_passed_over(path: str) -> bool:
    """Return whether Spark skips the file without a message, as it does with files of its writers."""
    name = os.path.basename(path)
    return (name.startswith("_") and "=" not in name) or name.startswith(".") or name.endswith("._COPYING_")


# As most programs write it: names first, and a quote inside quotes doubled. A row that does not fit is an
# error: Spark would fill it with NULLs.
_CSV = {"header": "true", "inferSchema": "true", "escape": '"', "mode": "FAILFAST"}
_CORRUPT = "_corrupt_record"
# So much of a row is shown.
EXCERPT = 120


class BrokenRow(NamedTuple):
    """A row that cannot be read; `why` is empty where Spark says it."""

    row: int
    text: str
    why: str


@dataclass(frozen=True)
class FileFormat:
    """How a file of a load is read."""

    kind: str
    # As the user gave them: options for Spark's reader, types of columns, expressions for the sink's columns.
    given: Mapping[str, str]
    schema: str | None
    select: Sequence[str]
    # The topic that the rows go to.
    into: str

    @property
    def options(self) -> dict[str, str]:
        given = dict(self.given)
        if self.kind == "csv":
            return {**_CSV, **given}
        return {"mode": "FAILFAST", **given} if self.kind == "json" else given

    @property
    def has_lines(self) -> bool:
        """Return whether each row is a line, so that a file can grow."""
        many = {key.lower(): value for key, value in self.given.items()}.get("multiline", "false")
        return self.kind in ("json", "csv") and many.lower() != "true"

    @property
    def _has_header(self) -> bool:
        return self.kind == "csv" and self.options["header"].lower() == "true"

    # --- rows -------------------------------------------------------------------------------------------

    def frame(self, spark: SparkSession, path: str) -> DataFrame:
        """Return the rows of a file with the columns of the sink."""
        rows = self.rows(spark, path)
        if not rows.columns:  # of a CSV without so much as a header
            return spark.createDataFrame([], "data STRING")
        return self._selected(rows)

    def tail(self, spark: SparkSession, path: str, from_byte: int, state: StatePath) -> DataFrame:
        """Lines behind the given byte; `state` is a folder that executors see."""
        if not isinstance(state, Path):
            raise PipelineFailed('grown = "continue" copies lines to the folder of state: make that a folder')
        copy = state / COPIES / Path(path).name
        copy.parent.mkdir(exist_ok=True)
        with open(path, "rb") as whole, copy.open("wb") as part:
            if self._has_header:
                part.write(whole.readline())
            whole.seek(from_byte)
            shutil.copyfileobj(whole, part)
        if self.kind == "csv":  # types of a column are those of the whole file
            return self._selected(self.rows(spark, str(copy), self.rows(spark, path).schema))
        return self.frame(spark, str(copy))

    def _selected(self, frame: DataFrame) -> DataFrame:
        # A file's column `topic` is no target, and its `event_ts` no time unless it was selected as such.
        envelope = tuple(name for name in ENVELOPE if name != EVENT_TS or self.select)
        if self.select:
            frame = frame.selectExpr(*self.select)
        return as_records(frame, self.into, envelope)

    def rows(self, spark: SparkSession, file: str, types: StructType | None = None) -> DataFrame:
        wanted = types or (StructType.fromDDL(self.schema) if self.schema is not None else None)
        reader, path = spark.read.options(**self.options), literally(file)
        if self.kind == "json" and self.has_lines and wanted is None:
            # A line is a record, as it stands: parsing it would only lose what Spark's types cannot hold.
            lines = spark.read.options(**self.given).text(path)
            return lines.where("trim(value) != ''").select(f.col("value").alias("data"))
        if wanted is None:
            return reader.format(self.kind).load(path)
        if self.kind == "parquet":
            return _typed(reader.parquet(path), wanted)
        if self._has_header:
            return _with_missing(reader.schema(self._by_header(spark, path, wanted)).csv(path), wanted)
        return reader.schema(wanted).format(self.kind).load(path)

    def _by_header(self, spark: SparkSession, path: str, wanted: StructType) -> StructType:
        """Spark would give names to columns by their order; a column without a type is text."""
        found = spark.read.options(**{**self.options, "inferSchema": "false"}).csv(path).columns
        kinds = _kinds(found, wanted)
        self._refuse_twins(spark, path, [field.name for field in wanted if field not in kinds.values()])
        return StructType([kinds.get(name, StructField(name, StringType())) for name in found])

    def _refuse_twins(self, spark: SparkSession, path: str, missing: list[str]) -> None:
        """Spark calls columns of one name `a0` and `a1`: an `a` with a type would be nothing but NULLs."""
        if not missing:
            return
        options = {**self.options, "header": "false", "inferSchema": "false"}
        header = [(name or "").lower() for name in spark.read.options(**options).csv(path).first() or ()]
        for name in missing:
            if header.count(name.lower()) > 1:
                raise PipelineFailed(f'its header names "{name}" more than once, and schema gives it a type')

    # --- what is wrong ----------------------------------------------------------------------------------

    def first_broken(self, spark: SparkSession, path: str) -> BrokenRow | None:
        """The first row that cannot be read, if that can be told."""
        if not self.has_lines:
            return None
        if self.kind == "json":
            found = _first_line(path, _why_no_json)
            if found is not None or self.schema is None:
                return found
        schema = self.rows(spark, path).schema.add(_CORRUPT, StringType())
        options = {**self.options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
        # Cached, because Spark refuses to read that column alone.
        reader = spark.read.options(**options).schema(schema).format(self.kind)
        rows = reader.load(literally(path)).cache()
        corrupt = rows.where(f.col(_CORRUPT).isNotNull()).select(_CORRUPT).first()
        rows.unpersist()
        if corrupt is None:
            return None
        text = corrupt[0].strip()
        return _first_line(path, lambda line: "" if line.strip() == text else None)


def kind_of(path: str) -> str:
    kind = FORMATS.get(Path(path).suffix.lower())
    if kind is None:
        raise PipelineFailed(
            f"{path} is not .parquet, .json (.jsonl, .ndjson) or .csv: say which it is with format"
        )
    return kind


def _typed(frame: DataFrame, wanted: StructType) -> DataFrame:
    kinds = _kinds(frame.columns, wanted)
    columns = [
        f.col(f"`{name}`").cast(kinds[name].dataType).alias(kinds[name].name)
        if name in kinds
        else f.col(f"`{name}`")
        for name in frame.columns
    ]
    return _with_missing(frame.select(*columns), wanted)


def _kinds(found: list[str], wanted: StructType) -> dict[str, StructField]:
    """Return the wanted type of each column. Case does not matter, unless one name fits exactly."""
    exact = {field.name: field for field in wanted if field.name in found}
    alike = {field.name.lower(): field for field in wanted if field.name not in found}
    kinds = {name: exact.get(name) or alike.get(name.lower()) for name in found}
    return {name: field for name, field in kinds.items() if field is not None}


def _with_missing(frame: DataFrame, wanted: StructType) -> DataFrame:
    """Columns that this file does not have are NULL."""
    for field in wanted.fields:
        if field.name not in frame.columns:
            frame = frame.withColumn(field.name, f.lit(None).cast(field.dataType))
    return frame


def _why_no_json(line: str) -> str | None:
    try:
        msgspec.json.decode(line or "null")
    except msgspec.DecodeError as error:
        return f"it is not valid JSON ({error})" if line.strip() else None
    return None


def _first_line(path: str, why: Callable[[str], str | None]) -> BrokenRow | None:
    """Return the first line for which `why` returns a text, also an empty one."""
    with open(path, encoding="utf-8", errors="replace", newline="\n") as lines:
        for number, line in enumerate(lines, 1):
            said = why(line)
            if said is not None:
                return BrokenRow(number, line.strip(), said)
    return None


def why_broken(form: FileFormat, spark: SparkSession, path: str, error: Exception) -> Exception:
    """Return the error to raise for a file that did not load; an unrelated error is returned unchanged."""
    sentence = written_for_users(error)
    if (isinstance(error, Refused) and error.status != 400) or "Unreachable: " in str(error):
        return error
    broken = None
    with suppress(Exception):  # it is broken, after all
        broken = form.first_broken(spark, path)
    where = f"{path}, row {broken.row}" if broken is not None else path
    excerpt = f": {broken.text[:EXCERPT]}" if broken is not None else ""
    what = (broken.why if broken is not None else "") or sentence or _said(error, path)
    return PipelineFailed(f"{where} cannot be loaded, {what}{excerpt}; mend it, or {way_out(path)}")


def _said(error: Exception, path: str) -> str:
    if Path(path).suffix == ".parquet" and os.path.isfile(path):
        try:
            pq.read_metadata(path)
        except Exception as why:
            return str(why).splitlines()[0]
    lines = str(error).strip().splitlines()
    causes = [line.partition(": ")[2] for line in lines if line.startswith("Caused by: ")]
    return causes[-1].partition(": ")[2] or causes[-1] if causes else lines[0]


# Formats of files, by how their names end.
FORMATS = {".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}
# Where lines that were added to files are copied to, under the names of these files.
COPIES = "added"


def way_out(path: str) -> str:
    return f"leave it out from now on with --skip {path}, or take it as new with --again {path}"
