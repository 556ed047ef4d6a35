"""The names that `topics/__init__.py` imports late, for type checkers."""

from topics.client.aio import AsyncTopics as AsyncTopics
from topics.client.aio_jobs import AsyncJob as AsyncJob
from topics.client.aio_jobs import AsyncQueue as AsyncQueue
from topics.client.aio_jobs import AsyncWorker as AsyncWorker
from topics.client.aio_topic import AsyncTopic as AsyncTopic
from topics.client.aio_topic import AsyncWriter as AsyncWriter
from topics.client.cursors import Cursor as Cursor
from topics.client.cursors import FileCursor as FileCursor
from topics.client.cursors import MemoryCursor as MemoryCursor
from topics.client.cursors import ServerCursor as ServerCursor
from topics.client.cursors import SqliteCursor as SqliteCursor
from topics.client.errors import ConfigDiffers as ConfigDiffers
from topics.client.errors import Forbidden as Forbidden
from topics.client.errors import InvalidData as InvalidData
from topics.client.errors import LeaseLost as LeaseLost
from topics.client.errors import Loss as Loss
from topics.client.errors import NoJob as NoJob
from topics.client.errors import RecordGone as RecordGone
from topics.client.errors import RecordsLost as RecordsLost
from topics.client.errors import Refused as Refused
from topics.client.errors import TopicNotFound as TopicNotFound
from topics.client.errors import TopicRestarted as TopicRestarted
from topics.client.errors import TopicsError as TopicsError
from topics.client.errors import Unauthorized as Unauthorized
from topics.client.errors import Uncertain as Uncertain
from topics.client.errors import Unreachable as Unreachable
from topics.client.jobs import Job as Job
from topics.client.jobs import Queue as Queue
from topics.client.jobs import Worker as Worker
from topics.client.records import Accepted as Accepted
from topics.client.records import Ack as Ack
from topics.client.records import Answer as Answer
from topics.client.records import Draft as Draft
from topics.client.records import Lost as Lost
from topics.client.records import Position as Position
from topics.client.records import Record as Record
from topics.client.records import Restarted as Restarted
from topics.client.sync import Topics as Topics
from topics.client.topic import Topic as Topic
from topics.client.topic import Writer as Writer

__version__: str
