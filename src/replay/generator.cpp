#include "replay/generator.hpp"

#include "replay/distributions.hpp"
#include "replay/streams.hpp"

namespace kvstream {

Result<Workload> documents_workload(const DocumentsOptions& options) {
  const std::uint64_t count = options.requests;
  if (count == 0 || count > kGeneratedRequestsMax || options.documents == 0 ||
      options.document_tokens == 0) {
    return failure(Code::kInvalidArgument,
                   "the generator makes 1.." + std::to_string(kGeneratedRequestsMax) +
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

  // The seed is part of the streams' names: documents of two seeds share nothing.
  const std::uint64_t documents_salt = mix64(options.seed) ^ stream_of("documents");
  const std::uint64_t questions_salt = mix64(options.seed) ^ stream_of("questions");
  Workload workload;
  workload.name = "documents";
  workload.timed = true;
  workload.requests.resize(count);
  double arrival_ns = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t document = order[i];
    WorkloadRequest& request = workload.requests[i];
    request.arrival_ns = static_cast<Nanos>(arrival_ns);
    arrival_ns += random.exponential(static_cast<double>(options.arrival_gap_ns));
    const std::uint32_t question = around(random, options.question_tokens);
    request.input_tokens = lengths[document] + question;
    request.output_tokens = around(random, options.output_tokens);
    request.conversation = i;
    request.prompt = {{fresh_stream(documents_salt, document), 0, lengths[document]},
                      {fresh_stream(questions_salt, i), 0, question}};
  }
  return workload;
}

Result<std::vector<TraceRequest>> generate_documents(const DocumentsOptions& options,
                                                     const BlockShape& shape,
                                                     const BlockKey& namespace_key) {
  const auto workload = documents_workload(options);
  if (!workload) return failure(workload.error());
  return make_requests(*workload, shape, Tail::kKeep, namespace_key);
}

}  // namespace kvstream
