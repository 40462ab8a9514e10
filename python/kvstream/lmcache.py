"""KVStream as a level-2 store of LMCache, through its `native_plugin` adapter (tried: 0.5.6).

    {"type": "native_plugin", "module_path": "kvstream.lmcache", "class_name": "Connector",
     "adapter_params": {"block_bytes": 1048576,
                        "tiers": ["host=host,cap=1GiB", "nvme0=nvme:/mnt/nvme0,cap=10GiB"]}}

LMCache's keys name the model, rank, group and the hash of the whole prefix, so each is a block of
its own here: no order among them is known. bench/lmcache_native.sh runs it.
"""

import json
import os
import threading

from kvstream import capi

# A lease that LMCache never uses ends by time in the engine; older ones are of no use here.
_LEASES_MAX = 16384


class Connector:
    """What LMCache's NativeConnectorL2Adapter calls. Submissions come from one thread, and
    drain_completions() from another; nothing waits but close(), and the deletion of keys, for one
    turn of the engine's loop."""

    def __init__(self, block_bytes, tiers, settings=(), library="libkvstream.so.0",
                 stats_file=None, close_timeout_s=30.0):
        """`block_bytes`: the size of LMCache's objects (the largest, when they differ); part of
        the namespace, since LMCache's keys do not tell it. `stats_file`: gets the counters as JSON
        at close."""
        settings = [f"block-max={int(block_bytes)}", *settings]
        fields = ["model=lmcache", f"revision={int(block_bytes)}"]
        self._engine = capi.Engine(tiers, settings, fields, library)
        self._fd = self._engine.event_fd()
        self._stats_file, self._close_timeout_s = stats_file, close_timeout_s
        self._lock = threading.Lock()
        self._last = 0
        self._under_way = {}  # work -> (number, kind, states)
        self._ready = []  # completions that no work stands behind
        self._leases = {}  # bytes of a key -> its lease, oldest first

    def event_fd(self):
        return self._fd

    def submit_batch_exists(self, keys):
        blocks = self._keys(keys)
        leases = self._engine.lookup_each(blocks)
        with self._lock:
            for key, lease in zip(blocks, leases):
                if lease is not None:
                    self._keep_lease(bytes(key.bytes), lease)
        return self._complete(True, "", [lease is not None for lease in leases])

    def submit_batch_get(self, keys, buffers):
        blocks = self._keys(keys)
        with self._lock:
            leases = [self._leases.pop(bytes(key.bytes), None) for key in blocks]
        return self._start("get", len(keys),
                           lambda: self._engine.load_each(blocks, buffers, leases))

    def submit_batch_set(self, keys, buffers):
        blocks = self._keys(keys)
        return self._start("set", len(keys), lambda: self._engine.save(blocks, buffers))

    def submit_batch_delete(self, keys):
        self._engine.drop(self._keys(keys))
        return self._complete(True, "", [True] * len(keys))

    def drain_completions(self):
        """-> [(number, ok, error, [bool] or None)]"""
        done = []
        # One hold over both: a piece of work is always known before its event is seen.
        with self._lock:
            for event in self._engine.poll():
                # Memory that a device may still write to is LMCache's again only at DRAINED.
                if event.kind == capi.STAGED or (event.kind == capi.DONE and event.undrained):
                    continue
                number, kind, states = self._under_way.pop(event.work)
                good = [state == capi.GOOD for state in states]
                missing = len(good) - sum(good)
                ok = kind == "get" or missing == 0
                error = "" if missing == 0 else f"{kind}: {missing} of {len(good)} blocks are not there"
                done.append((number, ok, error, good))
            ready, self._ready = self._ready, []
        return done + ready

    def close(self):
        if self._stats_file:
            # Written beside, then renamed: a reader never sees half of it.
            with open(self._stats_file + ".part", "w", encoding="utf-8") as file:
                json.dump(self._engine.stats(), file)
            os.replace(self._stats_file + ".part", self._stats_file)
        self._engine.close(self._close_timeout_s)

    def _keys(self, names):
        return [self._engine.key_of(name.encode()) for name in names]

    def _keep_lease(self, key, lease):
        older = self._leases.pop(key, None)
        if older is None and len(self._leases) >= _LEASES_MAX:
            older = self._leases.pop(next(iter(self._leases)))
        if older is not None:
            self._engine.release(older)
        self._leases[key] = lease

    def _number(self):
        self._last += 1
        return self._last

    def _complete(self, ok, error, good):
        """A completion that is known at once; the eventfd says so as for any other."""
        with self._lock:
            number = self._number()
            self._ready.append((number, ok, error, good))
        os.eventfd_write(self._fd, 1)
        return number

    def _start(self, kind, count, submit):
        try:
            with self._lock:
                work, states = submit()
                number = self._number()
                self._under_way[work] = (number, kind, states)
                return number
        except capi.Error as error:
            return self._complete(False, str(error), [False] * count)
