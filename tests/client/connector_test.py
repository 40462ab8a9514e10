#!/usr/bin/env python3
"""python/kvstream/lmcache.py as LMCache drives it, but without LMCache: an eventfd and a drain.

Usage: connector_test.py LIBRARY
"""

import json
import os
import pathlib
import select
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
from kvstream.lmcache import Connector  # noqa: E402

LIBRARY = ""
BLOCK = 64 << 10


def names(count):
    return [f"org/model@00000000@0@{i:032x}" for i in range(count)]


def views(fills):
    # The format that LMCache's views have.
    return [memoryview(bytearray([fill]) * BLOCK) for fill in fills]


class ConnectorTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="kvstream-connector-")
        self.addCleanup(self.folder.cleanup)
        self.stats_file = os.path.join(self.folder.name, "stats.json")
        self.open()

    def open(self, block_bytes=BLOCK):
        tiers = [f"nvme0=nvme:{self.folder.name}/nvme,cap=16MiB"]
        self.store = Connector(block_bytes, tiers, ["pool=8MiB"], LIBRARY, self.stats_file)

    def tearDown(self):
        self.store.close()

    def wait(self, number):
        """(ok, error, bools) of a submission."""
        poller = select.poll()
        poller.register(self.store.event_fd(), select.POLLIN)
        while poller.poll(10_000):
            for done, *result in self.store.drain_completions():
                if done == number:
                    return tuple(result)
        self.fail(f"submission {number} did not complete")

    def exists(self, keys):
        return self.wait(self.store.submit_batch_exists(keys))[2]

    def test_what_was_set_is_found_and_got(self):
        keys, saved, got = names(8), views(range(1, 9)), views([0] * 8)
        self.assertEqual(self.exists(keys), [False] * 8)
        self.assertEqual(self.wait(self.store.submit_batch_set(keys, saved)), (True, "", [True] * 8))
        self.assertEqual(self.exists(keys + ["other@0@0@0"]), [True] * 8 + [False])
        self.assertEqual(self.wait(self.store.submit_batch_get(keys, got)), (True, "", [True] * 8))
        self.assertEqual([bytes(v) for v in got], [bytes(v) for v in saved])

    def test_a_deleted_key_is_missing_among_others(self):
        keys = names(3)
        self.wait(self.store.submit_batch_set(keys, views([1, 2, 3])))
        self.assertEqual(self.wait(self.store.submit_batch_delete(keys[1:2]))[2], [True])
        ok, error, good = self.wait(self.store.submit_batch_get(keys, views([0] * 3)))
        self.assertEqual((ok, good), (True, [True, False, True]))
        self.assertIn("1 of 3", error)

    def test_a_set_that_does_not_fit_says_so(self):
        keys = names(1)
        ok, error, good = self.wait(
            self.store.submit_batch_set(keys, [memoryview(bytearray(BLOCK + 1))]))
        self.assertEqual((ok, good), (False, [False]))
        self.assertIn("block-max", error)

    def test_no_keys_complete_too(self):
        for submit in (self.store.submit_batch_set, self.store.submit_batch_get):
            self.assertEqual(self.wait(submit([], [])), (True, "", []))
        self.assertEqual(self.wait(self.store.submit_batch_exists([])), (True, "", []))

    def test_a_restart_is_warm_but_not_for_another_block_size(self):
        keys = names(4)
        self.wait(self.store.submit_batch_set(keys, views([5] * 4)))
        self.store.close()
        self.open(block_bytes=2 * BLOCK)
        self.assertEqual(self.exists(keys), [False] * 4)
        self.store.close()
        self.open()
        self.assertEqual(self.exists(keys), [True] * 4)

    def test_get_ends_the_leases_of_exists(self):
        keys = names(4)
        self.wait(self.store.submit_batch_set(keys, views([5] * 4)))
        for _ in range(2):
            self.assertEqual(self.exists(keys), [True] * 4)
        self.wait(self.store.submit_batch_get(keys, views([0] * 4)))
        self.store.close()
        with open(self.stats_file, encoding="utf-8") as file:
            self.assertEqual(json.load(file)["leases"], 0)
        self.open()


if __name__ == "__main__":
    LIBRARY = sys.argv.pop(1)
    unittest.main()
