"""Each function of the library with each kind of wrong argument, one at a time: a code, never a crash and never a wait. What a pointer leads to ends at the
end of the memory, so a call that reads more than it may is a crash."""

import ctypes
import itertools
import mmap
import os
import unittest
from ctypes import c_bool, c_char_p, c_int32, c_size_t, c_uint32, c_uint64, c_void_p

from doorbell import _header

PAGE = 4096
# Codes that wrong arguments may have: of the header, without TIMEOUT, DRIVER and PANIC.
CODES = {"OK", "CLOSED", "HANDLE", "OUTSIDE", "LIMIT", "ARGUMENT", "UNAVAILABLE", "FREED", "GRAPH"}
LARGE = [1 << 40, 1 << 61, 1 << 63, (1 << 64) - 1]
# What ends the process's session or makes its own.
OWN = {"doorbell_create", "doorbell_free"}


class Library:
    def __init__(self):
        self.library = ctypes.CDLL(os.environ["DOORBELL_LIB"])
        for name, (answers, arguments) in _header.FUNCTIONS.items():
            function = getattr(self.library, name)
            function.restype = answers
            # (ctypes checks no pointer then.)
            function.argtypes = [c_void_p if self.is_pointer(of) else of for of in arguments]

    @staticmethod
    def is_pointer(of):
        return of in (c_void_p, c_char_p) or hasattr(of, "contents")

    def __getattr__(self, name):
        return getattr(self.library, name)

    def opened(self):
        options = _header.Options(ctypes.sizeof(_header.Options), kind=_header.SOFTWARE, lanes=1, profile=b"")
        session = c_void_p()
        code = self.doorbell_create(ctypes.addressof(options), ctypes.addressof(session))
        assert code == 0, self.doorbell_error_detail()
        return session.value


def page(byte):
    """The address of memory of one page, after which none can be read or written."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype, libc.mmap.argtypes = c_void_p, [c_void_p, c_size_t, c_int32, c_int32, c_int32, c_size_t]
    libc.munmap.argtypes = [c_void_p, c_size_t]
    at = libc.mmap(None, 2 * PAGE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    libc.munmap(at + PAGE, PAGE)
    ctypes.memset(at, byte, PAGE)
    return at


class Arguments(unittest.TestCase):
    def test_each_wrong_argument_is_an_error(self):
        library = Library()
        session, freed = library.opened(), library.opened()
        self.assertEqual(library.doorbell_free(freed), 0)
        self.assertEqual(library.doorbell_free(freed), _header.CLOSED)
        buffer = c_uint64()
        self.assertEqual(library.doorbell_buffer_create(session, 0, 4096, ctypes.addressof(buffer), None), 0)
        zeros, ones = page(0), page(255)
        sessions = [None, session, freed, session + 1, session + 64, zeros, (1 << 64) - 1]

        def wrong(of, is_session):
            if is_session:
                return sessions
            if of is c_uint64:
                return [0, 1, buffer.value, buffer.value + 1, 7 << 60, *LARGE]
            if of is c_size_t:
                return [0, 1, 7, 1 << 32, *LARGE]
            if of in (c_uint32, c_int32):
                return [0, 1, 77, 0x7FFFFFFF]
            if of is c_bool:
                return [False, True]
            return [None, zeros, ones, zeros + 1, ones + 1]

        allowed = {getattr(_header, name) for name in CODES}
        calls, seen = 0, set()
        for name, (answers, arguments) in _header.FUNCTIONS.items():
            if answers is not c_int32 or name in OWN:
                continue
            takes = arguments[:1] == [c_void_p]
            choices = [wrong(of, takes and n == 0) for n, of in enumerate(arguments)]
            for start, n in itertools.product((0, 1), range(len(choices))):
                # Of the others the first or second, and the open session.
                given = [choice[min(start, len(choice) - 1)] for choice in choices]
                if takes:
                    given[0] = session
                for value in choices[n]:
                    given[n] = value
                    ctypes.memset(zeros, 0, PAGE)
                    ctypes.memset(ones, 255, PAGE)
                    with self.subTest(name=name, given=given):
                        code = getattr(library, name)(*given)
                        self.assertIn(code, allowed, library.doorbell_error_detail())
                    calls += 1
                    seen.add(code)
        self.assertGreater(calls, 2000)
        self.assertLessEqual({_header.CLOSED, _header.HANDLE, _header.ARGUMENT, _header.LIMIT, _header.UNAVAILABLE}, seen)
        # What was right before is right now.
        self.assertEqual(library.doorbell_free(session), 0)


if __name__ == "__main__":
    unittest.main()
