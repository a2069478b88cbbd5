"""The process's default session, for programs that need only one. These functions are its methods: see Session."""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING

from ._errors import Closed, DoorbellError
from ._session import Session
from ._signatures import show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from typing_extensions import Concatenate, ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R")

_session: Session | None = None


def _opens(make: Callable[Concatenate[Session, P], None]) -> tuple[Callable[P, Session], Callable[P, AbstractContextManager[Session]]]:
    def open(*arguments: P.args, **named: P.kwargs) -> Session:
        """Opens the default session, which the functions of the package use. Arguments: as Session()."""
        global _session
        # (In a fork's child the library returns the error.)
        if _session is not None and not _session.closed and _session.process == os.getpid():
            raise DoorbellError("the default session is open already: close it first, or make another Session()")
        made = Session.__new__(Session)
        make(made, *arguments, **named)
        _session = made
        return made

    @contextmanager
    def session(*arguments: P.args, **named: P.kwargs) -> Iterator[Session]:
        """`with doorbell.session():` opens and closes the default session. Arguments: as Session()."""
        with open(*arguments, **named) as opened:
            yield opened

    show(open, make, 1, "Session")
    show(session, make, 1, "AbstractContextManager[Session]")
    return open, session


open, session = _opens(Session.__init__)


def close() -> None:
    """Closes the default session. Without one it has no effect."""
    global _session
    if _session is not None:
        _session.close()
    _session = None


def current() -> Session:
    """The default session."""
    if _session is None or _session.closed:
        raise Closed("no session is open: call doorbell.open()")
    return _session


def _of_default(method: Callable[Concatenate[Session, P], R]) -> Callable[P, R]:
    @wraps(method)
    def call(*arguments: P.args, **named: P.kwargs) -> R:
        return method(current(), *arguments, **named)

    show(call, method, 1)
    return call


pin = _of_default(Session.pin)
allocate = _of_default(Session.allocate)
copy_ = _of_default(Session.copy_)
copy_async = _of_default(Session.copy_async)
copy_batch = _of_default(Session.copy_batch)
copy_pages = _of_default(Session.copy_pages)
explain = _of_default(Session.explain)
prepare = _of_default(Session.prepare)
prepare_bytes = _of_default(Session.prepare_bytes)
ring = _of_default(Session.ring)
message = _of_default(Session.message)
graph = _of_default(Session.graph)
instantiate = _of_default(Session.instantiate)
kernel = _of_default(Session.kernel)
chain = _of_default(Session.chain)
queue = _of_default(Session.queue)
loop = _of_default(Session.loop)
