"""Checks golden_keys.json against a second implementation of the block keys.

check_golden_keys.py FILE            exits with 1 when a vector differs
check_golden_keys.py FILE --rewrite  puts the computed keys into the file
"""

import hashlib
import json
import struct
import sys


def u32(value):
    return struct.pack("<I", value)


def text(value):
    data = value.encode("utf-8")
    return u32(len(data)) + data


def first_128_bits(data):
    return hashlib.sha256(data).digest()[:16]


def namespace_key(ns):
    data = b"kvn1" + text(ns["model"]) + text(ns["revision"]) + text(ns["dtype"])
    for name in ("layout_version", "tokens_per_block", "tp_size", "tp_rank", "pp_size", "pp_rank"):
        data += u32(ns[name])
    return first_128_bits(data + text(ns["salt"]))


def chain_key(parent, tokens, extra_keys):
    data = b"kvb1" + parent + u32(len(tokens)) + b"".join(u32(token) for token in tokens)
    data += u32(len(extra_keys)) + b"".join(text(key) for key in extra_keys)
    return first_128_bits(data)


def external_key(namespace, external_hash):
    return first_128_bits(b"kvx1" + namespace + u32(len(external_hash)) + external_hash)


def keys_of(case):
    """The same list of keys that the case names: namespace, chain, externals."""
    namespace = namespace_key(case["namespace"])
    chain, parent = [], namespace
    for block in case["chain"]:
        parent = chain_key(parent, block["tokens"], block["extra_keys"])
        chain.append(parent.hex())
    by_hash = [external_key(namespace, bytes.fromhex(h)).hex() for h in case["external_hashes"]]
    by_id = [external_key(namespace, struct.pack("<Q", int(i))).hex() for i in case["external_ids"]]
    return {"namespace": namespace.hex(), "chain": chain, "external_hashes": by_hash,
            "external_ids": by_id}


def main():
    path = sys.argv[1]
    with open(path, encoding="utf-8") as file:
        golden = json.load(file)
    if "--rewrite" in sys.argv[2:]:
        for case in golden["cases"]:
            case["keys"] = keys_of(case)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(golden, file, indent=1)
            file.write("\n")
        return 0
    bad = [case["name"] for case in golden["cases"] if case["keys"] != keys_of(case)]
    print(f"{len(golden['cases'])} cases, {len(bad)} differ: {bad}")
    return 1 if bad or not golden["cases"] else 0


if __name__ == "__main__":
    sys.exit(main())
