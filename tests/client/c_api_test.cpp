#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "client/c_round_trip.h"
#include "kvstream/kvstream.h"
#include "tiers/temp_directory.hpp"

namespace {

using testing::HasSubstr;

constexpr std::size_t kBlock = 64U << 10U;
constexpr std::uint64_t kTenSeconds = 10'000'000;

std::string last_error() { return kvstream_last_error(); }

/// What kvstream_open() gets; the texts stay.
struct Options {
  std::vector<const char*> tiers, settings = {"block-max=64KiB", "pool=4MiB"}, fields;
  kvstream_options form() {
    kvstream_options made{};
    made.struct_bytes = sizeof made;
    made.api_version = KVSTREAM_API_VERSION;
    made.count_tiers = static_cast<std::uint32_t>(tiers.size());
    made.count_settings = static_cast<std::uint32_t>(settings.size());
    made.count_fields = static_cast<std::uint32_t>(fields.size());
    made.tiers = tiers.data();
    made.settings = settings.data();
    made.fields = fields.data();
    return made;
  }
  int open(kvstream_engine*& engine) {
    const kvstream_options made = form();
    return kvstream_open(&made, &engine);
  }
};

/// Blocks 0..count-1 with bytes of their own.
struct Blocks {
  explicit Blocks(kvstream_engine* engine, std::uint32_t count, std::uint32_t first = 0)
      : bytes(count), spans(count), states(count), keys(count) {
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint32_t id = first + i;
      bytes[i].assign(kBlock, static_cast<unsigned char>(id * 7 + 1));
      spans[i] = {bytes[i].data(), kBlock};
      EXPECT_EQ(kvstream_key_of(engine, &id, sizeof id, &keys[i]), KVSTREAM_OK);
      list.push_back({keys[i], &spans[i], 1, i});
    }
  }
  void wipe() {
    for (auto& block : bytes) block.assign(kBlock, 0);
  }
  std::vector<std::vector<unsigned char>> bytes;
  std::vector<kvstream_span> spans;
  std::vector<std::uint8_t> states;
  std::vector<kvstream_key> keys;
  std::vector<kvstream_block> list;
};

class CApi : public testing::Test {
 protected:
  void SetUp() override {
    nvme_ = "nvme0=nvme:" + directory_.path() + ",cap=16MiB";
    options_.tiers = {"host=host,cap=4MiB", nvme_.c_str()};
  }
  void TearDown() override {
    if (engine_ != nullptr) {
      EXPECT_EQ(kvstream_close(engine_, kTenSeconds), KVSTREAM_OK) << last_error();
    }
  }
  void open() { ASSERT_EQ(options_.open(engine_), KVSTREAM_OK) << last_error(); }
  void close() {
    EXPECT_EQ(kvstream_close(engine_, kTenSeconds), KVSTREAM_OK) << last_error();
    engine_ = nullptr;
  }

