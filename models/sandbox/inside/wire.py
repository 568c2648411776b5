"""Plain data over a socket: a length and JSON, with tags for the types that JSON lacks. Nothing is ever unpickled.

Received values have built-in types only, whatever their sender is, so that comparing them calls no code of the sender.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any, Protocol

MOST = 8 << 20
"""Largest number of bytes of a message."""
DEEPEST = 60
"""Largest number of nested values."""
_EXACT = 2**53


class TooLong(ValueError):
    """More than a message may hold."""


class Malformed(Exception):
    """The received bytes are not a valid message."""


def pack(value: Any, depth: int = 0) -> Any:
    """Convert a value for JSON. For a subclass of a built-in type the built-in part is taken.

    Raises:
        TypeError: it holds something that is not plain data.
        ValueError: it is too deep.
    """
    if depth > DEEPEST:
        raise ValueError(f"a value with more than {DEEPEST} levels")
    inner = depth + 1
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        whole = int.__add__(value, 0)
        return whole if -_EXACT < whole < _EXACT else {"i": hex(whole)}
    if isinstance(value, float):
        return {"f": float.hex(value)}
    if isinstance(value, list):
        return [pack(item, inner) for item in list.__iter__(value)]
    if isinstance(value, tuple):
        return {"t": [pack(item, inner) for item in tuple.__iter__(value)]}
    if isinstance(value, dict):
        return {"d": [[pack(key, inner), pack(item, inner)] for key, item in dict.items(value)]}
    if isinstance(value, set):
        return {"s": [pack(item, inner) for item in set.__iter__(value)]}
    if isinstance(value, frozenset):
        return {"z": [pack(item, inner) for item in frozenset.__iter__(value)]}
    if isinstance(value, (bytes, bytearray)):
        return {"b": bytes(value).hex()}
    if isinstance(value, complex):
        return {"c": [float.hex(value.real), float.hex(value.imag)]}
    raise TypeError(f"a value of type {type(value).__name__} is not plain data")


def unpack(value: Any) -> Any:
    """Return the value that `pack` was given.

    Raises:
        Malformed: it was packed otherwise.
    """
    try:
        return _unpack(value)
    except (ValueError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise Malformed(f"an answer that is not plain data ({type(error).__name__})") from None


def _unpack(value: Any) -> Any:
    if isinstance(value, list):
        return [_unpack(item) for item in value]
    if not isinstance(value, dict):
        return value
    ((tag, held),) = value.items()
    match tag:
        case "i":
            return int(held, 16)
        case "f":
            return float.fromhex(held)
        case "t":
            return tuple(_unpack(item) for item in held)
        case "d":
            return {_unpack(key): _unpack(item) for key, item in held}
        case "s":
            return {_unpack(item) for item in held}
        case "z":
            return frozenset(_unpack(item) for item in held)
        case "b":
            return bytes.fromhex(held)
        case "c":
            real, imaginary = held
            return complex(float.fromhex(real), float.fromhex(imaginary))
    raise ValueError(tag)


def framed(message: Any) -> bytes:
    """Encode a JSON value with its length, for the wire.

    Raises:
        TooLong: it is longer than MOST.
    """
    data = json.dumps(message).encode()
    if len(data) > MOST:
        raise TooLong(f"a message of more than {MOST} bytes")
    return struct.pack("<I", len(data)) + data


def send(connection: socket.socket, message: Any) -> None:
    """Send a JSON value.

    Raises:
        TooLong: it is longer than MOST.
        OSError: the other side has gone, or the connection's time is over.
    """
    connection.sendall(framed(message))


class Readable(Protocol):
    """A source of bytes."""

    def recv(self, most: int, /) -> bytes:
        """Return at most so many bytes; none at the end."""


def receive(connection: Readable) -> Any:
    """Return the next message, as JSON.

    Raises:
        EOFError: the other side has ended.
        Malformed: it is not a valid message.
        OSError: the connection's time is over.
    """
    (length,) = struct.unpack("<I", _exactly(connection, 4))
    if length > MOST:
        raise Malformed(f"a message of more than {MOST} bytes")
    try:
        return json.loads(_exactly(connection, length))
    except (ValueError, RecursionError) as error:
        raise Malformed(f"an answer that is not JSON ({type(error).__name__})") from None


def _exactly(connection: Readable, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        part = connection.recv(min(1 << 16, length - len(data)))
        if not part:
            raise EOFError
        data += part
    return bytes(data)
