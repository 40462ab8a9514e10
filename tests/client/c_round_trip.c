/* What a program in C writes to use KVStream; also the proof that the header is C11. */
#include "c_round_trip.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "kvstream/kvstream.h"

enum { kBlockBytes = 64 << 10, kBlocksMax = 8 };
static unsigned char made[kBlocksMax][kBlockBytes], wanted[kBlocksMax][kBlockBytes];

#define CHECK(holds)                                             \
  if (!(holds)) {                                                \
    snprintf(text, text_bytes, "%s", kvstream_last_error());     \
    if (engine != NULL) (void)kvstream_close(engine, 10000000u); \
    return __LINE__;                                             \
  }

/* Sleeps until the work is done; 0 when it was not in time. */
static int wait_done(kvstream_engine* engine, uint64_t work, kvstream_event* event) {
  struct pollfd readable = {.fd = -1, .events = POLLIN};
  if (kvstream_event_fd(engine, &readable.fd) != KVSTREAM_OK) return 0;
  while (poll(&readable, 1, 10000) == 1) {
    size_t count = 1;
    while (count == 1) {
      if (kvstream_poll(engine, event, 1, &count) != KVSTREAM_OK) return 0;
      if (count == 1 && event->work == work && event->kind == KVSTREAM_DONE) return 1;
    }
  }
  return 0;
}

int c_round_trip(const char* folder, unsigned count_blocks, char* text, size_t text_bytes) {
  char tier[512];
  snprintf(tier, sizeof tier, "nvme0=nvme:%s,cap=16MiB", folder);
  const char* const tiers[] = {"host=host,cap=4MiB", tier};
  const char* const settings[] = {"block-max=64KiB", "pool=4MiB"};
  const char* const fields[] = {"model=c-round-trip"};
  const kvstream_options options = {.struct_bytes = sizeof options,
                                    .api_version = KVSTREAM_API_VERSION,
                                    .count_tiers = 2,
                                    .count_settings = 2,
                                    .count_fields = 1,
                                    .tiers = tiers,
                                    .settings = settings,
                                    .fields = fields};
  kvstream_engine* engine = NULL;
  CHECK(count_blocks > 0 && count_blocks <= kBlocksMax);
  CHECK(kvstream_open(&options, &engine) == KVSTREAM_OK);

  kvstream_key keys[kBlocksMax];
  kvstream_span halves[kBlocksMax][2], whole[kBlocksMax];
  kvstream_block saves[kBlocksMax], loads[kBlocksMax];
  for (unsigned i = 0; i < count_blocks; ++i) {
    memset(made[i], (int)(i + 1), kBlockBytes);
    memset(wanted[i], 0, kBlockBytes);
    CHECK(kvstream_key_of(engine, &i, sizeof i, &keys[i]) == KVSTREAM_OK);
    halves[i][0] = (kvstream_span){made[i], kBlockBytes / 4};
    halves[i][1] = (kvstream_span){made[i] + kBlockBytes / 4, kBlockBytes - kBlockBytes / 4};
    whole[i] = (kvstream_span){wanted[i], kBlockBytes};
    saves[i] = (kvstream_block){keys[i], halves[i], 2, i};
    loads[i] = (kvstream_block){keys[i], &whole[i], 1, i};
  }
  uint64_t work = 0;
  kvstream_event event;
  const kvstream_save save = {
      .struct_bytes = sizeof save, .blocks = saves, .count_blocks = count_blocks};
  CHECK(kvstream_save_step(engine, &save, &work) == KVSTREAM_OK);
  CHECK(wait_done(engine, work, &event) && event.good_blocks == count_blocks);

  const kvstream_lookup_request question = {keys, count_blocks};
  kvstream_lookup_answer answer;
  CHECK(kvstream_lookup(engine, &question, &answer, 1) == KVSTREAM_OK);
  CHECK(answer.blocks == count_blocks && !answer.pending);

  uint8_t states[kBlocksMax] = {0};
  const kvstream_load load = {loads, answer.blocks, answer.lease};
  const kvstream_step step = {
      .struct_bytes = sizeof step, .requests = &load, .count_requests = 1, .states = states};
  CHECK(kvstream_load_step(engine, &step, &work) == KVSTREAM_OK);
  CHECK(wait_done(engine, work, &event) && event.good_blocks == count_blocks);
  CHECK(states[count_blocks - 1] == KVSTREAM_BLOCK_GOOD);
  CHECK(memcmp(made, wanted, (size_t)count_blocks * kBlockBytes) == 0);

  kvstream_engine* const closing = engine;
  engine = NULL;
  CHECK(kvstream_close(closing, 10000000u) == KVSTREAM_OK);
  return 0;
}
