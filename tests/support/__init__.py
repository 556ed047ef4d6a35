"""What tests of several folders share.

waiting      until something is true in another thread or process
damage       bytes flipped and files cut short
arrow        records as an Arrow stream
process      `topics serve` as a process of its own
descriptors  a few low ones, kept for Spark
"""

from tests.support.descriptors import low_descriptors
from tests.support.process import Answer, ServerProcess, free_port
from tests.support.waiting import eventually

__all__ = ["Answer", "ServerProcess", "eventually", "free_port", "low_descriptors"]
