"""KVStream from Python, over the C API (include/kvstream/kvstream.h) by ctypes.

capi: the engine. lmcache: the client class for LMCache's native_plugin adapter.
"""

__version__ = "0.1.0"
