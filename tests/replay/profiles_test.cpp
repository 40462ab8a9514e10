// Model and device profiles, and the time of a forward pass that follows from them.
#include <gtest/gtest.h>

#include "replay/device_profile.hpp"
#include "replay/forward_time.hpp"
#include "replay/model_profile.hpp"

namespace kvstream {
namespace {

ModelProfile model(std::string_view name) {
  const Result<ModelProfile> found = model_profile(name);
  EXPECT_TRUE(found) << found.error().to_string();
  return *found;
}

DeviceGroup devices(std::string_view name, std::uint32_t count) {
  const Result<DeviceProfile> found = device_profile(name);
  EXPECT_TRUE(found) << found.error().to_string();
  return {.device = *found, .count = count};
}

TEST(ModelProfile, KvBytesFollowFromTheDimensions) {
  EXPECT_EQ(model("llama-3-8b").kv_bytes_per_token, 128 * 1024.0);
  EXPECT_EQ(model("qwen2.5-7b").kv_bytes_per_token, 56 * 1024.0);
  EXPECT_EQ(model("llama-3-70b").kv_bytes_per_token, 320 * 1024.0);
  EXPECT_EQ(model("qwen1.5-110b").kv_bytes_per_token, 320 * 1024.0);
  EXPECT_NEAR(model("deepseek-v3").kv_bytes_per_token / 1024, 68.6, 0.05);
}

TEST(ModelProfile, StatedParametersAreThoseOfTheDimensions) {
  for (const char* name : {"llama-3-8b", "qwen2.5-7b", "llama-3-70b", "qwen1.5-110b"}) {
    const ModelProfile known = model(name);
    const double hidden = known.hidden;
    const double attention =
        2 * hidden * known.heads * known.head_dim + 2 * hidden * known.kv_heads * known.head_dim;
    const double feed_forward = 3 * hidden * known.intermediate;
    const double sum = known.layers * (attention + feed_forward) + 2 * hidden * known.vocab;
    EXPECT_NEAR(known.parameters_total / sum, 1, 0.002) << name;
    EXPECT_FALSE(known.has_experts());
  }
}

TEST(ModelProfile, TheFreeFormGivesTheSameModel) {
  const ModelProfile known = model("llama-3-8b");
  const ModelProfile free = model(
      "custom:layers=32,hidden=4096,heads=32,kv-heads=8,head-dim=128,params=8.03e9,vocab=128256");
  EXPECT_EQ(free.kv_bytes_per_token, known.kv_bytes_per_token);
  EXPECT_EQ(free.weight_bytes, known.weight_bytes);
  EXPECT_EQ(free.attention_flops_per_pair, known.attention_flops_per_pair);
  const ModelProfile quantised = model(
      "custom:layers=2,hidden=64,heads=4,kv-heads=2,head-dim=16,params=1e6,active=5e5,dtype=1,"
      "weight-dtype=0.5");
  EXPECT_EQ(quantised.kv_bytes_per_token, 2 * 2 * 2 * 16.0);
  EXPECT_EQ(quantised.weight_bytes, 5e5);
  EXPECT_TRUE(quantised.has_experts());
  EXPECT_EQ(model("custom:layers=2,hidden=64,heads=4,kv-heads=2,head-dim=16,params=1e6,kv-bytes=99")
                .kv_bytes_per_token,
            99);
}

TEST(ModelProfile, RefusesWhatItDoesNotKnowAndSaysWhatThereIs) {
  const auto message = [](std::string_view text) {
    const Result<ModelProfile> found = model_profile(text);
    return found ? std::string("accepted") : found.error().message();
  };
  EXPECT_NE(message("llama-9").find("llama-3-8b"), std::string::npos);
  EXPECT_NE(message("custom:layers=2").find("'hidden' is missing"), std::string::npos);
  EXPECT_NE(message("custom:layers=x").find("positive number"), std::string::npos);
  EXPECT_NE(message("custom:layers=2,layers=2").find("twice"), std::string::npos);
  EXPECT_NE(message("custom:colour=2").find("no field 'colour'"), std::string::npos);
  const std::string most = "custom:hidden=64,heads=4,kv-heads=2,head-dim=16,params=1e6,";
  EXPECT_NE(message(most + "layers=2.5").find("whole number"), std::string::npos);
  EXPECT_NE(message(most + "layers=2,active=2e6").find("go together"), std::string::npos);
}

TEST(DeviceProfile, KvSpaceIsWhatWeightsAndActivationsLeave) {
  // (81,559 MiB x 0.9 - 2 GiB - 8.03e9 x 2 B) / 128 KiB, in whole pages of 16 tokens.
  const Result<std::uint64_t> tokens =
      device_kv_tokens(model("llama-3-8b"), devices("h100-80g", 1));
  ASSERT_TRUE(tokens);
  EXPECT_NEAR(static_cast<double>(*tokens), 448'312, 16);
  EXPECT_EQ(*tokens % 16, 0U);
  const Result<std::uint64_t> twice = device_kv_tokens(model("llama-3-8b"), devices("h100-80g", 2));
  EXPECT_GT(*twice, 2 * *tokens);
}

TEST(DeviceProfile, WeightsThatDoNotFitAreRefusedWithTheCountThatWouldDo) {
  const Result<std::uint64_t> tokens =
      device_kv_tokens(model("qwen1.5-110b"), devices("h100-80g", 2));
  ASSERT_FALSE(tokens);
  EXPECT_EQ(tokens.error().code(), Code::kNoSpace);
  EXPECT_NE(tokens.error().message().find("at least 3 devices"), std::string::npos)
      << tokens.error().message();
  EXPECT_TRUE(device_kv_tokens(model("qwen1.5-110b"), devices("h100-80g", 4)));
  EXPECT_TRUE(device_kv_tokens(model("deepseek-v3"), devices("h200-141g", 8)));
}

TEST(DeviceProfile, TheFreeFormTakesEveryField) {
  const DeviceGroup free =
      devices("custom:flops=1e14,util=0.25,mem-bw=1e12,bw-util=0.5,mem=4e10,link=2e10", 1);
  EXPECT_DOUBLE_EQ(free.flops_per_s(), 2.5e13);
  EXPECT_DOUBLE_EQ(free.bytes_per_s(), 5e11);
  EXPECT_DOUBLE_EQ(free.host_link_bytes_per_s(), 2e10);
  EXPECT_FALSE(device_profile("custom:flops=1e14,mem-bw=1e12,mem=4e10,link=2e10,util=2"));
  EXPECT_FALSE(device_profile("abacus"));
}

TEST(DeviceProfile, SeveralDevicesLoseTheStatedShare) {
  const DeviceGroup one = devices("h100-80g", 1);
  const DeviceGroup four = devices("h100-80g", 4);
  EXPECT_DOUBLE_EQ(four.flops_per_s(), one.flops_per_s() * 4 * 0.9);
  EXPECT_DOUBLE_EQ(four.bytes_per_s(), one.bytes_per_s() * 4 * 0.9);
}

// A model that can be reckoned by hand: 2 layers, 4 heads of 16, 1e6 parameters of 2 bytes, no
// vocabulary; 256 B of KV a token (2 x 2 x 2 x 16 x 2) and 4 x 2 x 4 x 16 = 512 FLOPs a pair.
const char* const kSmall = "custom:layers=2,hidden=64,heads=4,kv-heads=2,head-dim=16,params=1e6";

TEST(ForwardTime, CostCountsParametersAndCausalPairs) {
  const std::vector<ScheduledWork> work = {{0, 3, 10, false}};
  const ForwardCost cost = forward_cost(model(kSmall), work);
  // The three see 11, 12 and 13 tokens.
  EXPECT_DOUBLE_EQ(cost.flops, 2e6 * 3 + 512.0 * 36);
  EXPECT_DOUBLE_EQ(cost.bytes, 2e6 + 256.0 * 13);
}

TEST(ForwardTime, LogitsCountForSampledPositionsOnly) {
  const ModelProfile tables = model(std::string(kSmall) + ",vocab=1000");  // 64,000 a table
  std::vector<ScheduledWork> work = {{0, 10, 0, false}};
  const double unsampled = forward_cost(tables, work).flops;
  EXPECT_DOUBLE_EQ(unsampled, 2 * (1e6 - 128e3) * 10 + 512.0 * 55);
  work[0].samples = true;
  EXPECT_DOUBLE_EQ(forward_cost(tables, work).flops - unsampled, 128e3);
}

TEST(ForwardTime, FewTokensReadOnlyTheExpertsTheyUse) {
  const ModelProfile experts = model(std::string(kSmall) + ",active=1e5");
  const auto weights = [&](std::uint32_t tokens) {
    const std::vector<ScheduledWork> work = {{0, tokens, 0, false}};
    return forward_cost(experts, work).bytes - 256.0 * tokens;
  };
  EXPECT_DOUBLE_EQ(weights(1), 2e5);
  EXPECT_DOUBLE_EQ(weights(4), 8e5);
  EXPECT_DOUBLE_EQ(weights(100), 2e6);
}

TEST(ForwardTime, LatentAttentionDecodesOnTheLatent) {
  const ModelProfile latent = model("deepseek-v3");
  EXPECT_DOUBLE_EQ(latent.attention_flops_per_pair, 2.0 * 61 * 128 * (192 + 128));
  EXPECT_DOUBLE_EQ(latent.attention_flops_per_pair_decode, 2.0 * 61 * 128 * (576 + 512));
  const std::vector<ScheduledWork> shorter = {{0, 1, 999, false}};
  const std::vector<ScheduledWork> longer = {{0, 1, 1999, false}};
  EXPECT_NEAR(forward_cost(latent, longer).flops - forward_cost(latent, shorter).flops,
              1000 * latent.attention_flops_per_pair_decode, 1e3);
}

TEST(ForwardTime, IsTheLargerOfComputeAndMemory) {
  ProfiledForward forward{.model = model(kSmall),
                          .devices = devices("custom:flops=1e9,util=1,mem-bw=1e9,bw-util=1,"
                                             "mem=1e9,link=1e9",
                                             1)};
  const std::vector<ScheduledWork> decode = {{0, 1, 100'000, true}};
  ForwardCost cost = forward_cost(forward.model, decode);
  forward.devices.device.peak_flops = 1e12;
  EXPECT_DOUBLE_EQ(forward_time_s(forward, decode), cost.bytes / 1e9);
  const std::vector<ScheduledWork> prefill = {{0, 1000, 0, true}};
  cost = forward_cost(forward.model, prefill);
  forward.devices.device.peak_flops = 1e9;
  EXPECT_DOUBLE_EQ(forward_time_s(forward, prefill), cost.flops / 1e9);
  forward.overhead_s = 0.5;
  EXPECT_DOUBLE_EQ(forward_time_s(forward, prefill), 0.5 + cost.flops / 1e9);
  EXPECT_EQ(forward_time_s(forward, {}), 0);
}

TEST(ForwardTime, PlainRatesAddPrefillAndDecode) {
  const std::vector<ScheduledWork> work = {
      {0, 1000, 50, true}, {1, 1, 400, true}, {2, 1, 70, true}};
  const ForwardModel plain = PlainRates{.prefill_tokens_per_s = 1000, .decode_tokens_per_s = 10};
  EXPECT_DOUBLE_EQ(forward_time_s(plain, work), 1.2);
}

// Order of magnitude against what is known of the hardware: an H100 prefills an 8B model at tens
// of thousands of tokens/s and decodes one sequence at a few hundred tokens/s at most.
TEST(ForwardTime, AnH100WithAnEightBModelIsInTheRightRange) {
  const ForwardModel forward =
      ProfiledForward{.model = model("llama-3-8b"), .devices = devices("h100-80g", 1)};
  const std::vector<ScheduledWork> prefill = {{0, 8192, 0, true}};
  const double rate = 8192 / forward_time_s(forward, prefill);
  EXPECT_GT(rate, 2e4);
  EXPECT_LT(rate, 5e4);
  const std::vector<ScheduledWork> decode = {{0, 1, 1000, true}};
  const double single = 1 / forward_time_s(forward, decode);
  EXPECT_GT(single, 100);
  EXPECT_LT(single, 250);
}

}  // namespace
}  // namespace kvstream
