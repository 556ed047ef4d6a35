"""One checksum everywhere: XXH3-64, chained over several buffers by seeding each with the one before."""

from xxhash import xxh3_64_intdigest

from topics.storage.filesystem import Buffer


def checksum(*buffers: Buffer) -> int:
    value = 0
    for buffer in buffers:
        value = xxh3_64_intdigest(buffer, value)
    return value
