/* The C API: what an engine in another language needs of KVStream. C11; docs/using.md has a
 * walk-through, tests/client/c_round_trip.c a whole program.
 *
 * Any thread may call anything, but nobody may be inside a call, or begin one, when
 * kvstream_close() is called. No function throws. All but the last two of this file return a
 * kvstream_code; after anything but KVSTREAM_OK kvstream_last_error() has one line with the cure,
 * and, but for close and cancel, nothing was done. Symbols are versioned; structs that may grow
 * begin with their size. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVSTREAM_API_VERSION 1u

typedef enum kvstream_code {
  KVSTREAM_OK = 0,
  KVSTREAM_INVALID_ARGUMENT = 1,
  KVSTREAM_NOT_FOUND = 2,
  KVSTREAM_IO_ERROR = 3,
  KVSTREAM_CORRUPT = 4,
  KVSTREAM_NO_SPACE = 5,
  KVSTREAM_OVERLOADED = 6,
  KVSTREAM_TIMED_OUT = 7,
  KVSTREAM_UNAVAILABLE = 8,
  KVSTREAM_CLOSED = 9
} kvstream_code;

/* State of one block, as the `states` arrays below get it. */
enum {
  KVSTREAM_BLOCK_PENDING = 0,
  KVSTREAM_BLOCK_GOOD = 1,    /* loaded and verified; or saved: a copy can be found */
  KVSTREAM_BLOCK_MISSING = 2, /* not there, or every copy failed; or dropped by a save */
  KVSTREAM_BLOCK_LATE = 3,    /* of no use, and a device may still write to its memory */
  KVSTREAM_BLOCK_CANCELLED = 4
};

typedef struct kvstream_engine kvstream_engine;
typedef struct kvstream_key {
  uint8_t bytes[16];
} kvstream_key;
/* Names a lease; all zero = none. */
typedef struct kvstream_lease {
  uint64_t words[2];
} kvstream_lease;
typedef struct kvstream_span {
  void* data; /* a save only reads it */
  uint64_t size_bytes;
} kvstream_span;
/* One block; its size is the sum of its spans, at most 256 of them. */
typedef struct kvstream_block {
  kvstream_key key;
  const kvstream_span* spans;
  uint32_t count_spans;
  uint32_t position; /* of a save: index of the block in its prefix */
} kvstream_block;

/* Text, as on the command line: tiers "nvme0=nvme:/mnt/nvme0,cap=2GiB" in order of preference,
 * settings "block-max=2MiB" (docs/configuration.md; KVSTREAM_<SETTING> in the environment is heard
 * too), and what must be equal for two processes to share blocks: "model=NAME", "revision=",
 * "dtype=", "layout-version=", "tokens-per-block=", "tp-size=", "tp-rank=", "pp-size=",
 * "pp-rank=", "salt=". */
typedef struct kvstream_options {
  uint64_t struct_bytes; /* sizeof(kvstream_options) */
  uint32_t api_version;  /* KVSTREAM_API_VERSION */
  uint32_t count_tiers, count_settings, count_fields;
  const char* const* tiers;
  const char* const* settings;
  const char* const* fields;
} kvstream_options;

/* Opens an engine in this process, warm with what the tiers' directories hold. */
int kvstream_open(const kvstream_options* options, kvstream_engine** engine);
/* Ends all loads, lets saves end within the time, and frees the engine whatever the answer is.
 * After KVSTREAM_OK nothing touches the caller's memory any more; KVSTREAM_TIMED_OUT: a device
 * still may, and the process should leave by _exit(). */
int kvstream_close(kvstream_engine* engine, uint64_t timeout_us);

/* The key of a block that the caller names by bytes of its own (a hash over its whole prefix). */
int kvstream_key_of(const kvstream_engine* engine, const void* id, size_t id_bytes,
                    kvstream_key* key);

