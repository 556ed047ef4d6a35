"""What tests of several folders share.

process      `topics serve` as a process of its own
answers      what a server said, checked against what always holds
wire         a connection on which HTTP is spoken in bytes
waiting      until something is true in another thread or process
damage       bytes flipped and files cut short
directories  what lies in them, before and after
arrow        records as an Arrow stream
codecs       the native codec and the one in Python
sanitised    a native codec whose every access to memory is checked
descriptors  a few low ones, kept for Spark
stores       object stores on this machine
google       another one, written here
"""

from tests.support.answers import Answer
from tests.support.descriptors import low_descriptors
from tests.support.process import ServerProcess, free_port
from tests.support.waiting import eventually
from tests.support.wire import Wire, raw_request

__all__ = [
    "Answer",
    "ServerProcess",
    "Wire",
    "eventually",
    "free_port",
    "low_descriptors",
    "raw_request",
]
