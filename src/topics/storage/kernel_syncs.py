"""Syncs that the kernel does by itself: `fdsync` of Linux AIO, without a thread that waits for it.

What is done is told by an event descriptor. The structures are those of <linux/aio_abi.h>, as
machines have them that store the lowest byte first.
"""

import ctypes
import errno
import os
import platform
import sys
import threading
from collections.abc import Callable

# io_setup, io_destroy, io_getevents, io_submit.
_CALLS = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}
_FDSYNC = 3
_TELLS_DESCRIPTOR = 1
# Of ours there is one under way at a time.
_MOST = 16


class _Wanted(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_uint64),
        ("key", ctypes.c_uint32),
        ("rw_flags", ctypes.c_uint32),
        ("opcode", ctypes.c_uint16),
        ("priority", ctypes.c_int16),
        ("file", ctypes.c_uint32),
        ("buffer", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("reserved", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("told", ctypes.c_uint32),
    )


class _Done(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_uint64),
        ("wanted", ctypes.c_uint64),
        ("result", ctypes.c_int64),
        ("more", ctypes.c_int64),
    )


class _SyncRequest:
    """One that can be sent again and again."""

    __slots__ = ("_pointer", "address", "wanted")

    def __init__(self, told: int) -> None:
        self.wanted = _Wanted(opcode=_FDSYNC, flags=_TELLS_DESCRIPTOR, told=told)
        # The kernel is told where it is to be found.
        self._pointer = ctypes.c_uint64(ctypes.addressof(self.wanted))
        self.address = ctypes.addressof(self._pointer)


def _syscall() -> Callable[..., int]:
    """With five arguments, always: numbers that are not said to be long would be cut to 32 bits."""
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    call.argtypes = [ctypes.c_long] * 6
    return call


class KernelSyncs:
    """Raises `OSError` where there are none: on another system, or in a sandbox that forbids them."""

    def __init__(self) -> None:
        calls = _CALLS.get(platform.machine()) if sys.platform == "linux" and sys.maxsize > 1 << 32 else None
        if calls is None:
            raise OSError(errno.ENOSYS, "no asynchronous syncs are known here")
        self._setup, self._destroy, self._getevents, self._submit = calls
        self._syscall: Callable[..., int] = _syscall()
        context = ctypes.c_int64(0)
        self._call(self._setup, _MOST, ctypes.addressof(context))
        self._context = context.value
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._done = (_Done * _MOST)()
        self._at_once = (ctypes.c_int64 * 2)(0, 0)
        self._addresses = ctypes.addressof(self._done), ctypes.addressof(self._at_once)
        self._number = 0
        # What is under way, by its number: how it was asked for, and who waits.
        self._waiting: dict[int, tuple[_SyncRequest, Callable[[BaseException | None], None]]] = {}
        self._spare: list[_SyncRequest] = []

    def fileno(self) -> int:
        """It can be read when something is done."""
        return self._descriptor

    def start(self, fd: int, done: Callable[[BaseException | None], None]) -> None:
        """Raises `OSError` if nothing was begun."""
        number = self._number = self._number + 1
        request = self._spare.pop() if self._spare else _SyncRequest(self._descriptor)
        request.wanted.data, request.wanted.file = number, fd
        self._waiting[number] = request, done
        try:
            self._call(self._submit, self._context, 1, request.address)
        except OSError:
            del self._waiting[number]
            raise

    def finish(self) -> None:
        """Tell those whose sync is done."""
        try:
            os.eventfd_read(self._descriptor)
        except BlockingIOError:
            pass
        count = _MOST
        while count == _MOST:
            count = self._call(self._getevents, self._context, 0, _MOST, *self._addresses)
            for number, result in [(one.data, one.result) for one in self._done[:count]]:
                request, done = self._waiting.pop(number)
                self._spare.append(request)
                done(None if result >= 0 else OSError(-result, os.strerror(-result)))

    def _call(
        self, call: int, first: int, second: int = 0, third: int = 0, fourth: int = 0, fifth: int = 0
    ) -> int:
        """A signal in between costs nothing: it is called again."""
        while (result := self._syscall(call, first, second, third, fourth, fifth)) < 0:
            number = ctypes.get_errno()
            if number != errno.EINTR:
                raise OSError(number, os.strerror(number))
        return result

    def close(self) -> None:
        """What is under way goes on, and nobody is told. The kernel takes a tenth of a second for it."""
        self._waiting.clear()
        os.close(self._descriptor)
        threading.Thread(target=self._call, args=(self._destroy, self._context), daemon=True).start()
