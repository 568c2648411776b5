"""A bridge: it carries connections over two streams of bytes, such as the standard streams of a container.

    connections here  <->  bridge  <->  two streams of bytes  <->  bridge  <->  connections there

The fork servers receive the open files of a request over their control connection. Files cannot pass into a container.
A bridge on each side therefore gives every connection a number, sends its bytes as frames with this number, and makes a
new connection of each number on the other side. Nothing that is carried is interpreted.
"""

from __future__ import annotations

import collections
import contextlib
import os
import selectors
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from models.sandbox.inside.wire import MOST

_HEAD = struct.Struct("<BIH")
"""Kind, number of the connection, and length of the data or, in a frame that opens connections, their count."""
_OPEN, _DATA, _CLOSE = 0, 1, 2
_PART = 1 << 15
"""Largest number of bytes in a frame."""
_FULL = 1 << 20
"""Number of bytes that wait for the stream at which no further ones are read from connections."""
_LONGEST = 2 * MOST
"""Number of bytes that wait for a connection at which it is closed: its reader has stopped reading."""
_TOGETHER = 4
"""Largest number of connections in one request."""


class _Broken(Exception):
    """The other side sent a malformed frame, or has ended."""


@dataclass(eq=False)
class _Connection:
    """A carried connection."""

    number: int
    here: socket.socket
    waiting: bytearray = field(default_factory=bytearray)
    """Bytes that its reader has not taken yet."""
    ends: bool = False
    """Whether it is closed as soon as nothing waits."""


class SocketBridge:
    """One side of a bridge. `carry` runs until the other side, or the control connection, has ended."""

    def __init__(
        self,
        reads: int,
        writes: int,
        *,
        gives: socket.socket | None = None,
        takes: socket.socket | None = None,
        first: int = 0,
    ) -> None:
        """Make a bridge over two streams, which it owns.

        Args:
            reads, writes: open files of the streams.
            gives: control connection from which it receives the files of new connections, and which it owns.
            takes: control connection over which it passes the files of connections that the other side opens.
            first: number of its first connection, 0 or 1; the other side has the other number.
        """
        self._reads, self._writes, self._gives, self._takes, self._next = reads, writes, gives, takes, first
        self._connections: dict[int, _Connection] = {}
        self._received = bytearray()
        self._queue: collections.deque[bytes] = collections.deque()
        self._queued = 0

    def carry(self) -> None:
        """Carry bytes until one end has gone; then close everything."""
        os.set_blocking(self._reads, False)
        os.set_blocking(self._writes, False)
        try:
            with contextlib.suppress(_Broken, OSError):
                while True:
                    self._step()
        finally:
            for connection in self._connections.values():
                connection.here.close()
            if self._gives is not None:
                self._gives.close()
            for file in {self._reads, self._writes}:
                with contextlib.suppress(OSError):
                    os.close(file)

    def _step(self) -> None:
        """Wait for something to read or write, and carry it."""
        with selectors.DefaultSelector() as waits:
            waits.register(self._reads, selectors.EVENT_READ)
            if self._queue:
                waits.register(self._writes, selectors.EVENT_WRITE)
            if self._gives is not None:
                waits.register(self._gives, selectors.EVENT_READ)
            for each in self._connections.values():
                events = selectors.EVENT_READ if self._queued < _FULL and not each.ends else 0
                if wanted := events | (selectors.EVENT_WRITE if each.waiting else 0):
                    waits.register(each.here, wanted, each)
            ready = waits.select()
        for key, events in ready:
            if isinstance(key.data, _Connection):
                self._serve(key.data, events)
            elif key.fileobj is self._gives:
                self._open_from_here()
            elif key.fd == self._reads:
                self._read_stream()
            else:
                self._write_stream()

    # ------------------------------------------------------------------------------------ from here to the other side

    def _open_from_here(self) -> None:
        assert self._gives is not None
        byte, files, _, _ = socket.recv_fds(self._gives, 1, _TOGETHER)
        if not byte:
            raise _Broken
        self._send(_OPEN, self._next, len(files))
        for file in files:
            self._add(self._next, socket.socket(fileno=file))
            self._next += 2

    def _serve(self, connection: _Connection, events: int) -> None:
        if connection.number not in self._connections:
            return
        if events & selectors.EVENT_WRITE:
            self._flush(connection)
        if not events & selectors.EVENT_READ or connection.number not in self._connections:
            return
        try:
            part = connection.here.recv(_PART)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        if part:
            self._send(_DATA, connection.number, len(part), part)
        else:
            self._send(_CLOSE, connection.number, 0)
            self._remove(connection)

    def _send(self, kind: int, number: int, length: int, part: bytes = b"") -> None:
        frame = _HEAD.pack(kind, number, length) + part
        self._queue.append(frame)
        self._queued += len(frame)

    def _write_stream(self) -> None:
        frame = self._queue.popleft()
        written = os.write(self._writes, frame)
        self._queued -= written
        if written < len(frame):
            self._queue.appendleft(frame[written:])

    # ------------------------------------------------------------------------------------ from the other side to here

    def _read_stream(self) -> None:
        part = os.read(self._reads, 1 << 16)
        if not part:
            raise _Broken
        self._received += part
        for kind, number, length, data in self._frames():
            connection = self._connections.get(number)
            if kind == _OPEN:
                self._open_from_there(number, length)
            elif connection is None or connection.ends:
                continue  # it was closed here while this was on the way
            elif kind == _DATA:
                connection.waiting += data
                self._flush(connection)
                if len(connection.waiting) > _LONGEST:
                    self._send(_CLOSE, number, 0)
                    self._remove(connection)
            else:
                connection.ends = True
                self._flush(connection)

    def _frames(self) -> Iterator[tuple[int, int, int, bytes]]:
        """Yield the frames that were received whole: kind, number, length, data."""
        while len(self._received) >= _HEAD.size:
            kind, number, length = _HEAD.unpack_from(self._received)
            if kind > _CLOSE or length > _PART:
                raise _Broken
            end = _HEAD.size + (length if kind == _DATA else 0)
            if len(self._received) < end:
                return
            data = bytes(self._received[_HEAD.size : end])
            del self._received[:end]
            yield kind, number, length, data

    def _open_from_there(self, first: int, count: int) -> None:
        if self._takes is None or not 0 < count <= _TOGETHER or first % 2 == self._next % 2:
            raise _Broken
        pairs = [socket.socketpair() for _ in range(count)]
        try:
            socket.send_fds(self._takes, [b"a"], [theirs.fileno() for _, theirs in pairs])
        finally:
            for _, theirs in pairs:
                theirs.close()
        for place, (mine, _) in enumerate(pairs):
            self._add(first + 2 * place, mine)

    def _flush(self, connection: _Connection) -> None:
        try:
            while connection.waiting:
                sent = connection.here.send(connection.waiting[:_FULL])
                del connection.waiting[:sent]
        except BlockingIOError:
            return
        except OSError:
            if not connection.ends:
                self._send(_CLOSE, connection.number, 0)
            self._remove(connection)
            return
        if connection.ends:
            self._remove(connection)

    def _add(self, number: int, here: socket.socket) -> None:
        here.setblocking(False)
        self._connections[number] = _Connection(number, here)

    def _remove(self, connection: _Connection) -> None:
        del self._connections[connection.number]
        connection.here.close()