typedef struct kvstream_lookup_request {
  const kvstream_key* keys; /* in prefix order */
  uint64_t count_keys;
} kvstream_lookup_request;
/* `blocks` leading blocks can be loaded as long as the lease lives; pending: ask again. */
typedef struct kvstream_lookup_answer {
  uint32_t blocks;
  uint32_t pending;
  kvstream_lease lease;
} kvstream_lookup_answer;
/* Never waits. Keys that are no prefix are asked for as requests of one key each. */
int kvstream_lookup(kvstream_engine* engine, const kvstream_lookup_request* requests,
                    kvstream_lookup_answer* answers, size_t count_requests);
/* Ends a lease early; one that has ended is fine. */
int kvstream_release(kvstream_engine* engine, const kvstream_lease* lease);

/* What one request wants, in prefix order: a block behind a missing one is missing. */
typedef struct kvstream_load {
  const kvstream_block* blocks;
  uint64_t count_blocks;
  kvstream_lease lease; /* of the look-up, which it ends; or zero */
} kvstream_load;
/* The arrays are copied. The memory of the spans is the engine's until KVSTREAM_DONE, and that of
 * late and cancelled blocks until KVSTREAM_DRAINED, if the event says that this follows. `states`
 * (may be null) is the caller's, a byte a block over all requests in order, and is written by the
 * kvstream_poll() that reports KVSTREAM_DONE. */
typedef struct kvstream_step {
  uint64_t struct_bytes;
  const kvstream_load* requests;
  uint64_t count_requests;
  uint64_t timeout_us; /* 0 = the setting step-deadline */
  uint8_t* states;
} kvstream_step;
/* The memory of the spans stays untouched until KVSTREAM_STAGED. */
typedef struct kvstream_save {
  uint64_t struct_bytes;
  const kvstream_block* blocks;
  uint64_t count_blocks;
  uint8_t* states;
} kvstream_save;
/* Never wait; `work` is what kvstream_poll() names, never 0. */
int kvstream_load_step(kvstream_engine* engine, const kvstream_step* step, uint64_t* work);
int kvstream_save_step(kvstream_engine* engine, const kvstream_save* save, uint64_t* work);
/* Ends a load early; KVSTREAM_DONE still comes. */
int kvstream_cancel(kvstream_engine* engine, uint64_t work, uint64_t timeout_us);

enum { KVSTREAM_STAGED = 1, KVSTREAM_DONE = 2, KVSTREAM_DRAINED = 3 };
typedef struct kvstream_event {
  uint64_t work;
  uint32_t kind;
  uint32_t good_blocks; /* of KVSTREAM_DONE */
  uint32_t late_blocks; /* of KVSTREAM_DONE */
  uint32_t undrained;   /* of KVSTREAM_DONE: 1 = KVSTREAM_DRAINED follows */
} kvstream_event;
/* Takes what has happened; never waits. A save is DONE, before that perhaps STAGED; a load is DONE.
 */
int kvstream_poll(kvstream_engine* engine, kvstream_event* events, size_t count_max, size_t* count);
/* An eventfd, the engine's, that is readable while kvstream_poll() may have something. */
int kvstream_event_fd(const kvstream_engine* engine, int* fd);

/* Forgets copies that this process owns, in all tiers; unknown keys are fine. */
int kvstream_drop(kvstream_engine* engine, const kvstream_key* keys, size_t count_keys);
/* Counters as JSON, ended by a zero byte; `needed_bytes` counts it. KVSTREAM_NO_SPACE when
 * `text_bytes` is less: nothing is written. */
int kvstream_stats(const kvstream_engine* engine, char* text, size_t text_bytes,
                   size_t* needed_bytes);

/* Of this thread's last call that failed; "" when none did. Valid until its next call that fails.
 */
const char* kvstream_last_error(void);
/* KVSTREAM_API_VERSION of the library. */
uint32_t kvstream_api_version(void);

#ifdef __cplusplus
}
#endif
