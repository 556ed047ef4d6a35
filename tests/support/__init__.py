"""What tests of several folders share.

process    `topics serve` as a process of its own; a few low descriptors, kept for Spark
wire       a connection on which HTTP is spoken in bytes; answers, checked against what always holds
waiting    until something is true in another thread or process
appending  appends made by hand
arrow      records as an Arrow stream
codecs     the native codec and the one in Python
sanitised  a native codec whose every access to memory is checked
disk       the real disk with a hook before each change
damage     files that are damaged, cut short, of another format
stores     object stores on this machine
google     another one, written here
npm        packages of npm
sources    modules of the sources, and what they import
"""

from tests.support.process import ServerProcess, free_port, low_descriptors
from tests.support.waiting import eventually
from tests.support.wire import Answer, Wire, raw_request

__all__ = [
    "Answer",
    "ServerProcess",
    "Wire",
    "eventually",
    "free_port",
    "low_descriptors",
    "raw_request",
]