  std::uint64_t start_save(Blocks& blocks) {
    const kvstream_save save{sizeof save, blocks.list.data(), blocks.list.size(),
                             blocks.states.data()};
    std::uint64_t work = 0;
    EXPECT_EQ(kvstream_save_step(engine_, &save, &work), KVSTREAM_OK) << last_error();
    return work;
  }
  /// Every block is a request of its own.
  std::uint64_t start_load(Blocks& blocks) {
    std::vector<kvstream_load> loads;
    for (const auto& block : blocks.list) loads.push_back({&block, 1, {}});
    const kvstream_step step{sizeof step, loads.data(), loads.size(), 0, blocks.states.data()};
    std::uint64_t work = 0;
    EXPECT_EQ(kvstream_load_step(engine_, &step, &work), KVSTREAM_OK) << last_error();
    return work;
  }
  /// Sleeps on the eventfd until the work is done.
  kvstream_event wait_done(std::uint64_t work) {
    pollfd readable{-1, POLLIN, 0};
    EXPECT_EQ(kvstream_event_fd(engine_, &readable.fd), KVSTREAM_OK);
    while (::poll(&readable, 1, 10'000) == 1) {
      kvstream_event events[4];
      std::size_t count = 4;
      while (count == 4) {
        EXPECT_EQ(kvstream_poll(engine_, events, 4, &count), KVSTREAM_OK) << last_error();
        for (std::size_t i = 0; i < count; ++i) {
          if (events[i].kind == KVSTREAM_DONE) done_[events[i].work] = events[i];
        }
      }
      if (done_.contains(work)) return done_[work];
    }
    ADD_FAILURE() << "work " << work << " was not done in time";
    return {};
  }
  std::uint32_t leading_blocks(const std::vector<kvstream_key>& keys) {
    const kvstream_lookup_request question{keys.data(), keys.size()};
    kvstream_lookup_answer answer{};
    EXPECT_EQ(kvstream_lookup(engine_, &question, &answer, 1), KVSTREAM_OK) << last_error();
    EXPECT_EQ(kvstream_release(engine_, &answer.lease), KVSTREAM_OK);
    return answer.blocks;
  }

  const kvstream::test::TempDirectory directory_;
  std::string nvme_;
  Options options_;
  kvstream_engine* engine_ = nullptr;
  std::map<std::uint64_t, kvstream_event> done_;
};

TEST_F(CApi, AProgramInCSavesFindsAndLoads) {
  char text[512] = "";
  EXPECT_EQ(c_round_trip(directory_.path().c_str(), 8, text, sizeof text), 0)
      << "the failed line of c_round_trip.c; " << text;
}

TEST_F(CApi, EachSavedBlockSaysThatItCanBeFound) {
  open();
  Blocks blocks(engine_, 5);
  const auto event = wait_done(start_save(blocks));
  EXPECT_EQ(event.good_blocks, 5U);
  EXPECT_EQ(blocks.states, std::vector<std::uint8_t>(5, KVSTREAM_BLOCK_GOOD));
  EXPECT_EQ(leading_blocks(blocks.keys), 5U);
}

TEST_F(CApi, ASaveBeyondTheQueueNamesTheBlocksThatWereDropped) {
  options_.settings.push_back("write-queue-max=128KiB");
  open();
  Blocks blocks(engine_, 16);
  const auto event = wait_done(start_save(blocks));
  EXPECT_GE(event.good_blocks, 2U);
  EXPECT_LT(event.good_blocks, 16U);
  for (std::size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(leading_blocks({blocks.keys[i]}) == 1, blocks.states[i] == KVSTREAM_BLOCK_GOOD) << i;
  }
}

TEST_F(CApi, IndependentKeysAreFoundAroundAMissingOne) {
  open();
  Blocks saved(engine_, 3), wanted(engine_, 4);
  wait_done(start_save(saved));
  ASSERT_EQ(kvstream_drop(engine_, &saved.keys[1], 1), KVSTREAM_OK);
  std::vector<kvstream_lookup_request> questions;
  for (const auto& key : wanted.keys) questions.push_back({&key, 1});
  std::vector<kvstream_lookup_answer> answers(4);
  ASSERT_EQ(kvstream_lookup(engine_, questions.data(), answers.data(), 4), KVSTREAM_OK);
  EXPECT_EQ(answers[0].blocks + answers[2].blocks, 2U);
  EXPECT_EQ(answers[1].blocks + answers[3].blocks, 0U);

  wanted.wipe();
  const auto event = wait_done(start_load(wanted));
  EXPECT_EQ(event.good_blocks, 2U);
  EXPECT_EQ(wanted.states,
            (std::vector<std::uint8_t>{KVSTREAM_BLOCK_GOOD, KVSTREAM_BLOCK_MISSING,
                                       KVSTREAM_BLOCK_GOOD, KVSTREAM_BLOCK_MISSING}));
  EXPECT_EQ(wanted.bytes[0], saved.bytes[0]);
  EXPECT_EQ(wanted.bytes[2], saved.bytes[2]);
  EXPECT_EQ(wanted.bytes[1], std::vector<unsigned char>(kBlock, 0));
}

TEST_F(CApi, ABlockBehindAMissingOneOfItsRequestIsMissing) {
  open();
  Blocks saved(engine_, 3);
  wait_done(start_save(saved));
  ASSERT_EQ(kvstream_drop(engine_, &saved.keys[1], 1), KVSTREAM_OK);
  EXPECT_EQ(leading_blocks(saved.keys), 1U);
  const kvstream_load load{saved.list.data(), 3, {}};
  const kvstream_step step{sizeof step, &load, 1, kTenSeconds, saved.states.data()};
  std::uint64_t work = 0;
  ASSERT_EQ(kvstream_load_step(engine_, &step, &work), KVSTREAM_OK) << last_error();
  EXPECT_EQ(wait_done(work).good_blocks, 1U);
  EXPECT_EQ(saved.states, (std::vector<std::uint8_t>{KVSTREAM_BLOCK_GOOD, KVSTREAM_BLOCK_MISSING,
                                                     KVSTREAM_BLOCK_MISSING}));
}

TEST_F(CApi, WorkOfNothingIsDoneAndRings) {
  open();
  Blocks none(engine_, 0);
  EXPECT_EQ(wait_done(start_save(none)).good_blocks, 0U);
  EXPECT_EQ(wait_done(start_load(none)).good_blocks, 0U);
}

TEST_F(CApi, EventsBeyondTheRoomAreKeptAndRingAgain) {
  open();
  std::vector<Blocks> saves;
  for (std::uint32_t i = 0; i < 6; ++i) saves.emplace_back(engine_, 1, i);
  std::vector<std::uint64_t> works;
  for (auto& blocks : saves) works.push_back(start_save(blocks));
  pollfd readable{-1, POLLIN, 0};
  ASSERT_EQ(kvstream_event_fd(engine_, &readable.fd), KVSTREAM_OK);
  std::vector<std::uint64_t> done;
  while (done.size() < works.size() && ::poll(&readable, 1, 10'000) == 1) {
    kvstream_event event;
    std::size_t count = 0;
    ASSERT_EQ(kvstream_poll(engine_, &event, 1, &count), KVSTREAM_OK);
    if (count == 1 && event.kind == KVSTREAM_DONE) done.push_back(event.work);
  }
  EXPECT_THAT(done, testing::UnorderedElementsAreArray(works));
}

TEST_F(CApi, ARestartFindsWhatTheDriveHolds) {
  options_.tiers = {nvme_.c_str()};
  open();
  Blocks blocks(engine_, 4);
  EXPECT_EQ(wait_done(start_save(blocks)).good_blocks, 4U);
  const auto before = blocks.bytes;
  close();
  open();
  blocks.wipe();
  EXPECT_EQ(wait_done(start_load(blocks)).good_blocks, 4U);
  EXPECT_EQ(blocks.bytes, before);
}

TEST_F(CApi, AnotherNamespaceFindsNothing) {
  options_.fields = {"model=a"};
  open();
  Blocks blocks(engine_, 2);
  EXPECT_EQ(wait_done(start_save(blocks)).good_blocks, 2U);
  close();
  options_.fields = {"model=a", "revision=2"};
  open();
  const Blocks same_ids(engine_, 2);
  EXPECT_NE(std::memcmp(same_ids.keys[0].bytes, blocks.keys[0].bytes, 16), 0);
  EXPECT_EQ(leading_blocks(same_ids.keys), 0U);
}

TEST_F(CApi, CloseEndsWorkThatIsUnderWay) {
  // Slow enough that both the saves and the load are still out when close begins.
  nvme_ += ",read=1MB/s,write=1MB/s";
  options_.tiers = {nvme_.c_str()};
  open();
  Blocks first(engine_, 2);
  EXPECT_EQ(wait_done(start_save(first)).good_blocks, 2U);
  Blocks more(engine_, 8, 100);
  const auto bytes = more.bytes;
  const auto saving = start_save(more);
  const auto loading = start_load(first);
  EXPECT_NE(saving, loading);
  close();
  for (auto& block : first.bytes) block.assign(kBlock, 9);  // ours again
  EXPECT_EQ(more.bytes, bytes);
}

TEST_F(CApi, ACancelledLoadIsDone) {
  nvme_ += ",read=1MB/s";
  options_.tiers = {nvme_.c_str()};
  open();
  Blocks blocks(engine_, 16);
  EXPECT_EQ(wait_done(start_save(blocks)).good_blocks, 16U);
  const auto work = start_load(blocks);
  EXPECT_EQ(kvstream_cancel(engine_, work, kTenSeconds), KVSTREAM_OK) << last_error();
  EXPECT_LT(wait_done(work).good_blocks, 16U);
  EXPECT_THAT(blocks.states, testing::Contains(KVSTREAM_BLOCK_CANCELLED));
}

TEST_F(CApi, OpenNamesTheWordThatIsWrong) {
  const auto refused = [&](Options options) {
    kvstream_engine* engine = nullptr;
    EXPECT_EQ(options.open(engine), KVSTREAM_INVALID_ARGUMENT);
    EXPECT_EQ(engine, nullptr);
    return last_error();
  };
  Options good = options_;
  Options bad = good;
  bad.tiers = {};
  EXPECT_THAT(refused(bad), HasSubstr("no tier"));
  bad = good;
  bad.tiers = {"tape0=tape:/x,cap=1GiB"};
  EXPECT_THAT(refused(bad), HasSubstr("host, nvme, pfs"));
  bad.tiers = {"host=host"};
  EXPECT_THAT(refused(bad), HasSubstr("has no cap"));
  bad.tiers = {nullptr};
  EXPECT_THAT(refused(bad), HasSubstr("tiers[0] is null"));
  bad = good;
  bad.settings.push_back("pol=1MiB");
  EXPECT_THAT(refused(bad), HasSubstr("pool"));
  bad = good;
  bad.settings.push_back("pool");
  EXPECT_THAT(refused(bad), HasSubstr("name=value"));
  bad = good;
  bad.fields = {"modell=x"};
  EXPECT_THAT(refused(bad), HasSubstr("model"));

  kvstream_engine* engine = nullptr;
  kvstream_options form = good.form();
  form.struct_bytes -= 8;
  EXPECT_EQ(kvstream_open(&form, &engine), KVSTREAM_INVALID_ARGUMENT);
  EXPECT_THAT(last_error(), HasSubstr("struct_bytes"));
  form = good.form();
  form.api_version = KVSTREAM_API_VERSION + 1;
  EXPECT_EQ(kvstream_open(&form, &engine), KVSTREAM_INVALID_ARGUMENT);
  EXPECT_THAT(last_error(), HasSubstr("version 2"));
  EXPECT_EQ(kvstream_open(nullptr, &engine), KVSTREAM_INVALID_ARGUMENT);
  EXPECT_EQ(kvstream_open(&form, nullptr), KVSTREAM_INVALID_ARGUMENT);
}

TEST_F(CApi, WrongBlocksAreRefusedWhole) {
  open();
  Blocks blocks(engine_, 2);
  std::uint64_t work = 77;
  const auto refused = [&] {
    const kvstream_load load{blocks.list.data(), blocks.list.size(), {}};
    const kvstream_step step{sizeof step, &load, 1, 0, nullptr};
    const kvstream_save save{sizeof save, blocks.list.data(), blocks.list.size(), nullptr};
    EXPECT_EQ(kvstream_save_step(engine_, &save, &work), KVSTREAM_INVALID_ARGUMENT);
    const std::string of_save = last_error().substr(sizeof "kvstream_save_step:");
    EXPECT_EQ(kvstream_load_step(engine_, &step, &work), KVSTREAM_INVALID_ARGUMENT);
    EXPECT_EQ(last_error().substr(sizeof "kvstream_load_step:"), of_save);
    EXPECT_EQ(work, 77U);
    return of_save;
  };
  const kvstream_block good = blocks.list[1];
  blocks.list[1].count_spans = 0;
  EXPECT_EQ(refused(), "block 1 has no spans");
  blocks.list[1] = good;
  blocks.list[1].spans = nullptr;
  EXPECT_EQ(refused(), "block 1 has no spans");
  blocks.list[1] = good;
  blocks.list[1].count_spans = 257;
  EXPECT_THAT(refused(), HasSubstr("at most 256"));
  const std::vector<kvstream_span> wrong = {
      {nullptr, 8}, {blocks.bytes[0].data(), kBlock + 1}, {blocks.bytes[0].data(), 0}};
  const char* said[] = {"without memory", "block-max = 65536", "has no bytes"};
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    blocks.list[1] = {good.key, &wrong[i], 1, 1};
    EXPECT_THAT(refused(), HasSubstr(said[i]));
  }
  kvstream_event event;
  std::size_t count = 9;
  ASSERT_EQ(kvstream_poll(engine_, &event, 1, &count), KVSTREAM_OK);
  EXPECT_EQ(count, 0U);
}

TEST_F(CApi, NullPointersAreRefusedByEveryCall) {
  open();
  kvstream_key key{};
  kvstream_lease lease{};
  kvstream_event event{};
  std::uint64_t work = 0;
  std::size_t count = 0;
  int fd = 0;
  const kvstream_step step{sizeof step, nullptr, 1, 0, nullptr};
  const kvstream_save save{sizeof save, nullptr, 1, nullptr};
  const kvstream_step short_step{8, nullptr, 0, 0, nullptr};
  const kvstream_lookup_request no_keys{nullptr, 1};
  kvstream_lookup_answer answer{};
  for (const int code : {
           kvstream_close(nullptr, 0),
           kvstream_key_of(nullptr, "a", 1, &key),
           kvstream_key_of(engine_, nullptr, 1, &key),
           kvstream_key_of(engine_, "a", 0, &key),
           kvstream_key_of(engine_, "a", 1, nullptr),
           kvstream_lookup(nullptr, nullptr, nullptr, 0),
           kvstream_lookup(engine_, nullptr, &answer, 1),
           kvstream_lookup(engine_, &no_keys, &answer, 1),
           kvstream_lookup(engine_, &no_keys, nullptr, 1),
           kvstream_release(nullptr, &lease),
           kvstream_release(engine_, nullptr),
           kvstream_load_step(nullptr, &step, &work),
           kvstream_load_step(engine_, nullptr, &work),
           kvstream_load_step(engine_, &step, &work),
           kvstream_load_step(engine_, &step, nullptr),
           kvstream_load_step(engine_, &short_step, &work),
           kvstream_save_step(nullptr, &save, &work),
           kvstream_save_step(engine_, nullptr, &work),
           kvstream_save_step(engine_, &save, &work),
           kvstream_save_step(engine_, &save, nullptr),
           kvstream_cancel(nullptr, 1, 0),
           kvstream_poll(nullptr, &event, 1, &count),
           kvstream_poll(engine_, nullptr, 1, &count),
           kvstream_poll(engine_, &event, 0, &count),
           kvstream_poll(engine_, &event, 1, nullptr),
           kvstream_event_fd(nullptr, &fd),
           kvstream_event_fd(engine_, nullptr),
           kvstream_drop(nullptr, &key, 1),
           kvstream_drop(engine_, nullptr, 1),
           kvstream_stats(nullptr, nullptr, 0, &count),
           kvstream_stats(engine_, nullptr, 0, nullptr),
       }) {
    EXPECT_EQ(code, KVSTREAM_INVALID_ARGUMENT);
  }
  EXPECT_EQ(kvstream_cancel(engine_, 12345, 0), KVSTREAM_NOT_FOUND);
}

TEST_F(CApi, StatsSayHowMuchRoomTheyNeed) {
  open();
  std::size_t needed = 0;
  EXPECT_EQ(kvstream_stats(engine_, nullptr, 0, &needed), KVSTREAM_NO_SPACE);
  std::string text(needed, '?');
  ASSERT_EQ(kvstream_stats(engine_, text.data(), text.size(), &needed), KVSTREAM_OK);
  EXPECT_THAT(text, HasSubstr("\"name\":\"nvme0\""));
  EXPECT_EQ(text.find('\0'), needed - 1);
}

}  // namespace
