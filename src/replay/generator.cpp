#include "replay/generator.hpp"

#include "replay/random.hpp"

namespace kvstream {
namespace {

constexpr std::uint64_t kRequestsMax = 1'000'000;

std::uint32_t around(Random& random, std::uint32_t mean) {
  return static_cast<std::uint32_t>(random.between(mean - mean / 2, mean + mean / 2));
}

}  // namespace

Result<std::vector<TraceRequest>> generate_documents(const DocumentsOptions& options,
                                                     const BlockShape& shape,
                                                     const BlockKey& namespace_key) {
  const std::uint64_t count = options.requests;
  if (count == 0 || count > kRequestsMax || options.documents == 0 ||
      options.document_tokens == 0) {
    return failure(Code::kInvalidArgument,
                   "the generator makes 1.." + std::to_string(kRequestsMax) +
                       " requests about documents with at least one token; asked for " +
                       std::to_string(count) + " about " + std::to_string(options.documents) +
                       " documents of " + std::to_string(options.document_tokens) + " tokens");
  }
  Random random(options.seed);
  std::vector<std::uint32_t> lengths(options.documents);
  for (auto& length : lengths) length = std::max(1U, around(random, options.document_tokens));
  std::vector<std::uint32_t> order(count);
  for (std::size_t i = 0; i < count; ++i) {
    order[i] = static_cast<std::uint32_t>(i % options.documents);
  }
  random.shuffle(order);

  std::vector<TraceRequest> requests(count);
  double arrival_ns = 0;
  std::uint64_t fresh_id = std::uint64_t{1} << 60U;  // above all ids of documents' blocks
  std::vector<std::uint64_t> ids;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t document = order[i];
    TraceRequest& request = requests[i];
    request.arrival_ns = static_cast<Nanos>(arrival_ns);
    arrival_ns += random.exponential(static_cast<double>(options.arrival_gap_ns));
    request.input_tokens = lengths[document] + around(random, options.question_tokens);
    request.output_tokens = around(random, options.output_tokens);
    // A block that holds a token of the question is this request's alone.
    const std::uint32_t shared = lengths[document] / shape.block_tokens;
    ids.clear();
    for (std::uint32_t block = 0; block < shape.blocks(request.input_tokens); ++block) {
      ids.push_back(block < shared ? (document << 32U) + block : fresh_id++);
    }
    // The seed is part of the ids: documents of two seeds share nothing.
    for (auto& id : ids) id = mix64(id ^ mix64(options.seed));
    put_keys(request, namespace_key, shape, ids);
  }
  return requests;
}

}  // namespace kvstream
