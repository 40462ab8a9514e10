"""include/kvstream/kvstream.h as Python: one class, no logic, no copies of block bytes.

Memory is anything with a writable buffer. ctypes lets go of the interpreter's lock during each call.
"""

import ctypes
import json
from ctypes import POINTER, byref, c_char, c_char_p, c_int, c_size_t, c_uint8, c_uint32, c_uint64
from ctypes import c_void_p

API_VERSION = 1
OK, NO_SPACE = 0, 5
GOOD = 1  # a block's state
STAGED, DONE, DRAINED = 1, 2, 3  # an event's kind
_EVENTS_AT_ONCE = 256


class Error(Exception):
    """A call failed: `code` as in kvstream.h, the text says how to cure it."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class Key(ctypes.Structure):
    _fields_ = [("bytes", c_uint8 * 16)]


class Lease(ctypes.Structure):
    _fields_ = [("words", c_uint64 * 2)]


class Span(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("size_bytes", c_uint64)]


class Block(ctypes.Structure):
    _fields_ = [("key", Key), ("spans", POINTER(Span)), ("count_spans", c_uint32),
                ("position", c_uint32)]


class _Options(ctypes.Structure):
    _fields_ = [("struct_bytes", c_uint64), ("api_version", c_uint32), ("count_tiers", c_uint32),
                ("count_settings", c_uint32), ("count_fields", c_uint32),
                ("tiers", POINTER(c_char_p)), ("settings", POINTER(c_char_p)),
                ("fields", POINTER(c_char_p))]


class _LookupRequest(ctypes.Structure):
    _fields_ = [("keys", POINTER(Key)), ("count_keys", c_uint64)]


class _LookupAnswer(ctypes.Structure):
    _fields_ = [("blocks", c_uint32), ("pending", c_uint32), ("lease", Lease)]


class _Load(ctypes.Structure):
    _fields_ = [("blocks", POINTER(Block)), ("count_blocks", c_uint64), ("lease", Lease)]


class _Step(ctypes.Structure):
    _fields_ = [("struct_bytes", c_uint64), ("requests", POINTER(_Load)),
                ("count_requests", c_uint64), ("timeout_us", c_uint64),
                ("states", POINTER(c_uint8))]


class _Save(ctypes.Structure):
    _fields_ = [("struct_bytes", c_uint64), ("blocks", POINTER(Block)), ("count_blocks", c_uint64),
                ("states", POINTER(c_uint8))]


class Event(ctypes.Structure):
    _fields_ = [("work", c_uint64), ("kind", c_uint32), ("good_blocks", c_uint32),
                ("late_blocks", c_uint32), ("undrained", c_uint32)]


def _texts(texts):
    return (c_char_p * len(texts))(*[text.encode() for text in texts])


def _blocks(keys, buffers):
    """An array of blocks of one span each; with it, what must stay alive as long as the work."""
    count = len(keys)
    # from_buffer keeps the buffer exported, so that its owner cannot move or shrink it meanwhile.
    exported = [c_char.from_buffer(buffer) for buffer in buffers]
    spans = (Span * count)()
    blocks = (Block * count)()
    for i, (key, memory) in enumerate(zip(keys, exported)):
        spans[i].data = ctypes.addressof(memory)
        spans[i].size_bytes = memoryview(buffers[i]).nbytes
        blocks[i].key = key
        blocks[i].spans = ctypes.pointer(spans[i])
        blocks[i].count_spans = 1
        blocks[i].position = i
    return blocks, (exported, spans)


class Engine:
    """An engine in this process. Any thread, but nobody inside a call when close() begins."""

    def __init__(self, tiers, settings=(), fields=(), library="libkvstream.so.0"):
        """Texts as kvstream.h says. `library` is a path, or a name that the loader finds."""
        self._lib = ctypes.CDLL(library)
        self._lib.kvstream_last_error.restype = c_char_p
        if self._lib.kvstream_api_version() != API_VERSION:
            raise Error(1, f"{library} has another version of the C API than {API_VERSION}; "
                           "use the package of the same release")
        self._lib.kvstream_close.argtypes = [c_void_p, c_uint64]
        self._engine = c_void_p()
        self._kept = {}  # work -> what must stay alive until its last event
        options = _Options(ctypes.sizeof(_Options), API_VERSION, len(tiers), len(settings),
                           len(fields), _texts(tiers), _texts(settings), _texts(fields))
        self._check(self._lib.kvstream_open(byref(options), byref(self._engine)))

    def _check(self, code):
        if code != OK:
            raise Error(code, self._lib.kvstream_last_error().decode(errors="replace"))

    def close(self, timeout_s=10.0):
        """Raises Error when a device is stuck: leave the process by os._exit()."""
        engine, self._engine = self._engine, c_void_p()
        if engine:
            self._check(self._lib.kvstream_close(engine, int(timeout_s * 1e6)))
            self._kept.clear()

    def event_fd(self):
        fd = c_int()
        self._check(self._lib.kvstream_event_fd(self._engine, byref(fd)))
        return fd.value

    def key_of(self, identity):
        """The key of a block that the caller names by bytes."""
        key = Key()
        self._check(self._lib.kvstream_key_of(self._engine, identity, c_size_t(len(identity)),
                                              byref(key)))
        return key

    def lookup_each(self, keys):
        """A lease for each key that is there, None for the others."""
        count = len(keys)
        array = (Key * count)(*keys)
        requests = (_LookupRequest * count)()
        answers = (_LookupAnswer * count)()
        for i in range(count):
            requests[i].keys = ctypes.pointer(array[i])
            requests[i].count_keys = 1
        self._check(self._lib.kvstream_lookup(self._engine, requests, answers, c_size_t(count)))
        return [answer.lease if answer.blocks else None for answer in answers]

    def release(self, lease):
        self._check(self._lib.kvstream_release(self._engine, byref(lease)))

    def load_each(self, keys, buffers, leases, timeout_us=0):
        """Starts to load independent blocks; -> (work, an array of states, set at DONE)."""
        count = len(keys)
        blocks, alive = _blocks(keys, buffers)
        loads = (_Load * count)()
        for i in range(count):
            loads[i].blocks = ctypes.pointer(blocks[i])
            loads[i].count_blocks = 1
            if leases[i] is not None:
                loads[i].lease = leases[i]
        states = (c_uint8 * count)()
        step = _Step(ctypes.sizeof(_Step), loads, count, timeout_us, states)
        return self._submit(self._lib.kvstream_load_step, step, states, alive)

    def save(self, keys, buffers):
        """Starts to save; -> (work, an array of states, set at DONE)."""
        blocks, alive = _blocks(keys, buffers)
        states = (c_uint8 * len(keys))()
        save = _Save(ctypes.sizeof(_Save), blocks, len(keys), states)
        return self._submit(self._lib.kvstream_save_step, save, states, alive)

    def _submit(self, call, request, states, alive):
        work = c_uint64()
        self._check(call(self._engine, byref(request), byref(work)))
        self._kept[work.value] = (states, alive)
        return work.value, states

    def poll(self):
        """What has happened: a list of Event. Never waits."""
        events = (Event * _EVENTS_AT_ONCE)()
        count = c_size_t(_EVENTS_AT_ONCE)
        happened = []
        while count.value == _EVENTS_AT_ONCE:
            self._check(self._lib.kvstream_poll(self._engine, events,
                                                c_size_t(_EVENTS_AT_ONCE), byref(count)))
            happened += [Event.from_buffer_copy(event) for event in events[:count.value]]
        for event in happened:
            if event.kind == DRAINED or (event.kind == DONE and not event.undrained):
                self._kept.pop(event.work, None)
        return happened

    def drop(self, keys):
        self._check(self._lib.kvstream_drop(self._engine, (Key * len(keys))(*keys),
                                            c_size_t(len(keys))))

    def stats(self):
        """Counters as a dict."""
        text, needed = ctypes.create_string_buffer(16384), c_size_t()
        code = self._lib.kvstream_stats(self._engine, text, c_size_t(len(text)), byref(needed))
        if code == NO_SPACE:
            text = ctypes.create_string_buffer(2 * needed.value)
            code = self._lib.kvstream_stats(self._engine, text, c_size_t(len(text)),
                                            byref(needed))
        self._check(code)
        return json.loads(text.value)
